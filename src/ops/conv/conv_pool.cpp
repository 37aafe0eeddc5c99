#include <array>
#include <memory>

#include "backend/cpu/rows.h"
#include "ops/conv/conv.h"
#include "ops/conv/conv_pool_cpu.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

// Without the fused kernel (cpu::ConvPool), each thread stores the full convolution of one image at a time in
// its workspace.

cpu::ConvShape shape_of_forward(const NodeView& node) {
  return conv_shape(node.in_type(ConvIn::x).shape, node.in_type(ConvIn::w).shape, node.attrs);
}
cpu::ConvShape shape_of_grad(const NodeView& node) {
  const Shape& x = node.in_type(ConvPoolGradIn::x).shape;
  const Shape w{node.attrs.integer("kernel_h"), node.attrs.integer("kernel_w"), x[3],
                node.in_type(ConvPoolGradIn::pooled).shape[3]};
  return conv_shape(x, w, node.attrs);
}
Shape pooled_shape(const cpu::ConvShape& s) { return {s.batch, s.out_h() / 2, s.out_w() / 2, s.out_c}; }

std::string check(const cpu::ConvShape& shape) {
  if (auto error = check_conv(shape); !error.empty()) return error;
  if (shape.stride != 1 || shape.dilation != 1 || shape.groups != 1 || shape.out_h() % 2 != 0 ||
      shape.out_w() % 2 != 0)
    return fmt::format(
        "expected stride, dilation and groups 1 and an even output size, got stride {}, dilation {}, "
        "groups {} and {} x {}",
        shape.stride, shape.dilation, shape.groups, shape.out_h(), shape.out_w());
  return "";
}

/// Sizes of one image and of a thread's workspace: the convolution's result for one image (image_bytes), then
/// rest_bytes.
struct Job {
  DType dtype;
  int64_t batch, h, w, channels;
  int64_t x_bytes;
  int64_t image_bytes;
  int64_t rest_bytes;
  int parts;
  int64_t part_bytes() const { return image_bytes + rest_bytes; }
};
Job job_of(const NodeView& node, const cpu::ConvShape& s, int64_t rest_bytes) {
  const DType dtype = node.in_type(0).dtype;
  return {.dtype = dtype,
          .batch = s.batch,
          .h = s.out_h(),
          .w = s.out_w(),
          .channels = s.out_c,
          .x_bytes = s.in_h * s.in_w * s.in_c * dtype_bytes(dtype),
          .image_bytes = cpu::round_up(s.out_h() * s.out_w() * s.out_c * dtype_bytes(dtype), 64),
          .rest_bytes = cpu::round_up(rest_bytes, 64),
          .parts = num_sum_parts(s.batch, 1)};
}

/// Returns the spec of the single-threaded convolution of one image.
cpu::ConvSpec image_spec(const NodeView& node, cpu::ConvShape shape, DType w) {
  shape.batch = 1;
  return {.shape = shape,
          .x = node.in_type(0).dtype,
          .w = w,
          .num_threads = 1,
          .algorithm = cpu::choose_algorithm(shape, node.winograd)};
}

/// Returns the indices in y of the four window elements of a pooled element, in window order.
std::array<int64_t, 4> window(const Job& job, int64_t py, int64_t px, int64_t c) {
  const int64_t first = (2 * py * job.w + 2 * px) * job.channels + c;
  const int64_t below = first + job.w * job.channels;
  return {first, first + job.channels, below, below + job.channels};
}

/// Calls body(index in the pooled image, the four window indices) for each pooled element.
template <typename Body>
void for_each_window(const Job& job, Body body) {
  int64_t out = 0;
  for (int64_t py = 0; py < job.h / 2; ++py) {
    for (int64_t px = 0; px < job.w / 2; ++px) {
      for (int64_t c = 0; c < job.channels; ++c) body(out++, window(job, py, px, c));
    }
  }
}

template <typename T>
float as_float(T value) {
  return to_f32(value);
}
float as_float(float value) { return value; }

template <typename T>
void pool_image(const Job& job, const T* image, T* pooled, uint8_t* argmax) {
  for_each_window(job, [&](int64_t out, const std::array<int64_t, 4>& at) {
    uint8_t best = 0;
    for (uint8_t k = 1; k < 4; ++k) {
      if (as_float(image[at[k]]) > as_float(image[at[best]])) best = k;
    }
    pooled[out] = as_float(image[at[best]]) > 0 ? image[at[best]] : T{};
    argmax[out] = best;
  });
}

template <typename T>
void unpool_image(const Job& job, const T* pooled, const uint8_t* argmax, const T* dpooled, T* image,
                  float* dbias) {
  for_each_window(job, [&](int64_t out, const std::array<int64_t, 4>& at) {
    const bool passes = as_float(pooled[out]) > 0;
    for (uint8_t k = 0; k < 4; ++k) image[at[k]] = passes && argmax[out] == k ? dpooled[out] : T{};
    if (passes) dbias[out % job.channels] += as_float(dpooled[out]);
  });
}

/// Calls body(T{}), where T is the storage type.
template <typename Body>
void with_storage(DType dtype, Body body) {
  if (dtype == DType::f32) return body(float{});
  if (dtype == DType::bf16) return body(bf16{});
  body(f16{});
}

/// Calls body(part, workspace of the part) in parallel for each part of the batch.
template <typename Body>
void for_each_part(const Job& job, const KernelArgs& args, Body body) {
  args.threads->for_parts(job.parts, [&](int part) { body(part, args.workspace + part * job.part_bytes()); });
}

Kernel fused_kernel(const NodeView& node) {
  const auto conv = std::make_shared<const cpu::ConvPool>(shape_of_forward(node));
  const auto run = [conv](const KernelArgs& args) {
    conv->forward(args.input<float>(ConvIn::x), args.input<float>(ConvIn::w), args.input<float>(ConvIn::bias),
                  args.output<float>(0), args.output<uint8_t>(1), args.workspace, *args.threads);
  };
  return {.run = run, .workspace_bytes = conv->workspace_bytes()};
}

Kernel fused_grad_kernel(const NodeView& node) {
  const auto conv = std::make_shared<const cpu::ConvPool>(shape_of_grad(node));
  const auto run = [conv](const KernelArgs& args) {
    conv->backward_weights(args.input<float>(ConvPoolGradIn::x), args.input<float>(ConvPoolGradIn::pooled),
                           args.input<uint8_t>(ConvPoolGradIn::argmax),
                           args.input<float>(ConvPoolGradIn::dpooled), args.output<float>(0),
                           args.output<float>(1), args.workspace, *args.threads);
  };
  return {.run = run, .workspace_bytes = conv->workspace_bytes()};
}

Kernel kernel(const NodeView& node) {
  if (node.in_type(ConvIn::x).dtype == DType::f32 && node.has_input(ConvIn::bias)) return fused_kernel(node);
  cpu::ConvSpec spec = image_spec(node, shape_of_forward(node), node.in_type(ConvIn::w).dtype);
  spec.bias = node.has_input(ConvIn::bias);
  const auto conv = std::make_shared<const cpu::ConvForward>(spec);
  const Job job = job_of(node, shape_of_forward(node), conv->workspace_bytes());
  const auto alone = std::make_shared<ThreadPool>(1);
  const auto run = [=, bias = spec.bias](const KernelArgs& args) {
    const int64_t pooled = job.h / 2 * (job.w / 2) * job.channels;
    for_each_part(job, args, [&](int part, std::byte* workspace) {
      const Range images = split_range(job.batch, job.parts, part);
      for (int64_t n = images.begin; n < images.end; ++n) {
        conv->run(args.input<std::byte>(ConvIn::x) + n * job.x_bytes, args.in[ConvIn::w],
                  bias ? args.input<float>(ConvIn::bias) : nullptr, nullptr, workspace,
                  workspace + job.image_bytes, *alone);
        with_storage(job.dtype, [&]<typename T>(T) {
          pool_image(job, reinterpret_cast<const T*>(workspace), args.output<T>(0) + n * pooled,
                     args.output<uint8_t>(1) + n * pooled);
        });
      }
    });
  };
  return {.run = run, .workspace_bytes = job.parts * job.part_bytes()};
}

/// Layout of one thread's gradients: dw and dbias summed over its images, then dw of the current image.
struct Sums {
  int64_t num_weights;
  int64_t num_biases;
  int64_t bytes() const { return cpu::round_up((2 * num_weights + num_biases) * int64_t{sizeof(float)}, 64); }
  float* dw(std::byte* part) const { return reinterpret_cast<float*>(part); }
  float* dbias(std::byte* part) const { return dw(part) + num_weights; }
  float* image_dw(std::byte* part) const { return dbias(part) + num_biases; }
};

void grad_part(const Job& job, const Sums& sums, const cpu::ConvBackwardWeights& conv, ThreadPool& alone,
               const KernelArgs& args, Range images, std::byte* workspace) {
  std::byte* sums_at = workspace + job.image_bytes;
  const int64_t pooled = job.h / 2 * (job.w / 2) * job.channels;
  std::fill_n(sums.dw(sums_at), sums.num_weights + sums.num_biases, 0.0F);
  for (int64_t n = images.begin; n < images.end; ++n) {
    with_storage(job.dtype, [&]<typename T>(T) {
      unpool_image(job, args.input<T>(ConvPoolGradIn::pooled) + n * pooled,
                   args.input<uint8_t>(ConvPoolGradIn::argmax) + n * pooled,
                   args.input<T>(ConvPoolGradIn::dpooled) + n * pooled, reinterpret_cast<T*>(workspace),
                   sums.dbias(sums_at));
    });
    conv.run(args.input<std::byte>(ConvPoolGradIn::x) + n * job.x_bytes, workspace, sums.image_dw(sums_at),
             sums_at + sums.bytes(), alone);
    for (int64_t i = 0; i < sums.num_weights; ++i) sums.dw(sums_at)[i] += sums.image_dw(sums_at)[i];
  }
}

Kernel grad_kernel(const NodeView& node) {
  if (node.in_type(ConvPoolGradIn::x).dtype == DType::f32) return fused_grad_kernel(node);
  const cpu::ConvShape shape = shape_of_grad(node);
  const auto conv = std::make_shared<const cpu::ConvBackwardWeights>(
      image_spec(node, shape, node.in_type(ConvPoolGradIn::x).dtype));
  const Sums sums{.num_weights = shape.kernel_h * shape.kernel_w * shape.in_c * shape.out_c,
                  .num_biases = shape.out_c};
  const Job job = job_of(node, shape, sums.bytes() + conv->workspace_bytes());
  const auto alone = std::make_shared<ThreadPool>(1);
  const auto run = [=](const KernelArgs& args) {
    for_each_part(job, args, [&](int part, std::byte* workspace) {
      grad_part(job, sums, *conv, *alone, args, split_range(job.batch, job.parts, part), workspace);
    });
    std::fill_n(args.output<float>(0), sums.num_weights, 0.0F);
    std::fill_n(args.output<float>(1), sums.num_biases, 0.0F);
    for (int part = 0; part < job.parts; ++part) {
      std::byte* sums_at = args.workspace + part * job.part_bytes() + job.image_bytes;
      for (int64_t i = 0; i < sums.num_weights; ++i) args.output<float>(0)[i] += sums.dw(sums_at)[i];
      for (int64_t i = 0; i < sums.num_biases; ++i) args.output<float>(1)[i] += sums.dbias(sums_at)[i];
    }
  };
  return {.run = run, .workspace_bytes = job.parts * job.part_bytes()};
}

Inferred infer(const NodeView& node) {
  const Type& x = node.in_type(ConvIn::x);
  const Type& w = node.in_type(ConvIn::w);
  if (x.shape.rank() != 4 || !is_storage_float(x.dtype)) return refuse_type("x", "floating [N, H, W, C]", x);
  if (w.shape.rank() != 4 || w.dtype != x.dtype || w.shape[2] != x.shape[3])
    return refuse_type("the weight", fmt::format("{}[kh, kw, {}, out]", dtype_name(x.dtype), x.shape[3]), w);
  const cpu::ConvShape shape = shape_of_forward(node);
  if (auto error = check(shape); !error.empty()) return refuse(error);
  if (node.has_input(ConvIn::bias) && node.in_type(ConvIn::bias) != f32_type({shape.out_c}))
    return refuse_type("the bias", fmt::format("f32[{}]", shape.out_c), node.in_type(ConvIn::bias));
  const Shape out = pooled_shape(shape);
  return {.out = {{.dtype = x.dtype, .shape = out}, {.dtype = DType::u8, .shape = out}}, .error = ""};
}

Inferred infer_grad(const NodeView& node) {
  const Type& x = node.in_type(ConvPoolGradIn::x);
  const Type& pooled = node.in_type(ConvPoolGradIn::pooled);
  if (x.shape.rank() != 4 || pooled.shape.rank() != 4 || !is_storage_float(x.dtype))
    return refuse_type("x", "floating [N, H, W, C]", x);
  const cpu::ConvShape shape = shape_of_grad(node);
  if (auto error = check(shape); !error.empty()) return refuse(error);
  const Type expected{.dtype = x.dtype, .shape = pooled_shape(shape)};
  if (pooled != expected || node.in_type(ConvPoolGradIn::dpooled) != expected)
    return refuse_type("pooled and dpooled", to_string(expected), pooled);
  if (node.in_type(ConvPoolGradIn::argmax) != Type{.dtype = DType::u8, .shape = expected.shape})
    return refuse_type("argmax", "u8 of the shape of pooled", node.in_type(ConvPoolGradIn::argmax));
  return {
      .out = {f32_type({shape.kernel_h, shape.kernel_w, shape.in_c, shape.out_c}), f32_type({shape.out_c})},
      .error = ""};
}

void reference(const ReferenceArgs& args) {
  const cpu::ConvShape shape = shape_of_forward(args.node);
  const Job job = job_of(args.node, shape, 0);
  const auto size = static_cast<size_t>(job.h * job.w * job.channels);
  std::vector<double> y(static_cast<size_t>(shape.batch) * size, 0.0);
  for (size_t i = 0; i < y.size() && args.node.has_input(ConvIn::bias); ++i)
    y[i] = args.in[ConvIn::bias][i % static_cast<size_t>(shape.out_c)];
  for_each_product(
      shape, [&](size_t x, size_t w, size_t o) { y[o] += args.in[ConvIn::x][x] * args.in[ConvIn::w][w]; });
  for (size_t n = 0; n < static_cast<size_t>(shape.batch); ++n) {
    for_each_window(job, [&](int64_t out, const std::array<int64_t, 4>& at) {
      const auto value = [&](size_t k) { return y[n * size + static_cast<size_t>(at[k])]; };
      size_t best = 0;
      for (size_t k = 1; k < 4; ++k) best = value(k) > value(best) ? k : best;
      args.out[0][n * size / 4 + static_cast<size_t>(out)] = std::max(0.0, value(best));
      args.out[1][n * size / 4 + static_cast<size_t>(out)] = static_cast<double>(best);
    });
  }
}

void grad_reference(const ReferenceArgs& args) {
  const cpu::ConvShape shape = shape_of_grad(args.node);
  const Job job = job_of(args.node, shape, 0);
  const auto size = static_cast<size_t>(job.h * job.w * job.channels);
  std::vector<double> dy(static_cast<size_t>(shape.batch) * size, 0.0);
  std::fill(args.out[0].begin(), args.out[0].end(), 0.0);
  std::fill(args.out[1].begin(), args.out[1].end(), 0.0);
  for (size_t n = 0; n < static_cast<size_t>(shape.batch); ++n) {
    for_each_window(job, [&](int64_t out, const std::array<int64_t, 4>& at) {
      const size_t i = n * size / 4 + static_cast<size_t>(out);
      if (!(args.in[ConvPoolGradIn::pooled][i] > 0)) return;
      dy[n * size + static_cast<size_t>(at[static_cast<size_t>(args.in[ConvPoolGradIn::argmax][i])])] =
          args.in[ConvPoolGradIn::dpooled][i];
      args.out[1][i % static_cast<size_t>(shape.out_c)] += args.in[ConvPoolGradIn::dpooled][i];
    });
  }
  for_each_product(
      shape, [&](size_t x, size_t w, size_t o) { args.out[0][w] += args.in[ConvPoolGradIn::x][x] * dy[o]; });
}

std::vector<ValueId> vjp(const VjpContext& context) {
  const ir::Node node = context.node;
  std::vector<ValueId> grads(node.inputs.size(), kNone);
  if (context.grad_out[0] == kNone) return grads;
  const Shape w = context.graph.type(node.inputs[ConvIn::w]).shape;
  const Attrs attrs = {
      {"kernel_h", w[0]}, {"kernel_w", w[1]}, {"padding", node.attrs.integer_or("padding", 0)}};
  const auto out = context.graph.add(
      conv2d_pool_grad_weight,
      {node.inputs[ConvIn::x], node.outputs[0], node.outputs[1], context.grad_out[0]}, attrs, node.name);
  grads[ConvIn::w] = out[0];
  if (grads.size() > ConvIn::bias) grads[ConvIn::bias] = out[1];
  return grads;
}

Cost cost_of(const cpu::ConvShape& s, const NodeView& node) {
  return {.flops = 2.0 * static_cast<double>(s.batch * s.out_h() * s.out_w()) *
                   static_cast<double>(s.kernel_h * s.kernel_w * s.in_c * s.out_c),
          .bytes = bytes_moved(node),
          .kernel = KernelKind::conv_pool};
}
Cost cost(const NodeView& node) { return cost_of(shape_of_forward(node), node); }
Cost grad_cost(const NodeView& node) { return cost_of(shape_of_grad(node), node); }

const Attrs kPadding = {{"padding", int64_t{1}}};
std::vector<Sample> samples() {
  return {
      {.in = {normal({3, 6, 8, 3}), normal({3, 3, 3, 5}), normal({5})}, .attrs = kPadding, .tolerance = 5e-5},
      {.in = {normal({2, 6, 6, 3}), normal({3, 3, 3, 32})}, .attrs = kPadding, .tolerance = 5e-5},
      {.in = {normal({2, 6, 6, 3}, DType::bf16), normal({3, 3, 3, 16}, DType::bf16), normal({16})},
       .attrs = kPadding,
       .tolerance = 1e-2}};
}
Sample grad_sample(const Shape& x, int64_t out, DType dtype, double tolerance) {
  const Shape pooled{x[0], x[1] / 2, x[2] / 2, out};
  return {
      .in = {normal(x, dtype), normal(pooled, dtype), indices(pooled, 4, DType::u8), normal(pooled, dtype)},
      .attrs = {{"kernel_h", int64_t{3}}, {"kernel_w", int64_t{3}}, {"padding", int64_t{1}}},
      .tolerance = tolerance};
}
std::vector<Sample> grad_samples() {
  return {grad_sample({3, 6, 8, 3}, 5, DType::f32, 5e-5), grad_sample({2, 6, 6, 3}, 32, DType::f32, 5e-5),
          grad_sample({2, 6, 6, 3}, 16, DType::bf16, 1e-2), grad_sample({2, 6, 6, 3}, 5, DType::bf16, 1e-2),
          grad_sample({3, 12, 8, 3}, 4, DType::f16, 1e-2)};
}

}  // namespace

const OpDef conv2d_pool{.name = "conv2d_pool",
                        .doc =
                            "conv2d_pool(x, w, bias?): max_pool2x2(relu(conv2d stride 1)) and argmax u8 "
                            "(before the relu); no gradient of x",
                        .inputs = {"x", "w", "bias?"},
                        .infer = infer,
                        .vjp = vjp,
                        .cpu = kernel,
                        .gpu = true,
                        .reference = reference,
                        .cost = cost,
                        .precision = ir::Precision::compute,
                        .samples = samples};

const OpDef conv2d_pool_grad_weight{
    .name = "conv2d_pool_grad_weight",
    .doc = "conv2d_pool_grad_weight(x, pooled, argmax, dpooled): dw f32 and dbias f32",
    .inputs = {"x", "pooled", "argmax", "dpooled"},
    .infer = infer_grad,
    .no_vjp_because = kNoSecondDerivatives,
    .cpu = grad_kernel,
    .gpu = true,
    .reference = grad_reference,
    .cost = grad_cost,
    .precision = ir::Precision::compute,
    .samples = grad_samples};

}  // namespace hearth::ops
