#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/choices.h"
#include "base/formula.h"
#include "base/function_ref.h"

namespace hearth {

/// Pattern of the pruned weights of a layer. 2:4 and 4:8: of 4 (8) weights of adjacent inputs at most 2 (4)
/// are not zero.
enum class PrunePattern : uint8_t { unstructured, n2_of_4, n4_of_8 };
template <>
inline constexpr auto kNames<PrunePattern> = std::to_array<std::string_view>({"unstructured", "2:4", "4:8"});

/// Method that chooses the pruned weights during training: magnitude; movement pruning (Sanh et al. 2020,
/// arXiv 2005.07683); RigL, which drops by magnitude and grows by gradient (Evci et al. 2019, arXiv
/// 1911.11134).
enum class PruneMethod : uint8_t { none, magnitude, movement, rigl };
template <>
inline constexpr auto kNames<PruneMethod> = std::to_array<std::string_view>({"", "magnitude", "movement",
                                                                             "rigl"});

/// Set of weights that are compared with each other: those of a layer, or of all layers.
enum class PruneScope : uint8_t { layer, global };
template <>
inline constexpr auto kNames<PruneScope> = std::to_array<std::string_view>({"layer", "global"});

/// Returns the number of weights in a group of the pattern; 1: unstructured.
constexpr int64_t group_size(PrunePattern pattern) {
  return pattern == PrunePattern::n2_of_4 ? 4 : pattern == PrunePattern::n4_of_8 ? 8 : 1;
}

/// Returns the number of `count` weights that are pruned at this sparsity, rounded to nearest even as in
/// torch.nn.utils.prune.
HEARTH_FORMULA inline int64_t num_pruned(double sparsity, int64_t count) {
  return static_cast<int64_t>(std::nearbyint(sparsity * static_cast<double>(count)));
}

/// Returns a number that sorts scores: by magnitude, or by value. No two elements have equal keys, because
/// the lower 32 bits are the element's index.
HEARTH_FORMULA inline uint64_t prune_key(float score, bool by_value, uint32_t index) {
  uint32_t bits = 0;
  __builtin_memcpy(&bits, &score, sizeof bits);  // GPU compilers have no std::bit_cast
  constexpr uint32_t kSign = 0x80000000u;
  const uint32_t by_magnitude = bits & ~kSign, ordered = (bits & kSign) != 0 ? ~bits : bits | kSign;
  return (uint64_t{by_value ? ordered : by_magnitude} << 32) | index;
}

/// True if element `i` has one of the `count` smallest keys of its group. Elements of a group are `stride`
/// apart, and groups follow each other: element i is number i / stride % size of its group.
HEARTH_FORMULA inline bool is_pruned_in_group(const float* scores, bool by_value, int64_t i, int64_t size,
                                              int64_t stride, int64_t count) {
  const int64_t position = i / stride % size;
  const uint64_t key = prune_key(scores[i], by_value, static_cast<uint32_t>(position));
  int64_t smaller = 0;
  for (int64_t k = 0; k < size; ++k) {
    const float other = scores[i + (k - position) * stride];
    smaller += prune_key(other, by_value, static_cast<uint32_t>(k)) < key ? 1 : 0;
  }
  return smaller < count;
}

/// Number of elements per byte of a mask.
inline constexpr int64_t kMaskBits = 8;
/// Returns the number of bytes of the mask of `count` elements.
HEARTH_FORMULA inline int64_t num_mask_bytes(int64_t count) { return (count + kMaskBits - 1) / kMaskBits; }
/// True if element `i` is pruned: bit i % 8 of byte i / 8 of the mask is set.
HEARTH_FORMULA inline bool is_pruned(const uint8_t* mask, int64_t i) {
  return (mask[i / kMaskBits] >> (i % kMaskBits) & 1) != 0;
}

/// Score of a weight that is not pruned, when RigL grows pruned weights: above the magnitudes of gradients.
inline constexpr float kMaxGrowScore = 3e38F;
/// Returns the score by which RigL chooses weights to grow.
HEARTH_FORMULA inline float grow_score_of(float gradient, bool pruned) {
  return pruned ? std::fabs(gradient) : kMaxGrowScore;
}

/// Number of values of a digit of a key in a radix selection.
inline constexpr size_t kKeyDigits = 256;
/// Key above those of all elements.
inline constexpr uint64_t kMaxKey = ~uint64_t{0};

/// Returns the key of a threshold: its upper and lower half (ops prune_threshold, prune_mask).
HEARTH_FORMULA inline uint64_t key_of_halves(const int32_t* halves) {
  return uint64_t{static_cast<uint32_t>(halves[0])} << 32 | static_cast<uint32_t>(halves[1]);
}
/// True if the bits of a key from bit `end` on are those of `prefix`.
HEARTH_FORMULA inline bool has_prefix(uint64_t key, uint64_t prefix, int end) {
  return end == 64 || (key ^ prefix) >> end == 0;
}

/// Returns the key for which exactly `rank` keys are smaller (radix selection). `count(prefix, shift,
/// histogram)` counts the keys with has_prefix(key, prefix, shift + 8) by their digit
/// `key >> shift & 255`, and adds the counts to the histogram.
uint64_t key_of_rank(int64_t rank, FunctionRef<void(uint64_t prefix, int shift, int64_t* histogram)> count);

/// Returns the key of the smallest score that is kept if `num_pruned` scores are pruned: elements with
/// smaller keys are pruned. kMaxKey if all are pruned.
uint64_t prune_threshold(std::span<const float> scores, bool by_value, int64_t num_pruned);

/// Sets the weights with the `num_pruned` smallest scores to zero; of equal scores, those with the lowest
/// index. `scores` has the length of `weights`.
void prune_smallest(std::span<float> weights, std::span<const float> scores, int64_t num_pruned);

}  // namespace hearth
