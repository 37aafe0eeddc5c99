#include "hub/onnx_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace hearth::hub {
namespace {

using ir::ValueId;

template <typename T>
std::vector<std::byte> to_bytes(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

std::vector<int64_t> axes_of(const Shape& shape) { return {shape.begin(), shape.end()}; }

}  // namespace

OnnxGraph::OnnxGraph(const ir::Graph& graph, std::span<const nn::Tensor> tensors, ValuesOf values_of)
    : graph_(graph), values_of_(std::move(values_of)), use_counts_(graph.use_counts()) {
  for (const nn::Tensor& tensor : tensors) tensors_[tensor.value] = &tensor;
  for (size_t node = 0; node < graph.nodes.size(); ++node) {
    for (const ValueId input : graph.nodes[node].inputs) readers_[input] = static_cast<ir::NodeId>(node);
  }
}

bool OnnxGraph::is_output(ValueId value) const { return std::ranges::count(graph_.outputs, value) > 0; }

int64_t OnnxGraph::last_axis(ValueId value) const {
  const int64_t rank = shape(value).rank();
  return rank == 4 ? 1 : rank - 1;
}

std::string OnnxGraph::fresh(const std::string& stem) {
  std::string made = stem;
  for (int64_t number = 1; !used_names_.insert(made).second; ++number)
    made = fmt::format("{}:{}", stem, number);
  return made;
}

void OnnxGraph::set_name(ValueId value, const std::string& name) {
  HEARTH_CHECK(used_names_.insert(name).second);
  names_[value] = name;
}

const nn::Tensor& OnnxGraph::tensor_of(ValueId value) const {
  const auto found = tensors_.find(value);
  if (found == tensors_.end())
    user_error("cannot export '{}' to ONNX: expected a weight of the model", graph_.value(value).name);
  return *found->second;
}

std::string OnnxGraph::constant(const std::string& name, DType dtype, const std::vector<int64_t>& shape,
                                std::function<std::vector<std::byte>()> bytes) {
  model_.tensors.push_back({.name = fresh(name), .dtype = dtype, .shape = shape});
  sources_.push_back(std::move(bytes));
  return model_.tensors.back().name;
}

std::string OnnxGraph::name(ValueId value) {
  const auto found = names_.find(value);
  if (found != names_.end()) return found->second;
  const nn::Tensor& tensor = tensor_of(value);
  const std::string made = constant(tensor.name, DType::f32, axes_of(shape(value)),
                                    [this, &tensor] { return to_bytes(values_of_(tensor)); });
  return names_[value] = made;
}

std::string OnnxGraph::add(const std::string& op, std::vector<std::string> inputs,
                           std::vector<std::pair<std::string, io::OnnxAttr>> attrs) {
  const std::string made = fresh(op);
  model_.nodes.push_back(
      {.op = op, .inputs = std::move(inputs), .outputs = {made}, .attrs = std::move(attrs)});
  return made;
}

void OnnxGraph::make(ValueId value, const std::string& op, std::vector<std::string> inputs,
                     std::vector<std::pair<std::string, io::OnnxAttr>> attrs) {
  const ir::NodeId producer = graph_.value(value).producer;
  if (!names_.contains(value)) names_[value] = fresh(graph_.node(producer).name);
  model_.nodes.push_back(
      {.op = op, .inputs = std::move(inputs), .outputs = {names_[value]}, .attrs = std::move(attrs)});
}

std::string OnnxGraph::integer_constant(const std::vector<int64_t>& values) {
  return constant("constant", DType::i64, {std::ssize(values)}, [values] { return to_bytes(values); });
}

std::string OnnxGraph::float_constant(const std::vector<float>& values, const std::vector<int64_t>& shape) {
  return constant("constant", DType::f32, shape, [values] { return to_bytes(values); });
}

std::string OnnxGraph::int32_constant(const std::vector<int32_t>& values) {
  return constant("constant", DType::i32, {std::ssize(values)}, [values] { return to_bytes(values); });
}

void OnnxGraph::follow(const ir::Node& node, OnnxAffine& affine) const {
  // The bias of bias_add, or the weight of a batch norm.
  const std::vector<float> per_channel = small_values(node.inputs[1]);
  affine.shift.resize(per_channel.size());
  if (node.op->name == "bias_add") {
    for (size_t c = 0; c < per_channel.size(); ++c) affine.shift[c] += static_cast<double>(per_channel[c]);
    return;
  }
  affine.scale.resize(per_channel.size(), 1.0);
  const std::vector<float> bias = small_values(node.inputs[2]), mean = small_values(node.inputs[3]),
                           variance = small_values(node.inputs[4]);
  for (size_t c = 0; c < per_channel.size(); ++c) {
    const double factor = static_cast<double>(per_channel[c]) /
                          std::sqrt(static_cast<double>(variance[c]) + node.attrs.real("eps"));
    affine.scale[c] *= factor;
    affine.shift[c] =
        (affine.shift[c] - static_cast<double>(mean[c])) * factor + static_cast<double>(bias[c]);
  }
}

OnnxAffine OnnxGraph::fold_following(const ir::Node& node) {
  OnnxAffine affine{.result = node.outputs[0]};
  while (use_counts_[ir::index(affine.result)] == 1 && readers_.contains(affine.result)) {
    const ir::NodeId reader = readers_[affine.result];
    const ir::Node& next = graph_.node(reader);
    const bool is_affine = next.op->name == "bias_add" || next.op->name == "batch_norm_infer";
    if (!is_affine || next.inputs[0] != affine.result) break;
    follow(next, affine);
    done_.insert(reader);
    affine.result = next.outputs[0];
  }
  return affine;
}

std::string OnnxGraph::weight(ValueId value, const nn::FileLayout& layout, const std::vector<double>& scale,
                              std::function<int64_t(int64_t)> channel_of) {
  if (scale.empty() && plain_weights_.contains(value)) return plain_weights_[value];
  const nn::Tensor& tensor = tensor_of(value);
  const auto bytes = [this, &tensor, layout, scale, channel_of = std::move(channel_of)] {
    std::vector<float> memory = values_of_(tensor);
    for (size_t i = 0; !scale.empty() && i < memory.size(); ++i) {
      const auto channel = static_cast<size_t>(channel_of(static_cast<int64_t>(i)));
      memory[i] = static_cast<float>(static_cast<double>(memory[i]) * scale[channel]);
    }
    std::vector<float> file(memory.size());
    nn::to_file_order(layout, memory.data(), file.data());
    return to_bytes(file);
  };
  const std::string made = constant(tensor.name, DType::f32, axes_of(layout.file_shape), bytes);
  if (scale.empty()) plain_weights_[value] = made;
  return made;
}

}  // namespace hearth::hub
