// Int8 weights and uint8 activations of an ONNX model, as pairs of QuantizeLinear and DequantizeLinear (QDQ).
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/group_format.h"
#include "hub/onnx_graph.h"

namespace hearth::hub {
namespace {

using ir::ValueId;

/// Max magnitude of a bias in steps of input scale * weight scale. The sum of products needs the rest of
/// int32.
constexpr double kMaxBiasSteps = 1 << 30;

using ChannelOf = std::function<int64_t(int64_t)>;

double factor_of(const OnnxAffine& affine, size_t channel) {
  return affine.scale.empty() ? 1.0 : affine.scale[channel];
}

/// Returns the largest magnitude of each channel of a weight.
std::vector<float> largest_of(const std::vector<float>& weight, size_t num_channels,
                              const ChannelOf& channel_of) {
  std::vector<float> largest(num_channels);
  for (size_t i = 0; i < weight.size(); ++i) {
    float& so_far = largest[static_cast<size_t>(channel_of(static_cast<int64_t>(i)))];
    so_far = std::max(so_far, std::fabs(weight[i]));
  }
  return largest;
}

/// Int8 codes of a channel: those of the trained weight, or, where the scale was enlarged for the bias, codes
/// of weight * factor.
struct ChannelCodes {
  GroupScale trained;
  double factor = 1;
  float scale = 1;  ///< scale in the ONNX model
  bool is_enlarged = false;

  int8_t code(float weight) const {
    const double code = is_enlarged
                            ? std::rint(static_cast<double>(weight) * factor / static_cast<double>(scale))
                            : static_cast<double>(group_code(GroupFormat::int8_channel, weight, trained));
    return static_cast<int8_t>(factor < 0 && !is_enlarged ? -code : code);
  }
};

ChannelCodes codes_of(float largest, double factor, double shift, float input_scale) {
  ChannelCodes codes{.trained = group_scale(GroupFormat::int8_channel, -largest, largest), .factor = factor};
  const double scale = static_cast<double>(codes.trained.scale) * std::fabs(factor);
  const double min_scale = std::fabs(shift) / (static_cast<double>(input_scale) * kMaxBiasSteps);
  codes.is_enlarged = !(static_cast<float>(scale) > 0) || scale < min_scale;
  codes.scale = static_cast<float>(std::max(scale, min_scale));
  if (!(codes.scale > 0)) codes.scale = 1;
  return codes;
}

}  // namespace

bool OnnxGraph::is_int8_weight(ValueId value) const {
  const ir::NodeId producer = graph_.value(value).producer;
  return producer != ir::kNone && graph_.node(producer).op->name == "fake_quantize_groups" &&
         tensors_.contains(graph_.node(producer).inputs[0]);
}

std::string OnnxGraph::int8_weight(ValueId value, const nn::FileLayout& layout, const OnnxAffine& affine,
                                   const ChannelOf& channel_of, float input_scale,
                                   std::vector<float>& scales) {
  const nn::Tensor& tensor = tensor_of(graph_.node(graph_.value(value).producer).inputs[0]);
  const std::vector<float> largest =
      largest_of(values_of_(tensor), static_cast<size_t>(layout.file_shape[0]), channel_of);
  std::vector<ChannelCodes> channels;
  for (size_t c = 0; c < largest.size(); ++c) {
    const double shift = affine.shift.empty() ? 0.0 : affine.shift[c];
    channels.push_back(codes_of(largest[c], factor_of(affine, c), shift, input_scale));
    scales.push_back(channels.back().scale);
  }
  const auto bytes = [this, &tensor, layout, channels, channel_of] {
    std::vector<float> memory = values_of_(tensor);
    for (size_t i = 0; i < memory.size(); ++i)
      memory[i] = channels[static_cast<size_t>(channel_of(static_cast<int64_t>(i)))].code(memory[i]);
    std::vector<float> file(memory.size());
    nn::to_file_order(layout, memory.data(), file.data());
    std::vector<std::byte> made(file.size());
    std::ranges::transform(file, made.begin(),
                           [](float code) { return static_cast<std::byte>(static_cast<int8_t>(code)); });
    return made;
  };
  const std::vector<int64_t> shape(layout.file_shape.begin(), layout.file_shape.end());
  const std::string codes = constant(tensor.name, DType::i8, shape, bytes);
  const std::string zeros = constant("zero_points", DType::i8, {std::ssize(scales)},
                                     [count = scales.size()] { return std::vector<std::byte>(count); });
  return add("DequantizeLinear", {codes, float_constant(scales, {std::ssize(scales)}), zeros},
             {{"axis", int64_t{0}}});
}

OnnxGrid OnnxGraph::grid(const ir::Node& node) {
  const nn::ActivationRange range = ranges_.at(graph_.value(node.inputs.back()).name);
  // An activation that is always 0 has an empty range.
  const bool is_empty = range.low == range.high;
  const GroupScale grid = is_empty ? GroupScale{.scale = 1, .zero = -128}
                                   : group_scale(GroupFormat::int8_affine, range.low, range.high);
  // ONNX's codes are those of int8_affine plus 128.
  const auto zero_point = static_cast<std::byte>(static_cast<uint8_t>(grid.zero + 128));
  return {.scale = grid.scale,
          .scale_name = float_constant({grid.scale}, {}),
          .zero_point_name = constant("zero_point", DType::u8, {},
                                      [zero_point] { return std::vector<std::byte>{zero_point}; })};
}

void OnnxGraph::round(ValueId value, const std::string& in, const OnnxGrid& grid) {
  const std::string codes = add("QuantizeLinear", {in, grid.scale_name, grid.zero_point_name});
  names_[value] = add("DequantizeLinear", {codes, grid.scale_name, grid.zero_point_name});
  grids_[value] = grid;
}

const OnnxGrid* OnnxGraph::grid_of(ValueId value) const {
  const auto found = grids_.find(value);
  return found == grids_.end() ? nullptr : &found->second;
}

}  // namespace hearth::hub
