#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hearth::arena {

/// A memory buffer with its lifetime, the half-open time interval [lower, upper), lower < upper. Sizes are in
/// bytes; the sizes of a problem add up to at most kMaxProblemBytes.
struct Buffer {
  int64_t lower = 0;
  int64_t upper = 0;
  int64_t size = 0;
  int64_t alignment = 1;
  std::string id = {};
  /// Kind of the value, which sets the color in drawings: "activation", "gradient", "workspace".
  std::string kind = {};
};

/// Memory planning (dynamic storage allocation, NP-complete): assign each buffer an offset so that
/// buffers with overlapping lifetimes do not overlap in memory. The height, the largest offset + size,
/// is to be minimized.
///
///   offset ^   +-----+
///          |   |  c  |        a and c overlap in time: disjoint offsets
///          | +-+-+---+-+      b may reuse the bytes of a
///          | | a |  b  |
///          +-+---+-----+--> time
struct Problem {
  std::vector<Buffer> buffers;
};

/// Returns the smallest multiple of `alignment` that is at least `offset`.
inline int64_t aligned(int64_t offset, int64_t alignment) {
  return alignment == 1 ? offset : (offset + alignment - 1) / alignment * alignment;
}

/// Maximum total size of the buffers of a problem, in bytes.
inline constexpr int64_t kMaxProblemBytes = int64_t{1} << 50;

/// Offsets of all buffers, in the order of Problem::buffers, and their total height in bytes.
struct Solution {
  std::vector<int64_t> offsets;
  int64_t height = 0;
  /// Maximum bytes alive at any time.
  int64_t lower_bound = 0;
  /// Proven lower bound of the height: lower_bound, or more if exhaustive searches found nothing lower.
  int64_t proven_bound = 0;
  /// True if the height equals proven_bound.
  bool proven_optimal = false;
  double seconds = 0;
};

/// Returns the maximum bytes alive at any time, a lower bound of the height.
int64_t lower_bound(const Problem& problem);

}  // namespace hearth::arena
