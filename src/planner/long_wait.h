#pragma once

#include <string>

namespace hearth::planner {

/// Returns a sentence about work that is predicted to take more than 30 seconds: "reading the prompt of
/// 100000 tokens takes about 12 minutes (a rough estimate); ..."; empty for shorter work. `what`: subject of
/// the sentence, such as "reading the prompt of 100000 tokens".
std::string long_wait(const std::string& what, double seconds);

}  // namespace hearth::planner
