#include "base/error.h"

namespace hearth {

void throw_user_error(fmt::string_view format, fmt::format_args args) {
  throw UserError(fmt::vformat(format, args));
}

void throw_internal_error(fmt::string_view format, fmt::format_args args) {
  throw InternalError(fmt::vformat(format, args));
}

void check_failed(const char* condition, const char* file, int line) {
  internal_error("{}:{}: broken invariant: {}", file, line, condition);
}

}  // namespace hearth
