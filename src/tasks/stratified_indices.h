#pragma once

#include <cstdint>
#include <vector>

namespace hearth::tasks {

/// Max number of strips (rows of images) in a report; each takes about 400 kB.
inline constexpr int64_t kMaxStrips = 16;

/// Returns at most `count` of the indices [0, size), ascending: one random index (fixed seed) from each of
/// `count` equal ranges, so that a dataset sorted by class is covered evenly (stratified sampling).
std::vector<int64_t> stratified_indices(int64_t count, int64_t size);

}  // namespace hearth::tasks
