#pragma once

#include <cstdint>
#include <vector>

namespace hearth::tasks {

/// Photographs side by side that a report shows at most: each takes some 400 kB.
inline constexpr int64_t kMostStrips = 16;

/// At most `count` of `size` images, ascending: one from each of as many equal stretches, since many datasets
/// lie sorted by class.
std::vector<int64_t> spread(int64_t count, int64_t size);

}  // namespace hearth::tasks
