// ONNX equivalents of the ops of image models. To add an op, write its function and add a row to kOps.

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "hub/onnx_graph.h"

namespace hearth::hub {
namespace {

using ir::Node;
using ir::ValueId;
using Axes = std::vector<int64_t>;

const Axes kToNhwc = {0, 2, 3, 1}, kToNchw = {0, 3, 1, 2};

std::vector<float> rounded(const std::vector<double>& values) {
  std::vector<float> made;
  for (const double value : values) made.push_back(static_cast<float>(value));
  return made;
}

/// True if an array of shape [N, H, W, C] has the same element order in NHWC and NCHW.
bool is_same_in_both_orders(const Shape& shape) { return shape[3] == 1 || shape[1] * shape[2] == 1; }

nn::FileLayout file_layout(const Shape& memory, std::vector<int> axes) {
  Axes file;
  for (const int axis : axes) file.push_back(memory[axis]);
  return {.memory_view = memory,
          .file_axes = std::move(axes),
          .file_shape = Shape(std::span<const int64_t>(file))};
}

/// Returns the ONNX attributes that Conv and ConvTranspose have in common.
std::vector<std::pair<std::string, io::OnnxAttr>> conv_attrs(const Node& node, const Shape& weight) {
  const int64_t stride = node.attrs.integer_or("stride", 1), padding = node.attrs.integer_or("padding", 0);
  const int64_t dilation = node.attrs.integer_or("dilation", 1);
  return {{"kernel_shape", Axes{weight[0], weight[1]}},
          {"strides", Axes{stride, stride}},
          {"pads", Axes(4, padding)},
          {"dilations", Axes{dilation, dilation}},
          {"group", node.attrs.integer_or("groups", 1)}};
}

/// Returns the inputs of a linear layer: input, weight and, if the affine map has a shift, bias.
std::vector<std::string> with_bias(OnnxGraph& onnx, const Node& node, const std::string& weight,
                                   const OnnxAffine& affine) {
  std::vector<std::string> inputs = {onnx.name(node.inputs[0]), weight};
  if (!affine.shift.empty())
    inputs.push_back(onnx.float_constant(rounded(affine.shift), {std::ssize(affine.shift)}));
  return inputs;
}

/// Returns the inputs of a layer with an int8 weight: input, weight and, if the affine map has a shift, an
/// int32 bias in steps of input scale * weight scale.
std::vector<std::string> int8_inputs(OnnxGraph& onnx, const Node& node, const nn::FileLayout& layout,
                                     const OnnxAffine& affine,
                                     const std::function<int64_t(int64_t)>& channel_of) {
  const OnnxGrid* const grid = onnx.grid_of(node.inputs[0]);
  HEARTH_CHECK(grid != nullptr);
  std::vector<float> scales;
  std::vector<std::string> inputs = {
      onnx.name(node.inputs[0]),
      onnx.int8_weight(node.inputs[1], layout, affine, channel_of, grid->scale, scales)};
  if (affine.shift.empty()) return inputs;
  std::vector<int32_t> codes;
  for (size_t c = 0; c < scales.size(); ++c) {
    scales[c] *= grid->scale;
    codes.push_back(static_cast<int32_t>(std::rint(affine.shift[c] / static_cast<double>(scales[c]))));
  }
  inputs.push_back(onnx.add("DequantizeLinear",
                            {onnx.int32_constant(codes), onnx.float_constant(scales, {std::ssize(scales)})},
                            {{"axis", int64_t{0}}}));
  return inputs;
}

/// Returns the inputs of a layer, with its bias and batch norms folded. `channel_of`: see OnnxGraph::weight.
std::vector<std::string> layer_inputs(OnnxGraph& onnx, const Node& node, const nn::FileLayout& layout,
                                      const OnnxAffine& affine,
                                      const std::function<int64_t(int64_t)>& channel_of) {
  if (onnx.is_int8_weight(node.inputs[1])) return int8_inputs(onnx, node, layout, affine, channel_of);
  return with_bias(onnx, node, onnx.weight(node.inputs[1], layout, affine.scale, channel_of), affine);
}

void conv(OnnxGraph& onnx, const Node& node) {
  const Shape memory = onnx.shape(node.inputs[1]);
  const OnnxAffine affine = onnx.fold_following(node);
  const auto inputs = layer_inputs(onnx, node, file_layout(memory, {3, 2, 0, 1}), affine,
                                   [channels = memory[3]](int64_t index) { return index % channels; });
  onnx.make(affine.result, "Conv", inputs, conv_attrs(node, memory));
}

void conv_transpose(OnnxGraph& onnx, const Node& node) {
  const Shape memory = onnx.shape(node.inputs[1]), in = onnx.shape(node.inputs[0]);
  const OnnxAffine affine = onnx.fold_following(node);
  const int64_t out_per_group = memory[2], read = memory[3];
  const int64_t in_per_group = read / node.attrs.integer_or("groups", 1);
  const std::string weight =
      onnx.weight(node.inputs[1], file_layout(memory, {3, 2, 0, 1}), affine.scale, [=](int64_t index) {
        return index % read / in_per_group * out_per_group + index / read % out_per_group;
      });
  auto attrs = conv_attrs(node, memory);
  const auto rest = [&](const char* made, int axis) {
    const int64_t stride = node.attrs.integer_or("stride", 1), padding = node.attrs.integer_or("padding", 0);
    const int64_t span = (memory[axis] - 1) * node.attrs.integer_or("dilation", 1) + 1;
    return node.attrs.integer(made) - ((in[axis + 1] - 1) * stride + span - 2 * padding);
  };
  attrs.emplace_back("output_padding", Axes{rest("in_h", 0), rest("in_w", 1)});
  onnx.make(affine.result, "ConvTranspose", with_bias(onnx, node, weight, affine), attrs);
}

void matmul(OnnxGraph& onnx, const Node& node) {
  const Shape memory = onnx.shape(node.inputs[1]);
  HEARTH_CHECK(node.attrs.integer("transpose_a") == 0);
  const bool transposes = node.attrs.integer("transpose_b") != 0;
  const OnnxAffine affine = onnx.fold_following(node);
  const auto inputs = layer_inputs(onnx, node, file_layout(memory, {0, 1}), affine, [=](int64_t index) {
    return transposes ? index / memory[1] : index % memory[1];
  });
  onnx.make(affine.result, "Gemm", inputs, {{"transB", int64_t{transposes}}});
}

void bias_add(OnnxGraph& onnx, const Node& node) {
  std::string bias = onnx.name(node.inputs[1]);
  if (onnx.shape(node.inputs[0]).rank() == 4)
    bias = onnx.add("Reshape", {bias, onnx.integer_constant({1, -1, 1, 1})});
  onnx.make(node.outputs[0], "Add", {onnx.name(node.inputs[0]), bias});
}

void batch_norm(OnnxGraph& onnx, const Node& node) {
  std::vector<std::string> inputs;
  for (const ValueId input : node.inputs) inputs.push_back(onnx.name(input));
  onnx.make(node.outputs[0], "BatchNormalization", inputs,
            {{"epsilon", static_cast<float>(node.attrs.real("eps"))}});
}

/// Exports a group norm. Opset 17 has no such op, so this adds an InstanceNormalization over groups instead
/// of channels, followed by scale and shift.
void group_norm(OnnxGraph& onnx, const Node& node) {
  const Shape shape = onnx.shape(node.inputs[0]);
  const int64_t groups = node.attrs.integer("groups");
  const auto all = [&](float value) {
    return onnx.float_constant(std::vector<float>(static_cast<size_t>(groups), value), {groups});
  };
  const std::string grouped =
      onnx.add("Reshape", {onnx.name(node.inputs[0]), onnx.integer_constant({0, groups, -1})});
  const std::string normal = onnx.add("InstanceNormalization", {grouped, all(1), all(0)},
                                      {{"epsilon", static_cast<float>(node.attrs.real("eps"))}});
  Axes whole = {0, shape.back(), 1, 1};
  for (int axis = 1; axis + 1 < shape.rank(); ++axis) whole[static_cast<size_t>(axis) + 1] = shape[axis];
  const std::string back = onnx.add("Reshape", {normal, onnx.integer_constant(whole)});
  const auto column = [&](size_t input) {
    return onnx.add("Reshape", {onnx.name(node.inputs[input]), onnx.integer_constant({1, -1, 1, 1})});
  };
  onnx.make(node.outputs[0], "Add", {onnx.add("Mul", {back, column(1)}), column(2)});
}

/// Exports an op that exists in ONNX with the same inputs and semantics, under the name kName.
template <const char* const& kName>
void same(OnnxGraph& onnx, const Node& node) {
  std::vector<std::string> inputs;
  for (const ValueId input : node.inputs) inputs.push_back(onnx.name(input));
  onnx.make(node.outputs[0], kName, inputs);
}
constexpr const char* kAdd = "Add";
constexpr const char* kSub = "Sub";
constexpr const char* kMul = "Mul";
constexpr const char* kDiv = "Div";
constexpr const char* kRelu = "Relu";
constexpr const char* kSigmoid = "Sigmoid";
constexpr const char* kExp = "Exp";
constexpr const char* kHardSwish = "HardSwish";
constexpr const char* kIdentity = "Identity";

void silu(OnnxGraph& onnx, const Node& node) {
  const std::string in = onnx.name(node.inputs[0]);
  onnx.make(node.outputs[0], "Mul", {in, onnx.add("Sigmoid", {in})});
}

void hardsigmoid(OnnxGraph& onnx, const Node& node) {
  onnx.make(node.outputs[0], "HardSigmoid", {onnx.name(node.inputs[0])},
            {{"alpha", 1.0F / 6}, {"beta", 0.5F}});
}

void scale(OnnxGraph& onnx, const Node& node) {
  const auto factor = static_cast<float>(node.attrs.real("factor"));
  onnx.make(node.outputs[0], "Mul", {onnx.name(node.inputs[0]), onnx.float_constant({factor}, {})});
}

void add_scalar(OnnxGraph& onnx, const Node& node) {
  const auto value = static_cast<float>(node.attrs.real("value"));
  onnx.make(node.outputs[0], "Add", {onnx.name(node.inputs[0]), onnx.float_constant({value}, {})});
}

void max_pool(OnnxGraph& onnx, const Node& node) {
  const int64_t kernel = node.attrs.integer("kernel"), stride = node.attrs.integer("stride");
  onnx.make(node.outputs[0], "MaxPool", {onnx.name(node.inputs[0])},
            {{"kernel_shape", Axes{kernel, kernel}},
             {"strides", Axes{stride, stride}},
             {"pads", Axes(4, node.attrs.integer_or("padding", 0))}});
}

void global_avg_pool(OnnxGraph& onnx, const Node& node) {
  const std::string mean = onnx.add("GlobalAveragePool", {onnx.name(node.inputs[0])});
  onnx.make(node.outputs[0], "Flatten", {mean});
}

void scale_channels(OnnxGraph& onnx, const Node& node) {
  const std::string factors =
      onnx.add("Reshape",
               {onnx.name(node.inputs[1]), onnx.integer_constant({0, onnx.shape(node.inputs[1])[1], 1, 1})});
  onnx.make(node.outputs[0], "Mul", {onnx.name(node.inputs[0]), factors});
}

void concat(OnnxGraph& onnx, const Node& node) {
  std::vector<std::string> inputs;
  for (const ValueId input : node.inputs) inputs.push_back(onnx.name(input));
  onnx.make(node.outputs[0], "Concat", inputs, {{"axis", onnx.last_axis(node.outputs[0])}});
}

/// Returns the inputs of the ONNX op Slice for elements [begin, end) along an axis.
std::vector<std::string> slice_inputs(OnnxGraph& onnx, const std::string& in, int64_t begin, int64_t end,
                                      int64_t axis) {
  return {in, onnx.integer_constant({begin}), onnx.integer_constant({end}), onnx.integer_constant({axis})};
}

void slice(OnnxGraph& onnx, const Node& node) {
  const int64_t begin = node.attrs.integer("begin");
  onnx.make(node.outputs[0], "Slice",
            slice_inputs(onnx, onnx.name(node.inputs[0]), begin, begin + node.attrs.integer("count"),
                         onnx.last_axis(node.inputs[0])));
}

void softmax(OnnxGraph& onnx, const Node& node) {
  onnx.make(node.outputs[0], "Softmax", {onnx.name(node.inputs[0])},
            {{"axis", onnx.last_axis(node.inputs[0])}});
}

/// Exports a reshape. Hearth reshapes in NHWC element order, so NCHW values are transposed before and after.
/// The batch axis must not change.
void reshape(OnnxGraph& onnx, const Node& node) {
  const Shape in = onnx.shape(node.inputs[0]), out = onnx.shape(node.outputs[0]);
  if (in.rank() == 0 || out.rank() == 0 || in[0] != out[0])
    user_error("cannot export '{}' to ONNX: a reshape that changes the batch axis is not supported",
               node.name);
  std::string from = onnx.name(node.inputs[0]);
  if (in.rank() == 4 && !is_same_in_both_orders(in))
    from = onnx.add("Transpose", {from}, {{"perm", kToNhwc}});
  Axes axes(out.begin(), out.end());
  axes[0] = 0;
  if (out.rank() == 4 && is_same_in_both_orders(out)) axes = {0, out[3], out[1], out[2]};
  const std::vector<std::string> inputs = {from, onnx.integer_constant(axes)};
  if (out.rank() != 4 || is_same_in_both_orders(out)) return onnx.make(node.outputs[0], "Reshape", inputs);
  onnx.make(node.outputs[0], "Transpose", {onnx.add("Reshape", inputs)}, {{"perm", kToNchw}});
}

void resize(OnnxGraph& onnx, const Node& node) {
  const Shape out = onnx.shape(node.outputs[0]);
  const std::string in = onnx.name(node.inputs[0]);
  const std::string batch = onnx.add("Shape", {in}, {{"start", int64_t{0}}, {"end", int64_t{1}}});
  const std::string sizes =
      onnx.add("Concat", {batch, onnx.integer_constant({out[3], out[1], out[2]})}, {{"axis", int64_t{0}}});
  const bool linear = node.attrs.integer("linear") != 0;
  const std::string places = !linear                                          ? "asymmetric"
                             : node.attrs.integer_or("align_corners", 0) != 0 ? "align_corners"
                                                                              : "half_pixel";
  std::vector<std::pair<std::string, io::OnnxAttr>> attrs = {
      {"mode", std::string(linear ? "linear" : "nearest")}, {"coordinate_transformation_mode", places}};
  if (!linear) attrs.emplace_back("nearest_mode", std::string("floor"));
  onnx.make(node.outputs[0], "Resize", {in, "", "", sizes}, std::move(attrs));
}

/// Cell coordinates (x, y pairs) and stride in pixels of each YOLOX anchor, finest level first.
struct Cells {
  std::vector<float> corners, strides;
};
Cells cells_of(const Node& node) {
  Cells made;
  for (const int64_t stride : node.attrs.list("strides")) {
    const int64_t columns = node.attrs.integer("width") / stride;
    for (int64_t i = 0; i < node.attrs.integer("height") / stride * columns; ++i) {
      made.corners.push_back(static_cast<float>(i % columns));
      made.corners.push_back(static_cast<float>(i / columns));
      made.strides.push_back(static_cast<float>(stride));
    }
  }
  return made;
}

void yolox_decode(OnnxGraph& onnx, const Node& node) {
  const Cells cells = cells_of(node);
  const int64_t anchors = std::ssize(cells.strides), width = onnx.shape(node.inputs[0])[2];
  const std::string raw = onnx.name(node.inputs[0]);
  const auto part = [&](int64_t begin, int64_t end) {
    return onnx.add("Slice", slice_inputs(onnx, raw, begin, end, 2));
  };
  const std::string corners = onnx.float_constant(cells.corners, {1, anchors, 2});
  const std::string strides = onnx.float_constant(cells.strides, {1, anchors, 1});
  const std::string center = onnx.add("Mul", {onnx.add("Add", {part(0, 2), corners}), strides});
  const std::string size = onnx.add("Mul", {onnx.add("Exp", {part(2, 4)}), strides});
  const std::string sure = onnx.add("Sigmoid", {part(4, width)});
  onnx.make(node.outputs[0], "Concat", {center, size, sure}, {{"axis", int64_t{2}}});
}

/// Exports the rounding of an activation. A rounded weight is added by the layer that reads it.
void fake_quantize_groups(OnnxGraph& onnx, const Node& node) {
  if (onnx.is_int8_weight(node.outputs[0])) return;
  onnx.round(node.outputs[0], onnx.name(node.inputs[0]), onnx.grid(node));
}

struct Row {
  std::string_view op;
  void (*add)(OnnxGraph&, const Node&);
};
constexpr auto kOps = std::to_array<Row>({
    {"conv2d", conv},
    {"conv2d_grad_input", conv_transpose},
    {"matmul", matmul},
    {"bias_add", bias_add},
    {"batch_norm_infer", batch_norm},
    {"group_norm", group_norm},
    {"add", same<kAdd>},
    {"sub", same<kSub>},
    {"mul", same<kMul>},
    {"div", same<kDiv>},
    {"relu", same<kRelu>},
    {"sigmoid", same<kSigmoid>},
    {"exp", same<kExp>},
    {"hardswish", same<kHardSwish>},
    {"cast", same<kIdentity>},
    {"silu", silu},
    {"hardsigmoid", hardsigmoid},
    {"scale", scale},
    {"add_scalar", add_scalar},
    {"max_pool2d", max_pool},
    {"global_avg_pool", global_avg_pool},
    {"scale_channels", scale_channels},
    {"concat_last", concat},
    {"slice_last", slice},
    {"softmax", softmax},
    {"reshape", reshape},
    {"resize", resize},
    {"yolox_decode", yolox_decode},
    {"fake_quantize_groups", fake_quantize_groups},
});

}  // namespace

void add_onnx_node(OnnxGraph& onnx, const Node& node) {
  const auto found = std::ranges::find(kOps, node.op->name, &Row::op);
  if (found == kOps.end()) {
    user_error("cannot export '{}' to ONNX, which has no equivalent of the op {}; try --format hf", node.name,
               node.op->name);
  }
  found->add(onnx, node);
  // Runtimes compute an op in uint8 if its input and output are both rounded.
  const OnnxGrid* const grid = nn::selects_elements(node) ? onnx.grid_of(node.inputs[0]) : nullptr;
  if (grid != nullptr && !onnx.is_output(node.outputs[0]))
    onnx.round(node.outputs[0], onnx.name(node.outputs[0]), *grid);
}

}  // namespace hearth::hub
