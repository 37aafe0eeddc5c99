#include "hub/export_onnx.h"

#include <algorithm>

#include "base/error.h"
#include "hub/onnx_graph.h"
#include "hub/weights.h"

namespace hearth::hub {
namespace {

/// Returns the ONNX description of an input or output of shape `shape` in Hearth: the first axis is the
/// dynamic batch axis, images are NCHW.
io::OnnxValue described(const std::string& name, const Shape& shape) {
  std::vector<int64_t> axes(shape.begin(), shape.end());
  if (axes.size() == 4) std::rotate(axes.begin() + 1, axes.end() - 1, axes.end());
  axes[0] = -1;
  return {.name = name, .shape = axes};
}

}  // namespace

void export_onnx(const engine::Objective& objective, const fs::path& weights, const OnnxOptions& options) {
  ir::Graph graph;
  nn::Builder builder(graph, nn::Builder::Mode::eval, 0);
  const engine::Objective::Graph built = objective.build(builder, {.num_rows = 1});
  if (built.exported.empty())
    user_error(
        "{} cannot be exported to ONNX (the only supported detector is YOLOX); try --format hf, a folder "
        "with model.safetensors under torchvision's names",
        options.name);
  if (!options.ranges.empty()) nn::round_to_int8(builder);
  for (const auto& [name, value] : built.exported) graph.outputs.push_back(value);
  graph.remove_dead_nodes();

  const io::WeightFiles files(weights);
  OnnxGraph onnx(graph, builder.tensors(),
                 [&](const nn::Tensor& tensor) { return memory_values(files, weights, tensor); });
  onnx.set_ranges(options.ranges);
  io::OnnxModel& model = onnx.model();
  model.name = options.name;
  model.metadata = options.metadata;
  model.inputs = {described("images", graph.type(built.inputs[0]).shape)};
  onnx.set_name(built.inputs[0], "images");
  for (const auto& [name, value] : built.exported) {
    onnx.set_name(value, name);
    model.outputs.push_back(described(name, graph.type(value).shape));
  }
  for (size_t node = 0; node < graph.nodes.size(); ++node)
    if (!onnx.is_done(static_cast<ir::NodeId>(node))) add_onnx_node(onnx, graph.nodes[node]);
  replace_file(options.out, [&](const fs::path& temporary) {
    io::write_onnx(temporary, model, [&](size_t tensor) { return onnx.bytes_of(tensor); });
  });
}

}  // namespace hearth::hub
