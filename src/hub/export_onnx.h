#pragma once

#include <map>
#include <string>

#include "engine/objective.h"
#include "hub/model_folder.h"
#include "nn/int8.h"

namespace hearth::hub {

struct OnnxOptions {
  fs::path out;
  std::string name;  ///< name of the model
  /// Key-value pairs that are written to metadata_props of the ONNX model.
  std::map<std::string, std::string> metadata;
  /// Ranges of activations by name (nn::RoundedActivation::range), for int8 weights and uint8 activations
  /// (nn/int8.h); empty: f32.
  std::map<std::string, nn::ActivationRange> ranges;
};

/// Writes the exported outputs of an objective (Objective::Graph::exported) as ONNX, opset 17. Input:
/// `images`, f32 [N, C, H, W] with dynamic N, normalized as in training. Outputs of rank 4 are NCHW too.
/// Batch norms are folded into the preceding layer. Holds one weight in memory at a time. Throws a UserError,
/// without creating the file, if the weights belong to another model or an op has no ONNX equivalent.
void export_onnx(const engine::Objective& objective, const fs::path& weights, const OnnxOptions& options);

}  // namespace hearth::hub
