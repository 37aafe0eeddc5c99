#pragma once

#include <vector>

#include "io/safetensors.h"

namespace hearth::hub {

/// Elements [from, from + count) of a floating tensor of a file, times its scale where it is in 8 bits.
std::vector<float> floats_of(const io::TensorView& view, int64_t from, int64_t count);
/// All of them.
std::vector<float> floats_of(const io::TensorView& view);

}  // namespace hearth::hub
