#pragma once

#include <string>
#include <vector>

#include "nn/module.h"

namespace hearth::nn {

/// Int8 arithmetic of an image model (ONNX export): convolutions and linear layers multiply weights in int8,
/// with a scale per output channel, by activations in uint8, with a range per tensor. Sums, biases and batch
/// norms are in f32, and so are the results of the last layers.

/// Minimum and maximum of an activation.
struct ActivationRange {
  float low = 0;
  float high = 0;
};

/// An activation that is rounded, and the name of its range in a graph.
struct RoundedActivation {
  ir::ValueId value = ir::kNone;
  std::string range;
};

/// True if a node returns elements of its input, so that its result is rounded as its input is.
bool selects_elements(const ir::Node& node);

/// Returns the activations that int8 arithmetic rounds: inputs of convolutions and linear layers, and of the
/// additions, concatenations, poolings and activation functions on the way to these layers. A batch norm or
/// relu that only its layer feeds works on the layer's unrounded sums, as in the integer kernels of
/// onnxruntime.
std::vector<RoundedActivation> activations_to_round(Builder& builder);

/// Inserts ops that round weights and activations (ops::fake_quantize_groups) into the evaluation graph of a
/// model. Ranges are states f32[2] of the graph, minimum and maximum. Call it after the last layer.
void round_to_int8(Builder& builder);

}  // namespace hearth::nn
