#include "planner/long_wait.h"

#include <fmt/format.h>

namespace hearth::planner {

std::string long_wait(const std::string& what, double seconds) {
  constexpr double kLong = 30;
  if (seconds < kLong) return "";
  const std::string time = seconds < 120    ? fmt::format("{:.0f} seconds", seconds)
                           : seconds < 7200 ? fmt::format("{:.0f} minutes", seconds / 60)
                                            : fmt::format("{:.0f} hours", seconds / 3600);
  return fmt::format("{} takes about {} (a rough estimate); a shorter context takes less", what, time);
}

}  // namespace hearth::planner
