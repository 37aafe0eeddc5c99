#pragma once

#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "io/onnx_file.h"
#include "nn/int8.h"

namespace hearth::hub {

/// An affine map, y = scale x + shift for each channel, that follows a convolution or linear layer and is
/// folded into its weight and bias.
struct OnnxAffine {
  std::vector<double> scale;       ///< factor per channel; empty: 1
  std::vector<double> shift;       ///< summand per channel; empty: 0
  ir::ValueId result = ir::kNone;  ///< the value in Hearth's graph that equals y
};

/// Names of the constants of a uint8 grid (QuantizeLinear), and its scale.
struct OnnxGrid {
  float scale = 1;
  std::string scale_name, zero_point_name;
};

/// Builds an ONNX graph from Hearth's graph. Values of rank 4 are NCHW in ONNX and NHWC in Hearth; others
/// have the same layout in both. The first axis is the batch, with a dynamic size.
class OnnxGraph {
 public:
  /// Function that returns the elements of a weight or running statistic in Hearth's memory layout.
  using ValuesOf = std::function<std::vector<float>(const nn::Tensor&)>;
  OnnxGraph(const ir::Graph& graph, std::span<const nn::Tensor> tensors, ValuesOf values_of);

  const ir::Graph& graph() const { return graph_; }
  bool is_output(ir::ValueId value) const;
  const Shape& shape(ir::ValueId value) const { return graph_.type(value).shape; }
  /// Returns the axis in ONNX that corresponds to the last axis (channels) of a value in Hearth.
  int64_t last_axis(ir::ValueId value) const;

  /// Sets the ranges of rounded activations, by name.
  void set_ranges(std::map<std::string, nn::ActivationRange> ranges) { ranges_ = std::move(ranges); }
  /// Sets the ONNX name of an input or output. Call before nodes are added.
  void set_name(ir::ValueId value, const std::string& name);
  /// Returns the ONNX name of a value. For a weight that has no name yet, adds a constant to the ONNX graph.
  std::string name(ir::ValueId value);
  /// Adds an ONNX node with a new output and returns the name of the output.
  std::string add(const std::string& op, std::vector<std::string> inputs,
                  std::vector<std::pair<std::string, io::OnnxAttr>> attrs = {});
  /// Adds an ONNX node whose output corresponds to `value` of Hearth's graph.
  void make(ir::ValueId value, const std::string& op, std::vector<std::string> inputs,
            std::vector<std::pair<std::string, io::OnnxAttr>> attrs = {});
  /// Add an i64 or f32 constant and return its name.
  std::string integer_constant(const std::vector<int64_t>& values);
  std::string float_constant(const std::vector<float>& values, const std::vector<int64_t>& shape);
  std::string int32_constant(const std::vector<int32_t>& values);

  /// Combines the bias and batch norms that follow a node into one affine map. Only nodes whose input has no
  /// other reader are folded; is_done() is true for them afterwards.
  OnnxAffine fold_following(const ir::Node& node);
  /// Adds a weight as a constant in file order (`layout`) and returns its name. If `scale` is not empty,
  /// multiplies each element by scale[channel_of(i)], where i is the element's index in Hearth's memory
  /// layout.
  std::string weight(ir::ValueId value, const nn::FileLayout& layout, const std::vector<double>& scale,
                     std::function<int64_t(int64_t)> channel_of);
  /// Adds a weight that fake_quantize_groups rounds as int8 codes and a scale per output channel, both
  /// multiplied by `affine.scale`, and returns the name of the weight after DequantizeLinear. `layout`,
  /// `channel_of`: as for weight(); the first axis in files is the output channel. Sets `scales` to the
  /// scales of the channels. Where the affine map's shift is too large for int32 in steps of input_scale *
  /// scale, the scale is larger.
  std::string int8_weight(ir::ValueId value, const nn::FileLayout& layout, const OnnxAffine& affine,
                          const std::function<int64_t(int64_t)>& channel_of, float input_scale,
                          std::vector<float>& scales);
  /// True if the value is a weight that fake_quantize_groups has rounded.
  bool is_int8_weight(ir::ValueId value) const;
  /// Adds the grid of a node fake_quantize_groups that rounds an activation to a range.
  OnnxGrid grid(const ir::Node& node);
  /// Rounds the ONNX value of `value` to a grid: QuantizeLinear and DequantizeLinear. Nodes that are added
  /// later read the result.
  void round(ir::ValueId value, const std::string& in, const OnnxGrid& grid);
  /// Returns the grid of a value that round() has rounded; null if there is none.
  const OnnxGrid* grid_of(ir::ValueId value) const;
  /// True if fold_following() has folded the node into an earlier one.
  bool is_done(ir::NodeId node) const { return done_.contains(node); }

  const io::OnnxModel& model() const { return model_; }
  io::OnnxModel& model() { return model_; }
  /// Returns the bytes of model().tensors[tensor]. Those of a weight are read from its file at each call.
  std::vector<std::byte> bytes_of(size_t tensor) const { return sources_[tensor](); }

 private:
  const nn::Tensor& tensor_of(ir::ValueId value) const;
  std::vector<float> small_values(ir::ValueId value) const { return values_of_(tensor_of(value)); }
  void follow(const ir::Node& node, OnnxAffine& affine) const;
  std::string fresh(const std::string& stem);
  std::string constant(const std::string& name, DType dtype, const std::vector<int64_t>& shape,
                       std::function<std::vector<std::byte>()> bytes);

  const ir::Graph& graph_;
  std::map<ir::ValueId, const nn::Tensor*> tensors_;
  ValuesOf values_of_;
  std::vector<int> use_counts_;
  std::map<ir::ValueId, ir::NodeId> readers_;
  std::map<ir::ValueId, std::string> names_;
  std::map<ir::ValueId, std::string> plain_weights_;
  std::map<ir::ValueId, OnnxGrid> grids_;
  std::map<std::string, nn::ActivationRange> ranges_;
  std::set<std::string> used_names_;
  std::set<ir::NodeId> done_;
  io::OnnxModel model_;
  std::vector<std::function<std::vector<std::byte>()>> sources_;
};

/// Adds the ONNX nodes for a node of Hearth's graph. Throws a UserError for an op without an ONNX equivalent.
void add_onnx_node(OnnxGraph& onnx, const ir::Node& node);

}  // namespace hearth::hub
