#pragma once

#include <span>

#include "io/weight_files.h"
#include "ops/matmul/quantized.h"

namespace hearth::hub {

/// Shows the dequantized weights of a quantized checkpoint (quantization_config in config.json, or GPTQ's and
/// AWQ's separate files) under transformers' names: FP8, compressed-tensors, GPTQ, AWQ and bitsandbytes. Does
/// nothing if `folder` has no quantized model. Throws a UserError for a format that is not supported.
void show_dequantized(io::WeightFiles& files, const fs::path& folder);

/// Decoder of a tensor that is stored in a format of ops::Quantization.
class StoredQuantization : public io::TensorDecoder {
 public:
  /// Copies the stored parts of the tensor to `parts` (ops::quantized_parts) if its format is `kind`, so that
  /// nothing is rounded. Returns false, with nothing written, if the format differs.
  virtual bool copy_parts(const io::TensorView& view, ops::Quantization kind,
                          std::span<void* const> parts) const = 0;
};

}  // namespace hearth::hub
