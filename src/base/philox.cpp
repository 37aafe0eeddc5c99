#include "base/philox.h"

#include <bit>
#include <cmath>
#include <numbers>

namespace hearth {

uint32_t PhiloxSequence::next() {
  if (used_ == 4) {
    words_ = philox4x32(key_, counter_);
    ++counter_[0];
    used_ = 0;
  }
  return words_[static_cast<size_t>(used_++)];
}

float PhiloxSequence::normal() {
  const float radius = std::sqrt(-2.0F * std::log(1.0F - uniform()));
  return radius * std::cos(2.0F * std::numbers::pi_v<float> * uniform());
}

uint64_t permuted_index(uint64_t key, uint64_t count, uint64_t index) {
  const int half_bits = (std::bit_width(count - 1) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t value = index;
  do {
    uint64_t left = value >> half_bits;
    uint64_t right = value & mask;
    for (uint32_t round = 0; round < 6; ++round) {
      const auto words =
          philox4x32(key, {static_cast<uint32_t>(right), static_cast<uint32_t>(right >> 32), round, 0x5eed});
      const uint64_t mixed = left ^ (words[0] & mask);
      left = right;
      right = mixed;
    }
    value = (left << half_bits) | right;
  } while (value >= count);
  return value;
}

}  // namespace hearth
