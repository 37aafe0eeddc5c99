#include <cstdlib>

#include "arena/csv.h"
#include "arena/solve.h"
#include "arena/validate.h"
#include "base/error.h"
#include "temporary_file.h"

/// A problem that is accepted must be packed, within its limits of time, without overlap.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hearth;
  const TemporaryFile file(data, size);
  try {
    const arena::Problem problem = arena::read_csv(file.path());
    const arena::Solution solution = arena::solve(problem, {.seconds = 0.01});
    if (arena::validate(problem, solution)) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
