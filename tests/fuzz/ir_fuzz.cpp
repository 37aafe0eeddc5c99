#include <cstdlib>

#include "base/error.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "ops/op_list.h"

/// A graph that is accepted must print to a text that parses to the same print.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hearth;
  try {
    const std::string text = ir::print(ir::parse({reinterpret_cast<const char*>(data), size}, ops::find_op));
    const std::string again = ir::print(ir::parse(text, ops::find_op));
    if (ir::print(ir::parse(again, ops::find_op)) != again) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
