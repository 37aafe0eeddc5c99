#pragma once

#include <optional>
#include <string_view>

#include "base/dtype.h"

namespace hearth::models {

/// Returns torch's name of f32, bf16 or f16, as in config.json ("bfloat16").
const char* torch_name(DType dtype);
/// Returns the dtype of a torch name; accepts "torch.bfloat16" too.
std::optional<DType> dtype_of_torch_name(std::string_view name);

}  // namespace hearth::models
