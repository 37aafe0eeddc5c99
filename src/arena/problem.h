#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hearth::arena {

/// A run of bytes that is needed over the half-open time [lower, upper), lower < upper. The sizes of a
/// problem add up to at most kMostBytes.
struct Buffer {
  int64_t lower = 0;
  int64_t upper = 0;
  int64_t size = 0;
  int64_t alignment = 1;
  std::string id = {};
  /// Colors the drawing: "activation", "gradient", "workspace".
  std::string kind = {};
};

/// Give every buffer an offset so that buffers alive together do not overlap; the height is the largest
/// offset + size (dynamic storage allocation, NP-complete).
///
///   offset ^   +-----+
///          |   |  c  |        a and c overlap in time: disjoint offsets
///          | +-+-+---+-+      b may reuse the bytes of a
///          | | a |  b  |
///          +-+---+-----+--> time
struct Problem {
  std::vector<Buffer> buffers;
};

/// The first multiple of the alignment from the offset on.
inline int64_t aligned(int64_t offset, int64_t alignment) {
  return alignment == 1 ? offset : (offset + alignment - 1) / alignment * alignment;
}

inline constexpr int64_t kMostBytes = int64_t{1} << 50;

struct Solution {
  std::vector<int64_t> offsets;
  int64_t height = 0;
  /// The most bytes alive at any time.
  int64_t lower_bound = 0;
  /// No solution is lower: lower_bound, or more where an exhausted search found nothing.
  int64_t proven_bound = 0;
  /// The height is proven_bound.
  bool proven_optimal = false;
  double seconds = 0;
};

/// The most bytes alive at any time: no solution is lower.
int64_t lower_bound(const Problem& problem);

}  // namespace hearth::arena
