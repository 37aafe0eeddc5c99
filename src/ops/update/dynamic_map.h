#pragma once

#include <array>
#include <cstdint>

namespace hearth::ops {

/// The 256 values of the dynamic 8-bit type, rising: fractions evenly spread over each of seven powers of
/// ten, twice as many for each greater one, with 0 and 1 (arXiv 1511.04561 and 2110.02861; the layout is that
/// of bitsandbytes' create_dynamic_map). Signed: both signs, 0 at index 127; else 0 at index 0.
using DynamicMap = std::array<float, 256>;
const DynamicMap& dynamic_map(bool with_sign);

/// codes[i] = index of the value nearest to factor * in[i].
void quantise_dynamic(bool with_sign, const float* in, float factor, uint8_t* codes, int64_t count);
/// Moves signed codes that lost the sign of in[i] to the neighbour that has it; a small
/// positive number may be 0, as in bitsandbytes' optimisers.
void keep_signs(const float* in, uint8_t* codes, int64_t count);

}  // namespace hearth::ops
