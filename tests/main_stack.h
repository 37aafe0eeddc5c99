#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace hearth {

/// The size of the stack of a process's main thread, in bytes, by Linux's /proc; 0 where it does not say.
/// "self" is this process.
inline int64_t main_stack_bytes(const std::string& process) {
  std::ifstream maps("/proc/" + process + "/maps");
  for (std::string line; std::getline(maps, line);) {
    if (!line.ends_with("[stack]")) continue;
    const size_t dash = line.find('-');
    return std::stoll(line.substr(dash + 1), nullptr, 16) - std::stoll(line.substr(0, dash), nullptr, 16);
  }
  return 0;
}

}  // namespace hearth
