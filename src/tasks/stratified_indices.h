#pragma once

#include <cstdint>
#include <vector>

namespace hearth::tasks {

/// Max number of images with predictions in a report.
inline constexpr int64_t kMaxSamples = 36;
/// Max number of strips (rows of images) in each of a report's two lists, samples and worst mistakes; each
/// strip takes up to 150 kB.
inline constexpr int64_t kMaxStrips = 8;

/// Returns at most `count` of the indices [0, size), ascending: one random index (fixed seed) from each of
/// `count` equal ranges, so that a dataset sorted by class is covered evenly (stratified sampling).
std::vector<int64_t> stratified_indices(int64_t count, int64_t size);

}  // namespace hearth::tasks
