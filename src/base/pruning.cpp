#include "base/pruning.h"

#include "base/error.h"

namespace hearth {

uint64_t key_of_rank(int64_t rank, FunctionRef<void(uint64_t prefix, int shift, int64_t* histogram)> count) {
  uint64_t prefix = 0;
  for (int shift = 56; shift >= 0; shift -= 8) {
    std::array<int64_t, kKeyDigits> histogram = {};
    count(prefix, shift, histogram.data());
    size_t digit = 0;
    while (rank >= histogram[digit]) {
      rank -= histogram[digit++];
      HEARTH_CHECK(digit < kKeyDigits);
    }
    prefix |= uint64_t{digit} << shift;
  }
  return prefix;
}

uint64_t prune_threshold(std::span<const float> scores, bool by_value, int64_t num_pruned) {
  HEARTH_CHECK(num_pruned >= 0 && num_pruned <= std::ssize(scores));
  if (num_pruned == std::ssize(scores)) return kMaxKey;
  return key_of_rank(num_pruned, [&](uint64_t prefix, int shift, int64_t* histogram) {
    for (size_t i = 0; i < scores.size(); ++i) {
      const uint64_t key = prune_key(scores[i], by_value, static_cast<uint32_t>(i));
      if (has_prefix(key, prefix, shift + 8)) ++histogram[key >> shift & (kKeyDigits - 1)];
    }
  });
}

void prune_smallest(std::span<float> weights, std::span<const float> scores, int64_t num_pruned) {
  const uint64_t kept = prune_threshold(scores, false, num_pruned);
  for (size_t i = 0; i < weights.size(); ++i)
    if (prune_key(scores[i], false, static_cast<uint32_t>(i)) < kept) weights[i] = 0;
}

}  // namespace hearth
