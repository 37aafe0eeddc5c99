#pragma once

#include <vector>

#include "io/safetensors.h"

namespace hearth::hub {

/// Returns elements [from, from + count) of a floating-point tensor as f32. fp8 values are multiplied by the
/// scale of the tensor.
std::vector<float> floats_of(const io::TensorView& view, int64_t from, int64_t count);
/// Returns all elements of a floating-point tensor as f32.
std::vector<float> floats_of(const io::TensorView& view);

}  // namespace hearth::hub
