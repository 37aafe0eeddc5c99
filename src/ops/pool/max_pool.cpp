#include <cmath>

#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "ops/pool/pool.h"
#include "ops/pool/window.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

constexpr int64_t kChannels = 1024;

/// Largest kernel size for which an index in the window (argmax) fits in a byte.
constexpr int64_t kLargestKernel = 15;

Pool pool_of(const Shape& in, DType dtype, const Attrs& attrs) {
  Pool pool{.dtype = dtype,
            .batch = in[0],
            .in_h = in[1],
            .in_w = in[2],
            .channels = in[3],
            .kernel = attrs.integer("kernel"),
            .stride = attrs.integer("stride"),
            .padding = attrs.integer_or("padding", 0)};
  if (pool.kernel < 1 || pool.stride < 1 || pool.padding < 0 || pool.padding > pool.kernel / 2) return pool;
  pool.out_h = (pool.in_h + 2 * pool.padding - pool.kernel) / pool.stride + 1;
  pool.out_w = (pool.in_w + 2 * pool.padding - pool.kernel) / pool.stride + 1;
  return pool;
}

std::string check(const Pool& pool) {
  if (pool.kernel < 1 || pool.kernel > kLargestKernel || pool.stride < 1 || pool.padding < 0 ||
      pool.padding > pool.kernel / 2)
    return fmt::format(
        "expected kernel in [1, {}], stride >= 1 and padding <= kernel / 2, got kernel {}, stride {}, "
        "padding {}",
        kLargestKernel, pool.kernel, pool.stride, pool.padding);
  if (std::min(pool.in_h, pool.in_w) + 2 * pool.padding < pool.kernel)
    return fmt::format(
        "the image ({} x {} pixels, padding {}) is smaller than the pooling window ({} x {}); use larger "
        "images",
        pool.in_h, pool.in_w, pool.padding, pool.kernel, pool.kernel);
  return "";
}

HEARTH_CLONES void start_window(const float* in, float* best, uint8_t* argmax, int64_t count, uint8_t index) {
  for (int64_t c = 0; c < count; ++c) {
    best[c] = in[c];
    argmax[c] = index;
  }
}
/// Updates maxima and their argmax with the values of window element `index`. NaN counts as larger than any
/// number, as in PyTorch.
HEARTH_CLONES void add_tap_to_max(const float* in, float* best, uint8_t* argmax, int64_t count,
                                  uint8_t index) {
  for (int64_t c = 0; c < count; ++c) {
    const bool wins = (in[c] > best[c]) | (in[c] != in[c]);
    best[c] = wins ? in[c] : best[c];
    argmax[c] = wins ? index : argmax[c];
  }
}
HEARTH_CLONES void add_where(const float* dy, const uint8_t* argmax, float* dx, int64_t count,
                             uint8_t index) {
  for (int64_t c = 0; c < count; ++c) dx[c] += argmax[c] == index ? dy[c] : 0.0F;
}

void pool_pixel(const Pool& pool, const KernelArgs& args, int64_t n, int64_t oy, int64_t ox) {
  alignas(64) float best_run[kChannels];
  alignas(64) float in_run[kChannels];
  const Range ys = pool.taps(oy, pool.in_h), xs = pool.taps(ox, pool.in_w);
  for (int64_t c = 0; c < pool.channels; c += kChannels) {
    const int64_t count = std::min(kChannels, pool.channels - c);
    const int64_t at = pool.out_at(n, oy, ox) + c;
    float* best = run_to_write(pool.dtype, args.out[0], at, best_run);
    uint8_t* argmax = args.output<uint8_t>(1) + at;
    for (int64_t ky = ys.begin; ky < ys.end; ++ky) {
      for (int64_t kx = xs.begin; kx < xs.end; ++kx) {
        const int64_t from =
            pool.in_at(n, oy * pool.stride - pool.padding + ky, ox * pool.stride - pool.padding + kx) + c;
        const float* in = cpu::as_f32(pool.dtype, args.in[0], from, count, in_run);
        const auto index = static_cast<uint8_t>(ky * pool.kernel + kx);
        const bool first = ky == ys.begin && kx == xs.begin;
        (first ? start_window : add_tap_to_max)(in, best, argmax, count, index);
      }
    }
    cpu::store_f32(pool.dtype, best, args.out[0], at, count);
  }
}

/// Computes the gradient of one input pixel: sums dy of the windows that cover the pixel and have their
/// maximum there. Gathering instead of scattering needs no synchronization between threads.
void grad_pixel(const Pool& pool, const KernelArgs& args, int64_t n, int64_t iy, int64_t ix) {
  alignas(64) float sum_run[kChannels];
  alignas(64) float dy_run[kChannels];
  const Range ys = pool.covering(iy, pool.out_h), xs = pool.covering(ix, pool.out_w);
  for (int64_t c = 0; c < pool.channels; c += kChannels) {
    const int64_t count = std::min(kChannels, pool.channels - c);
    const int64_t at = pool.in_at(n, iy, ix) + c;
    float* sum = run_to_write(pool.dtype, args.out[0], at, sum_run);
    std::fill(sum, sum + count, 0.0F);
    for (int64_t oy = ys.begin; oy < ys.end; ++oy) {
      for (int64_t ox = xs.begin; ox < xs.end; ++ox) {
        const int64_t from = pool.out_at(n, oy, ox) + c;
        const int64_t ky = iy + pool.padding - oy * pool.stride, kx = ix + pool.padding - ox * pool.stride;
        add_where(cpu::as_f32(pool.dtype, args.in[0], from, count, dy_run), args.input<uint8_t>(1) + from,
                  sum, count, static_cast<uint8_t>(ky * pool.kernel + kx));
      }
    }
    cpu::store_f32(pool.dtype, sum, args.out[0], at, count);
  }
}

/// Returns a kernel that calls pixel(pool, args, image, y, x) for every pixel of a batch of h x w images.
Kernel pixel_kernel(const Pool& pool, int64_t h, int64_t w,
                    void (*pixel)(const Pool&, const KernelArgs&, int64_t, int64_t, int64_t)) {
  const auto run = [=](const KernelArgs& args) {
    const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, w * pool.channels));
    args.threads->parallel_for(pool.batch * h, grain, [&](Range rows) {
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        for (int64_t x = 0; x < w; ++x) pixel(pool, args, row / h, row % h, x);
      }
    });
  };
  return {.run = run, .workspace_bytes = 0};
}

Pool forward_pool(const NodeView& node) {
  return pool_of(node.in_type(0).shape, node.in_type(0).dtype, node.attrs);
}
Pool backward_pool(const NodeView& node) {
  const Shape& dy = node.in_type(0).shape;
  return pool_of({dy[0], node.attrs.integer("in_h"), node.attrs.integer("in_w"), dy[3]},
                 node.in_type(0).dtype, node.attrs);
}

Inferred infer(const NodeView& node) {
  const Type& x = node.in_type(0);
  if (x.shape.rank() != 4 || !is_storage_float(x.dtype)) return refuse_type("x", "floating [N, H, W, C]", x);
  const Pool pool = forward_pool(node);
  if (auto error = check(pool); !error.empty()) return refuse(error);
  const Shape out{pool.batch, pool.out_h, pool.out_w, pool.channels};
  return {.out = {{.dtype = x.dtype, .shape = out}, {.dtype = DType::u8, .shape = out}}, .error = ""};
}

Inferred infer_grad(const NodeView& node) {
  const Type& dy = node.in_type(0);
  if (dy.shape.rank() != 4 || !is_storage_float(dy.dtype))
    return refuse_type("dy", "floating [N, H, W, C]", dy);
  const Pool pool = backward_pool(node);
  if (auto error = check(pool); !error.empty()) return refuse(error);
  if (dy.shape[1] != pool.out_h || dy.shape[2] != pool.out_w)
    return refuse_type("dy", fmt::format("{} x {}", pool.out_h, pool.out_w), dy);
  if (node.in_type(1) != Type{.dtype = DType::u8, .shape = dy.shape})
    return refuse_type("argmax", "u8 of the shape of dy", node.in_type(1));
  return {.out = {{.dtype = dy.dtype, .shape = {pool.batch, pool.in_h, pool.in_w, pool.channels}}},
          .error = ""};
}

Kernel kernel(const NodeView& node) {
  const Pool pool = forward_pool(node);
  if (pool.is_wide()) return wide_max_pool(pool, node.num_threads);
  return pixel_kernel(pool, pool.out_h, pool.out_w, pool_pixel);
}
Kernel grad_kernel(const NodeView& node) {
  const Pool pool = backward_pool(node);
  if (pool.is_wide()) return wide_max_pool_grad(pool, node.num_threads);
  return pixel_kernel(pool, pool.in_h, pool.in_w, grad_pixel);
}

/// Calls body(index in the output, index in the input, index in the window) for every window element inside
/// of the image, in window order.
template <typename Body>
void for_each_tap(const Pool& pool, Body body) {
  const int64_t outs = pool.batch * pool.out_h * pool.out_w * pool.channels;
  for (int64_t o = 0; o < outs; ++o) {
    const int64_t c = o % pool.channels, pixel = o / pool.channels;
    const int64_t ox = pixel % pool.out_w, oy = pixel / pool.out_w % pool.out_h;
    const int64_t n = pixel / (pool.out_w * pool.out_h);
    for (int64_t k = 0; k < pool.kernel * pool.kernel; ++k) {
      const int64_t y = oy * pool.stride - pool.padding + k / pool.kernel;
      const int64_t x = ox * pool.stride - pool.padding + k % pool.kernel;
      if (y < 0 || x < 0 || y >= pool.in_h || x >= pool.in_w) continue;
      body(static_cast<size_t>(o), static_cast<size_t>(pool.in_at(n, y, x) + c), static_cast<double>(k));
    }
  }
}

void reference(const ReferenceArgs& args) {
  std::fill(args.out[0].begin(), args.out[0].end(), -INFINITY);
  for_each_tap(forward_pool(args.node), [&](size_t o, size_t i, double k) {
    if (!(args.in[0][i] > args.out[0][o])) return;
    args.out[0][o] = args.in[0][i];
    args.out[1][o] = k;
  });
}

void grad_reference(const ReferenceArgs& args) {
  std::fill(args.out[0].begin(), args.out[0].end(), 0.0);
  for_each_tap(backward_pool(args.node), [&](size_t o, size_t i, double k) {
    if (args.in[1][o] == k) args.out[0][i] += args.in[0][o];
  });
}

std::vector<ValueId> vjp(const VjpContext& context) {
  if (context.grad_out[0] == kNone) return {kNone};
  const ir::Node node = context.node;
  Attrs attrs = node.attrs;
  const Shape shape = context.graph.type(node.inputs[0]).shape;
  attrs.set("in_h", shape[1]);
  attrs.set("in_w", shape[2]);
  return {emit(context, "max_pool2d_grad", {context.grad_out[0], node.outputs[1]}, attrs)};
}

Cost cost(const NodeView& node) {
  const auto k = static_cast<double>(node.attrs.integer("kernel"));
  return cost_per_element(node, k * k);
}
Cost grad_cost(const NodeView& node) { return cost_per_element(node, 2); }

Sample sample(const Shape& x, int64_t kernel, int64_t stride, int64_t padding, DType dtype = DType::f32) {
  return {.in = {normal(x, dtype)}, .attrs = {{"kernel", kernel}, {"stride", stride}, {"padding", padding}}};
}
std::vector<Sample> samples() {
  return {sample({2, 6, 8, 5}, 2, 2, 0),
          sample({2, 7, 9, 19}, 3, 2, 1),
          sample({1, 5, 5, 3}, 3, 1, 1),
          sample({1, 4, 4, 1030}, 2, 2, 0),
          sample({2, 6, 6, 17}, 2, 2, 0, DType::bf16),
          sample({2, 7, 9, 12}, 3, 2, 1),
          sample({2, 7, 9, 72}, 3, 2, 1, DType::bf16),
          sample({2, 7, 6, 5}, 5, 1, 2),
          sample({1, 5, 9, 70}, 9, 1, 4),
          sample({1, 20, 13, 3}, 13, 1, 6),
          sample({1, 14, 17, 66}, 7, 2, 3, DType::bf16)};
}

Sample grad_sample(const Shape& dy, int64_t in, int64_t kernel, int64_t stride, int64_t padding,
                   DType dtype = DType::f32) {
  return {
      .in = {normal(dy, dtype), indices(dy, kernel * kernel, DType::u8)},
      .attrs = {{"in_h", in}, {"in_w", in}, {"kernel", kernel}, {"stride", stride}, {"padding", padding}}};
}
std::vector<Sample> grad_samples() {
  return {grad_sample({2, 3, 3, 5}, 6, 2, 2, 0),
          grad_sample({2, 3, 3, 5}, 7, 2, 2, 0),
          grad_sample({2, 4, 4, 19}, 7, 3, 2, 1),
          grad_sample({1, 2, 2, 1030}, 4, 2, 2, 0),
          grad_sample({2, 3, 3, 17}, 6, 2, 2, 0, DType::bf16),
          grad_sample({2, 4, 4, 12}, 7, 3, 2, 1),
          grad_sample({2, 4, 4, 72}, 7, 3, 2, 1, DType::bf16),
          grad_sample({2, 7, 7, 5}, 7, 5, 1, 2),
          grad_sample({1, 9, 9, 70}, 9, 9, 1, 4),
          grad_sample({1, 7, 7, 3}, 14, 7, 2, 3),
          grad_sample({1, 16, 16, 66}, 16, 13, 1, 6, DType::bf16)};
}

}  // namespace

const OpDef max_pool2d{.name = "max_pool2d",
                       .doc = "max_pool2d(x [N, H, W, C]): y and argmax u8 (index in the window)",
                       .inputs = {"x"},
                       .infer = infer,
                       .vjp = vjp,
                       .cpu = kernel,
                       .gpu = true,
                       .reference = reference,
                       .cost = cost,
                       .samples = samples};

const OpDef max_pool2d_grad{.name = "max_pool2d_grad",
                            .doc = "max_pool2d_grad(dy, argmax): dx [N, in_h, in_w, C]",
                            .inputs = {"dy", "argmax"},
                            .infer = infer_grad,
                            .no_vjp_because = kNoSecondDerivatives,
                            .cpu = grad_kernel,
                            .gpu = true,
                            .reference = grad_reference,
                            .cost = grad_cost,
                            .samples = grad_samples};

}  // namespace hearth::ops
