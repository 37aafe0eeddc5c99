#include <cstdlib>

#include "base/error.h"
#include "plan/csv.h"
#include "plan/validate.h"
#include "temporary_file.h"

/// A problem that is accepted must be packed, within its limits of time, without overlap.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hearth;
  const TemporaryFile file(data, size);
  try {
    const plan::Problem problem = plan::read_csv(file.path());
    const plan::Solution solution = plan::solve(problem, {.seconds = 0.01});
    if (plan::validate(problem, solution)) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
