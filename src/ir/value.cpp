#include "ir/value.h"

namespace hearth::ir {

std::string_view role_name(Role role) {
  constexpr std::string_view kNames[] = {"activation", "input",  "scalar", "parameter",
                                         "state",      "frozen", "remote", "carried"};
  return kNames[static_cast<size_t>(role)];
}

}  // namespace hearth::ir
