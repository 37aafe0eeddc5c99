#include "models/torch_dtype.h"

#include "base/error.h"

namespace hearth::models {

const char* torch_name(DType dtype) {
  HEARTH_CHECK(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16);
  return dtype == DType::f32 ? "float32" : dtype == DType::bf16 ? "bfloat16" : "float16";
}

std::optional<DType> dtype_of_torch_name(std::string_view name) {
  constexpr std::string_view kTorch = "torch.";
  if (name.starts_with(kTorch)) name.remove_prefix(kTorch.size());
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    if (name == torch_name(dtype)) return dtype;
  }
  return std::nullopt;
}

}  // namespace hearth::models
