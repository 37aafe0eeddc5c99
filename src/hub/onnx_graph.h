#pragma once

#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "io/onnx_file.h"
#include "nn/module.h"

namespace hearth::hub {

/// What follows a linear layer and can be a part of it: y = scale x + shift for each channel.
struct OnnxAffine {
  std::vector<double> scale;  ///< empty: 1
  std::vector<double> shift;  ///< empty: 0
  ir::ValueId result = ir::kNone;
};

/// An ONNX graph that grows beside one of ours. Values of rank 4 are NCHW there, all others as here; the
/// first axis of each is the batch, of any size.
class OnnxGraph {
 public:
  /// Values of a weight or statistic in the order of memory.
  using ValuesOf = std::function<std::vector<float>(const nn::Tensor&)>;
  OnnxGraph(const ir::Graph& graph, std::span<const nn::Tensor> tensors, ValuesOf values_of);

  const ir::Graph& graph() const { return graph_; }
  const Shape& shape(ir::ValueId value) const { return graph_.type(value).shape; }
  /// The axis of ONNX that is the last one here.
  int64_t last_axis(ir::ValueId value) const;

  /// Gives an input or output its name, before anything is added.
  void set_name(ir::ValueId value, const std::string& name);
  /// The value's name; a weight becomes a constant.
  std::string name(ir::ValueId value);
  /// Adds a node; returns the name of what it makes.
  std::string add(const std::string& op, std::vector<std::string> inputs,
                  std::vector<std::pair<std::string, io::OnnxAttr>> attrs = {});
  /// The same for a node that makes a value of ours.
  void make(ir::ValueId value, const std::string& op, std::vector<std::string> inputs,
            std::vector<std::pair<std::string, io::OnnxAttr>> attrs = {});
  std::string whole_numbers(const std::vector<int64_t>& values);
  std::string numbers(const std::vector<float>& values, const std::vector<int64_t>& shape);

  /// Bias and batch norms that read nothing but this node: they are taken as done.
  OnnxAffine take_following(const ir::Node& node);
  /// A weight as a constant: each element times scale[channel_of(its place in memory)], unless scale is
  /// empty, in the order `layout`.
  std::string weight(ir::ValueId value, const nn::FileLayout& layout, const std::vector<double>& scale,
                     std::function<int64_t(int64_t)> channel_of);
  bool is_done(ir::NodeId node) const { return done_.contains(node); }

  const io::OnnxModel& model() const { return model_; }
  io::OnnxModel& model() { return model_; }
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
  std::set<std::string> taken_;
  std::set<ir::NodeId> done_;
  io::OnnxModel model_;
  std::vector<std::function<std::vector<std::byte>()>> sources_;
};

/// Adds what a node of ours is in ONNX. UserError naming an operation that has no counterpart.
void add_onnx_node(OnnxGraph& onnx, const ir::Node& node);

}  // namespace hearth::hub
