#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace hearth::passes {

/// Index of a channel set. A set is the channels of several values that can only be removed together.
using ChannelSet = int32_t;
/// The set of all channels that cannot be removed, such as inputs and logits.
inline constexpr ChannelSet kFixedChannels = 0;

/// Layer with a weight that computes channels: a convolution or linear layer.
struct ChannelLayer {
  std::string name;  ///< "layer1.0.conv1"
  ir::ValueId weight = ir::kNone;
  int axis = 0;  ///< output axis of the weight
};

/// Channel sets that are computed by the same layers, one channel per layer and set. The number of sets is
/// the group's width. Removing any set leaves a smaller dense model.
struct ChannelGroup {
  /// Layers all of whose output channels are in the group, in graph order; at least one.
  std::vector<std::string> layers;
  std::vector<ChannelSet> sets;
  const std::string& name() const { return layers[0]; }
};

/// The coupled channels of a model's graph.
struct Channels {
  /// Sets of each channel, by value, axis and index. Weights are followed along all axes, other values along
  /// the last one. Empty: none of the axis can be removed.
  std::vector<std::vector<std::vector<ChannelSet>>> axes;
  int64_t num_sets = 0;
  std::vector<ChannelLayer> layers;  ///< in graph order
  std::vector<ChannelGroup> groups;  ///< in the order of their first layers

  /// Returns the group with a layer of this name; null if there is none.
  const ChannelGroup* find(std::string_view layer) const;
};

/// Finds the coupled channels of a graph before any pass. Joins the channels that an op combines: operands of
/// additions and gates, input and output of depthwise convolutions, weights of norms, query heads and their
/// key and value head. An op that it does not know fixes the channels of its inputs and outputs. A removable
/// channel whose weights, bias and norm weights are 0 has no effect on any output.
Channels find_channels(const ir::Graph& graph);

/// Removes the sets with keep[set] == 0 from all shapes and attributes of the graph. Ids stay the same.
/// Supports graphs of image models.
void remove_channels(ir::Graph& graph, const Channels& channels, std::span<const char> keep);

}  // namespace hearth::passes
