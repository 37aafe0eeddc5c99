#include "base/error.h"

namespace hearth {

void check_failed(const char* condition, const char* file, int line) {
  internal_error("{}:{}: broken invariant: {}", file, line, condition);
}

}  // namespace hearth
