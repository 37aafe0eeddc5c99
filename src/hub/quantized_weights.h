#pragma once

#include <span>

#include "io/weight_files.h"
#include "ops/matmul/quantized.h"

namespace hearth::hub {

/// Replaces the tensors of a quantized checkpoint (quantization_config in config.json, or a separate file of
/// GPTQ or AWQ) by views with transformers' names that are dequantized when they are read: FP8,
/// compressed-tensors, GPTQ, AWQ and bitsandbytes. Does nothing if the model in `folder` is not quantized.
/// Throws a UserError for a format that is not supported.
void show_dequantized(io::WeightFiles& files, const fs::path& folder);

/// Decoder of a tensor that is stored in a format of ops::Quantization.
class StoredQuantization : public io::TensorDecoder {
 public:
  /// Copies the stored parts of the tensor to `parts` (ops::quantized_parts) without rounding, if its format
  /// is `kind`. Otherwise returns false and writes nothing.
  virtual bool copy_parts(const io::TensorView& view, ops::Quantization kind,
                          std::span<void* const> parts) const = 0;
};

}  // namespace hearth::hub
