#include "ops/conv/conv.h"

#include <cmath>
#include <memory>

#include "backend/cpu/convert.h"
#include "backend/cpu/rows.h"
#include "ops/matmul/matmul.h"
#include "ops/norm/batch_norm_kernels.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {
/// Maximum of stride, padding, dilation, groups and kernel height and width; index arithmetic then fits in 64
/// bits.
constexpr int64_t kMaxExtent = 1 << 20;
}  // namespace

cpu::ConvShape conv_shape(const Shape& x, const Shape& w, const Attrs& attrs) {
  return {.batch = x[0],
          .in_h = x[1],
          .in_w = x[2],
          .in_c = x[3],
          .out_c = w[3],
          .kernel_h = w[0],
          .kernel_w = w[1],
          .stride = attrs.integer_or("stride", 1),
          .padding = attrs.integer_or("padding", 0),
          .dilation = attrs.integer_or("dilation", 1),
          .groups = attrs.integer_or("groups", 1)};
}

std::string check_conv(const cpu::ConvShape& s) {
  const auto fits = [](int64_t value, int64_t min_value) {
    return value >= min_value && value <= kMaxExtent;
  };
  if (!fits(s.stride, 1) || !fits(s.padding, 0) || !fits(s.dilation, 1) || !fits(s.groups, 1) ||
      !fits(s.kernel_h, 1) || !fits(s.kernel_w, 1))
    return fmt::format(
        "expected stride, dilation, groups and kernel in [1, {}] and padding in [0, {}], got stride {}, "
        "dilation {}, groups {}, kernel {} x {}, padding {}",
        kMaxExtent, kMaxExtent, s.stride, s.dilation, s.groups, s.kernel_h, s.kernel_w, s.padding);
  if (s.in_h + 2 * s.padding < s.span_h() || s.in_w + 2 * s.padding < s.span_w())
    return fmt::format(
        "the image ({} x {} pixels, padding {}) is smaller than the kernel ({} x {}); use larger images",
        s.in_h, s.in_w, s.padding, s.span_h(), s.span_w());
  if (s.in_c % s.groups != 0 || s.out_c % s.groups != 0)
    return fmt::format("{} input and {} output channels are not divisible by {} groups", s.in_c, s.out_c,
                       s.groups);
  return "";
}

double skipped_bytes(const Type& x, const cpu::ConvShape& s) {
  const auto read = [&](int64_t kernel) {
    return static_cast<double>(std::min(kernel, s.stride)) / static_cast<double>(s.stride);
  };
  return static_cast<double>(x.num_bytes()) * (1 - read(s.kernel_h) * read(s.kernel_w));
}

namespace {

/// Returns the convolution's shape from the types of a conv2d node; the next two functions do so from a
/// conv2d_grad_input and a conv2d_grad_weight node.
cpu::ConvShape shape_of_forward(const NodeView& node) {
  return conv_shape(node.in_type(ConvIn::x).shape, node.in_type(ConvIn::w).shape, node.attrs);
}
cpu::ConvShape shape_of_grad_input(const NodeView& node) {
  const Shape& dy = node.in_type(0).shape;
  const Shape& w = node.in_type(1).shape;
  // check_conv() refuses an invalid number of groups later; it needs the shape that is built here.
  const int64_t in_c = w[2] * std::clamp<int64_t>(node.attrs.integer_or("groups", 1), 1, kMaxExtent);
  return conv_shape({dy[0], node.attrs.integer("in_h"), node.attrs.integer("in_w"), in_c}, w, node.attrs);
}
cpu::ConvShape shape_of_grad_weight(const NodeView& node) {
  const Shape& x = node.in_type(0).shape;
  const Shape w{node.attrs.integer("kernel_h"), node.attrs.integer("kernel_w"), x[3],
                node.in_type(1).shape[3]};
  return conv_shape(x, w, node.attrs);
}
bool has_relu(const NodeView& node) { return node.attrs.text_or("activation", "none") == "relu"; }

cpu::ConvSpec spec_of(const NodeView& node, const cpu::ConvShape& shape) {
  return {.shape = shape,
          .x = node.in_type(0).dtype,
          .w = node.in_type(1).dtype,
          .num_threads = node.num_threads,
          .algorithm = cpu::choose_algorithm(shape, node.winograd)};
}

std::string check_images(const NodeView& node) {
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const Type& type = node.in_type(i);
    if (type.shape.rank() != 4 || !is_storage_float(type.dtype) || type.dtype != node.in_type(0).dtype)
      return fmt::format("expected inputs of rank 4 and one floating dtype, got {} and {}",
                         to_string(node.in_type(0)), to_string(node.in_type(1)));
  }
  return "";
}

Inferred infer(const NodeView& node) {
  if (auto error = check_images(node); !error.empty()) return refuse(error);
  const cpu::ConvShape shape = shape_of_forward(node);
  if (auto error = check_conv(shape); !error.empty()) return refuse(error);
  if (node.in_type(ConvIn::w).shape[2] != shape.group_in())
    return refuse_type("the weight", fmt::format("[kh, kw, {}, out]", shape.group_in()),
                       node.in_type(ConvIn::w));
  const Type out{.dtype = node.in_type(ConvIn::x).dtype, .shape = out_shape(shape)};
  if (node.has_input(ConvIn::bias) && node.in_type(ConvIn::bias) != f32_type({shape.out_c}))
    return refuse_type("the bias", fmt::format("f32[{}]", shape.out_c), node.in_type(ConvIn::bias));
  if (node.has_input(ConvIn::residual) && node.in_type(ConvIn::residual) != out)
    return refuse_type("the residual", to_string(out), node.in_type(ConvIn::residual));
  return {.out = {out}, .error = ""};
}

Inferred infer_grad_input(const NodeView& node) {
  if (auto error = check_images(node); !error.empty()) return refuse(error);
  const cpu::ConvShape shape = shape_of_grad_input(node);
  if (auto error = check_conv(shape); !error.empty()) return refuse(error);
  if (node.in_type(0).shape != out_shape(shape))
    return refuse_type("dy", hearth::to_string(out_shape(shape)), node.in_type(0));
  const Type dx{.dtype = node.in_type(0).dtype, .shape = {shape.batch, shape.in_h, shape.in_w, shape.in_c}};
  if (node.has_input(kGradInputResidual) && node.in_type(kGradInputResidual) != dx)
    return refuse_type("the residual", to_string(dx), node.in_type(kGradInputResidual));
  if (node.has_input(kGradInputMask)) {
    if (shape.groups != 1 || !may_have_mask(dx))
      return refuse("a mask requires groups=1, 16 bits and channels in multiples of 8");
    if (node.in_type(kGradInputMask) != mask_type(dx))
      return refuse_type("the mask", to_string(mask_type(dx)), node.in_type(kGradInputMask));
  }
  return {.out = {dx}, .error = ""};
}

Inferred infer_grad_weight(const NodeView& node) {
  if (auto error = check_images(node); !error.empty()) return refuse(error);
  const cpu::ConvShape shape = shape_of_grad_weight(node);
  if (auto error = check_conv(shape); !error.empty()) return refuse(error);
  if (node.in_type(1).shape != out_shape(shape))
    return refuse_type("dy", hearth::to_string(out_shape(shape)), node.in_type(1));
  return {.out = {f32_type({shape.kernel_h, shape.kernel_w, shape.group_in(), shape.out_c})}, .error = ""};
}

Kernel forward_kernel(const NodeView& node) {
  cpu::ConvSpec spec = spec_of(node, shape_of_forward(node));
  spec.bias = node.has_input(ConvIn::bias);
  spec.residual = node.has_input(ConvIn::residual);
  spec.relu = has_relu(node);
  const auto conv = std::make_shared<const cpu::ConvForward>(spec);
  const auto run = [conv, bias = spec.bias, residual = spec.residual](const KernelArgs& args) {
    conv->run(args.in[ConvIn::x], args.in[ConvIn::w], bias ? args.input<float>(ConvIn::bias) : nullptr,
              residual ? args.in[ConvIn::residual] : nullptr, args.out[0], args.workspace, *args.threads);
  };
  return {.run = run, .workspace_bytes = conv->workspace_bytes()};
}

/// Adds the residual to dx, the output.
void add_residual(const Type& dx, const KernelArgs& args) {
  args.threads->parallel_for(dx.shape.num_elements(), kGrain, [&](Range range) {
    if (dx.dtype == DType::f32)
      return cpu::add_row(args.input<float>(kGradInputResidual) + range.begin,
                          args.output<float>(0) + range.begin, range.size());
    alignas(64) float sums[kTile], scratch[kTile];
    for (int64_t i = range.begin; i < range.end; i += kTile) {
      const int64_t n = std::min(kTile, range.end - i);
      std::copy_n(cpu::as_f32(dx.dtype, args.out[0], i, n, scratch), n, sums);
      cpu::add_row(cpu::as_f32(dx.dtype, args.in[kGradInputResidual], i, n, scratch), sums, n);
      cpu::store_f32(dx.dtype, sums, args.out[0], i, n);
    }
  });
}

Kernel grad_input_kernel(const NodeView& node) {
  const auto conv = std::make_shared<const cpu::ConvBackwardData>(spec_of(node, shape_of_grad_input(node)));
  const auto run = [conv, adds = node.has_input(kGradInputResidual), masks = node.has_input(kGradInputMask),
                    dx = node.out_type(0)](const KernelArgs& args) {
    conv->run(args.in[0], args.in[1], args.out[0], args.workspace, *args.threads);
    if (adds) add_residual(dx, args);
    if (masks) apply_mask(dx, args.out[0], args.input<uint8_t>(kGradInputMask), args.out[0], *args.threads);
  };
  return {.run = run, .workspace_bytes = conv->workspace_bytes()};
}

Kernel grad_weight_kernel(const NodeView& node) {
  const auto conv =
      std::make_shared<const cpu::ConvBackwardWeights>(spec_of(node, shape_of_grad_weight(node)));
  const auto run = [conv](const KernelArgs& args) {
    conv->run(args.in[0], args.in[1], args.output<float>(0), args.workspace, *args.threads);
  };
  return {.run = run, .workspace_bytes = conv->workspace_bytes()};
}

void reference(const ReferenceArgs& args) {
  const cpu::ConvShape shape = shape_of_forward(args.node);
  std::vector<double>& y = args.out[0];
  const auto channels = static_cast<size_t>(shape.out_c);
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] = args.node.has_input(ConvIn::bias) ? args.in[ConvIn::bias][i % channels] : 0;
    if (args.node.has_input(ConvIn::residual)) y[i] += args.in[ConvIn::residual][i];
  }
  for_each_product(
      shape, [&](size_t x, size_t w, size_t o) { y[o] += args.in[ConvIn::x][x] * args.in[ConvIn::w][w]; });
  if (!has_relu(args.node)) return;
  for (double& value : y) value = std::max(value, 0.0);
}
void grad_input_reference(const ReferenceArgs& args) {
  if (args.node.has_input(kGradInputResidual)) {
    args.out[0] = args.in[kGradInputResidual];
  } else {
    std::fill(args.out[0].begin(), args.out[0].end(), 0.0);
  }
  for_each_product(shape_of_grad_input(args.node),
                   [&](size_t x, size_t w, size_t o) { args.out[0][x] += args.in[0][o] * args.in[1][w]; });
  if (!args.node.has_input(kGradInputMask)) return;
  for (size_t i = 0; i < args.out[0].size(); ++i)
    if (!is_set(args.in[kGradInputMask], i)) args.out[0][i] = 0;
}
void grad_weight_reference(const ReferenceArgs& args) {
  std::fill(args.out[0].begin(), args.out[0].end(), 0.0);
  for_each_product(shape_of_grad_weight(args.node),
                   [&](size_t x, size_t w, size_t o) { args.out[0][w] += args.in[0][x] * args.in[1][o]; });
}

ValueId emit_bias_gradient(const VjpContext& context, ValueId dy) {
  const Shape shape = context.graph.type(dy).shape;
  const std::vector<int64_t> rows = {num_rows(shape), shape.back()};
  return emit(context, "sum_leading", {emit(context, "reshape", {dy}, {{"shape", rows}})});
}

/// Returns the attributes that conv2d and its gradient ops share: stride, padding, dilation and groups.
Attrs geometry_of(const Attrs& attrs) {
  Attrs result = {{"stride", attrs.integer_or("stride", 1)}, {"padding", attrs.integer_or("padding", 0)}};
  for (const char* name : {"dilation", "groups"})
    if (attrs.integer_or(name, 1) != 1) result.set(name, attrs.integer(name));
  return result;
}

std::vector<ValueId> vjp(const VjpContext& context) {
  const ir::Node node = context.node;
  std::vector<ValueId> grads(node.inputs.size(), kNone);
  ValueId dy = context.grad_out[0];
  if (dy == kNone) return grads;
  if (node.attrs.text_or("activation", "none") == "relu")
    dy = emit(context, "relu_grad", {dy, node.outputs[0]});
  if (node.inputs.size() > ConvIn::residual)
    grads[ConvIn::residual] = node.inputs[ConvIn::residual] == kNone ? kNone : dy;
  if (node.inputs.size() > ConvIn::bias && node.inputs[ConvIn::bias] != kNone)
    grads[ConvIn::bias] = emit_bias_gradient(context, dy);
  const Shape x = context.graph.type(node.inputs[ConvIn::x]).shape;
  const Shape w = context.graph.type(node.inputs[ConvIn::w]).shape;
  const Attrs common = geometry_of(node.attrs);
  Attrs attrs = common;
  attrs.set("kernel_h", w[0]);
  attrs.set("kernel_w", w[1]);
  grads[ConvIn::w] = emit(context, "conv2d_grad_weight", {node.inputs[ConvIn::x], dy}, attrs);
  if (context.graph.value(node.inputs[ConvIn::x]).role == ir::Role::input) return grads;
  attrs = common;
  attrs.set("in_h", x[1]);
  attrs.set("in_w", x[2]);
  grads[ConvIn::x] = emit(context, "conv2d_grad_input", {dy, node.inputs[ConvIn::w]}, attrs);
  return grads;
}

/// Gradients of conv2d_grad_input, which models use as a transposed convolution: the gradient of its input dy
/// is conv2d.
std::vector<ValueId> grad_input_vjp(const VjpContext& context) {
  const ir::Node node = context.node;
  const ValueId given = context.grad_out[0], dy = node.inputs[0], w = node.inputs[1];
  std::vector<ValueId> grads(node.inputs.size(), kNone);
  if (given == kNone) return grads;
  Attrs attrs = geometry_of(node.attrs);
  const bool is_input = context.graph.value(dy).role == ir::Role::input;
  if (!is_input) grads[0] = emit(context, "conv2d", {given, w}, attrs);
  const Shape kernel = context.graph.type(w).shape;
  attrs.set("kernel_h", kernel[0]);
  attrs.set("kernel_w", kernel[1]);
  grads[1] = emit(context, "conv2d_grad_weight", {given, dy}, attrs);
  if (grads.size() > kGradInputResidual) grads[kGradInputResidual] = given;
  return grads;
}

/// Dimensions of a convolution as an implicit GEMM, for the cost model. In a grouped convolution an output
/// sums only over the input channels of its group, without matrix instructions.
struct Extents {
  double pixels, taps, in, out;
  bool grouped;
  explicit Extents(const cpu::ConvShape& s)
      : pixels(static_cast<double>(s.batch * s.out_h() * s.out_w())),
        taps(static_cast<double>(s.kernel_h * s.kernel_w)),
        in(static_cast<double>(s.group_in())),
        out(static_cast<double>(s.out_c)),
        grouped(s.groups > 1) {}
  double flops() const { return 2 * pixels * taps * in * out; }
};
/// Returns the kernel kind of a convolution for the cost model; a 1x1 kernel counts as a matmul.
KernelKind kind_of(const Extents& e, bool transpose_a, bool transpose_b) {
  return e.taps == 1 ? matmul_kind(transpose_a, transpose_b) : KernelKind::conv;
}
/// Returns the cost of a grouped convolution. `depthwise` is the kernel kind to use if each channel is a
/// group.
Cost grouped_cost(const NodeView& node, const Extents& e, KernelKind depthwise) {
  return {.flops = e.flops(),
          .bytes = bytes_moved(node),
          .kernel = e.in == 1 ? depthwise : KernelKind::grouped_conv};
}
Cost cost(const NodeView& node) {
  const Extents e(shape_of_forward(node));
  if (e.grouped) return grouped_cost(node, e, KernelKind::depthwise_conv);
  return product_cost(e.pixels, e.out, e.taps * e.in, bytes_moved(node), kind_of(e, false, false));
}
Cost grad_input_cost(const NodeView& node) {
  const cpu::ConvShape shape = shape_of_grad_input(node);
  const Extents e(shape);
  if (e.grouped) return grouped_cost(node, e, KernelKind::depthwise_conv_grad_input);
  Cost result = product_cost(static_cast<double>(shape.batch * shape.in_h * shape.in_w), e.in, e.taps * e.out,
                             bytes_moved(node),
                             node.has_input(kGradInputMask) ? KernelKind::conv : kind_of(e, false, true));
  result.flops = e.flops();  // Taps that a stride skips are not computed.
  return result;
}
Cost grad_weight_cost(const NodeView& node) {
  const cpu::ConvShape shape = shape_of_grad_weight(node);
  const Extents e(shape);
  if (e.grouped) return grouped_cost(node, e, KernelKind::depthwise_conv_grad_weight);
  const double taps = e.taps * e.in;
  Cost result = product_cost(taps, e.out, e.pixels, bytes_moved(node) - skipped_bytes(node.in_type(0), shape),
                             kind_of(e, true, false));
  if (e.taps == 1 && shape.stride == 1 && shape.padding == 0) return result;  // runs as a matmul
  // Same block sizes as with_blocking_in_parts() in product_gpu.h.
  const bool even = shape.in_c % 8 == 0 && shape.out_c % 8 == 0, tall = e.out <= 16;
  const double rows = tall || (even && taps >= 128) ? 128 : 64;
  const double columns = tall ? 16 : even && taps >= 128 && e.out > 64 ? 128 : 64;
  const double tiles = std::ceil(taps / rows) * std::ceil(e.out / columns);
  result.blocks = tiles * static_cast<double>(num_weight_parts(static_cast<int64_t>(tiles),
                                                               shape.batch * shape.out_h() * shape.out_w()));
  result.filled = taps * e.out / (tiles * rows * columns);
  return result;
}

}  // namespace

const OpDef conv2d{.name = "conv2d",
                   .doc =
                       "conv2d(x [N, H, W, C], w [kh, kw, C / groups, O], bias? [O], residual?){stride, "
                       "padding, dilation, groups}: activation(conv + bias + residual)",
                   .inputs = {"x", "w", "bias?", "residual?"},
                   .infer = infer,
                   .vjp = vjp,
                   .cpu = forward_kernel,
                   .gpu = true,
                   .reference = reference,
                   .cost = cost,
                   .precision = ir::Precision::compute,
                   .samples = conv_samples};

const OpDef conv2d_grad_input{
    .name = "conv2d_grad_input",
    .doc =
        "conv2d_grad_input(dy, w, residual?, mask?): dx [N, in_h, in_w, C] plus the "
        "residual, 0 where the mask is 0; as a layer, the transposed convolution "
        "of dy",
    .inputs = {"dy", "w", "residual?", "mask?"},
    .infer = infer_grad_input,
    .vjp = grad_input_vjp,
    .cpu = grad_input_kernel,
    .gpu = true,
    .reference = grad_input_reference,
    .cost = grad_input_cost,
    .precision = ir::Precision::compute,
    .samples = conv_grad_input_samples};

const OpDef conv2d_grad_weight{.name = "conv2d_grad_weight",
                               .doc = "conv2d_grad_weight(x, dy): dw f32 [kernel_h, kernel_w, C / groups, O]",
                               .inputs = {"x", "dy"},
                               .infer = infer_grad_weight,
                               .no_vjp_because = kNoSecondDerivatives,
                               .cpu = grad_weight_kernel,
                               .gpu = true,
                               .reference = grad_weight_reference,
                               .cost = grad_weight_cost,
                               .precision = ir::Precision::compute,
                               .samples = conv_grad_weight_samples};

}  // namespace hearth::ops
