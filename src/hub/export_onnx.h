#pragma once

#include <map>
#include <string>

#include "engine/objective.h"
#include "hub/model_folder.h"

namespace hearth::hub {

struct OnnxOptions {
  fs::path out;
  std::string name;  ///< of the model
  /// Strings that travel with it (metadata_props).
  std::map<std::string, std::string> metadata;
};

/// Writes what an objective exports (Objective::Graph::exported) as ONNX of opset 17: input `images` f32
/// [N, C, H, W], any number of them, normalized as in training; images that come out are NCHW too. Batch
/// norms are folded into the layer before them. One weight is in memory at a time. UserError for weights of
/// another model, or an operation that ONNX has no counterpart of; it leaves nothing behind.
void export_onnx(const engine::Objective& objective, const fs::path& weights, const OnnxOptions& options);

}  // namespace hearth::hub
