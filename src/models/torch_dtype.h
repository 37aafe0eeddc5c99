#pragma once

#include <optional>
#include <string_view>

#include "base/dtype.h"

namespace hearth::models {

/// torch's names of f32, bf16 and f16, as config.json has them ("bfloat16"; "torch.bfloat16" is read too).
const char* torch_name(DType dtype);
std::optional<DType> dtype_of_torch_name(std::string_view name);

}  // namespace hearth::models
