#pragma once

#include <string>

namespace hearth::planner {

/// Returns a sentence on work that is predicted to take more than half a minute: "reading the prompt of
/// 100000 tokens takes about 12 minutes, as a rough guess; ..."; empty for less.
std::string long_wait(const std::string& what, double seconds);

}  // namespace hearth::planner
