#include "hub/export_onnx.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "hub/onnx_graph.h"
#include "hub/weights.h"

namespace hearth::hub {
namespace {

/// Reads a tensor from the weight files and converts it to Hearth's memory layout.
std::vector<float> memory_values(const io::WeightFiles& files, const fs::path& path,
                                 const nn::Tensor& tensor) {
  const io::TensorView* found = files.find(tensor.name);
  if (found == nullptr || found->shape != tensor.layout.file_shape || !is_floating(found->dtype) ||
      dtype_bytes(found->dtype) < 2) {
    user_error("{}: expected '{}' with shape {}, {}; try the recipe that these weights were trained with",
               path.string(), tensor.name, to_string(tensor.layout.file_shape),
               found == nullptr ? "which is missing" : "found shape " + to_string(found->shape));
  }
  const std::vector<float> file = floats_of(*found, 0, found->shape.num_elements());
  files.release(*found);
  if (!std::ranges::all_of(file, [](float value) { return std::isfinite(value); }))
    refuse_not_finite(path, tensor.name);
  std::vector<float> memory(file.size());
  nn::from_file_order(tensor.layout, file.data(), memory.data());
  return memory;
}

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
  for (const auto& [name, value] : built.exported) graph.outputs.push_back(value);
  graph.remove_dead_nodes();

  const io::WeightFiles files(weights);
  OnnxGraph onnx(graph, builder.tensors(),
                 [&](const nn::Tensor& tensor) { return memory_values(files, weights, tensor); });
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
