#pragma once

#include <string>
#include <vector>

#include "base/qat_scheme.h"
#include "hub/model_folder.h"
#include "hub/shards.h"

namespace hearth::hub {

struct QuantizedResult {
  int64_t num_changed = 0;        ///< number of tensors that the adapter changed
  int64_t num_quantized = 0;      ///< number of quantized linear layers
  std::vector<std::string> kept;  ///< linear layers, except the head, that do not fit the scheme's group
};

/// Writes a language model, merged with its adapter, as a folder of compressed-tensors, which vLLM and
/// transformers load: pack-quantized (int4), int-quantized (w4a8, w8a8) or float-quantized (E4M3).
/// Embeddings, head and routers are not quantized. The values are those of quantization-aware training with
/// the same scheme. `rounding.scheme`: one with formats_of().weights. If it throws a UserError, the folder is
/// not created.
QuantizedResult export_quantized(const ModelFolder& model, const FolderOptions& options,
                                 const QatRounding& rounding);

}  // namespace hearth::hub
