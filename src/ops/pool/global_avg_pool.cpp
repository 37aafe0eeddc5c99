#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "ops/pool/pool.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

constexpr int64_t kChannels = 1024;

HEARTH_CLONES void add_run(const float* in, float* sum, int64_t count) {
  for (int64_t c = 0; c < count; ++c) sum[c] += in[c];
}
HEARTH_CLONES void scale_run(const float* in, float* out, float scale, int64_t count) {
  for (int64_t c = 0; c < count; ++c) out[c] = in[c] * scale;
}

/// Shape of the images of a node.
struct Job {
  DType dtype;
  int64_t pixels;
  int64_t channels;
};

void average_image(const Job& job, const KernelArgs& args, int64_t n, int64_t c, int64_t count) {
  alignas(64) float sum[kChannels] = {};
  alignas(64) float scratch[kChannels];
  for (int64_t p = 0; p < job.pixels; ++p)
    add_run(cpu::as_f32(job.dtype, args.in[0], (n * job.pixels + p) * job.channels + c, count, scratch), sum,
            count);
  scale_run(sum, sum, 1.0F / static_cast<float>(job.pixels), count);
  cpu::store_f32(job.dtype, sum, args.out[0], n * job.channels + c, count);
}

void spread_image(const Job& job, const KernelArgs& args, int64_t n, int64_t c, int64_t count) {
  alignas(64) float share[kChannels];
  alignas(64) float scratch[kChannels];
  scale_run(cpu::as_f32(job.dtype, args.in[0], n * job.channels + c, count, scratch), share,
            1.0F / static_cast<float>(job.pixels), count);
  for (int64_t p = 0; p < job.pixels; ++p)
    cpu::store_f32(job.dtype, share, args.out[0], (n * job.pixels + p) * job.channels + c, count);
}

Kernel image_kernel(const Job& job, int64_t batch,
                    void (*image)(const Job&, const KernelArgs&, int64_t, int64_t, int64_t)) {
  const auto run = [=](const KernelArgs& args) {
    const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, job.pixels * job.channels));
    args.threads->parallel_for(batch, grain, [&](Range images) {
      for (int64_t n = images.begin; n < images.end; ++n) {
        for (int64_t c = 0; c < job.channels; c += kChannels)
          image(job, args, n, c, std::min(kChannels, job.channels - c));
      }
    });
  };
  return {.run = run, .workspace_bytes = 0};
}

Inferred infer(const NodeView& node) {
  const Type& x = node.in_type(0);
  if (x.shape.rank() != 4 || !is_storage_float(x.dtype)) return refuse_type("x", "floating [N, H, W, C]", x);
  if (x.shape[1] * x.shape[2] == 0) return refuse_type("x", "an image with pixels", x);
  return {.out = {{.dtype = x.dtype, .shape = {x.shape[0], x.shape[3]}}}, .error = ""};
}
Inferred infer_grad(const NodeView& node) {
  const Type& dy = node.in_type(0);
  if (dy.shape.rank() != 2 || !is_storage_float(dy.dtype)) return refuse_type("dy", "floating [N, C]", dy);
  const int64_t h = node.attrs.integer("height"), w = node.attrs.integer("width");
  if (h < 1 || w < 1) return refuse("expected a positive height and width");
  return {.out = {{.dtype = dy.dtype, .shape = {dy.shape[0], h, w, dy.shape[1]}}}, .error = ""};
}

Kernel kernel(const NodeView& node) {
  const Shape& x = node.in_type(0).shape;
  return image_kernel({.dtype = node.in_type(0).dtype, .pixels = x[1] * x[2], .channels = x[3]}, x[0],
                      average_image);
}
Kernel grad_kernel(const NodeView& node) {
  const Shape& dy = node.in_type(0).shape;
  const int64_t pixels = node.attrs.integer("height") * node.attrs.integer("width");
  return image_kernel({.dtype = node.in_type(0).dtype, .pixels = pixels, .channels = dy[1]}, dy[0],
                      spread_image);
}

void reference(const ReferenceArgs& args) {
  const Shape& x = args.node.in_type(0).shape;
  const auto channels = static_cast<size_t>(x[3]), pixels = static_cast<size_t>(x[1] * x[2]);
  std::fill(args.out[0].begin(), args.out[0].end(), 0.0);
  for (size_t i = 0; i < args.in[0].size(); ++i) {
    args.out[0][i / (channels * pixels) * channels + i % channels] +=
        args.in[0][i] / static_cast<double>(pixels);
  }
}
void grad_reference(const ReferenceArgs& args) {
  const auto channels = static_cast<size_t>(args.node.in_type(0).shape[1]);
  const auto pixels =
      static_cast<size_t>(args.node.attrs.integer("height") * args.node.attrs.integer("width"));
  for (size_t i = 0; i < args.out[0].size(); ++i) {
    args.out[0][i] =
        args.in[0][i / (channels * pixels) * channels + i % channels] / static_cast<double>(pixels);
  }
}

std::vector<ValueId> vjp(const VjpContext& context) {
  if (context.grad_out[0] == kNone) return {kNone};
  const Shape x = context.graph.type(context.node.inputs[0]).shape;
  return {emit(context, "global_avg_pool_grad", {context.grad_out[0]}, {{"height", x[1]}, {"width", x[2]}})};
}

Cost cost(const NodeView& node) { return stream_cost(node, 1); }

std::vector<Sample> samples() {
  return {{.in = {normal({3, 4, 4, 7})}, .attrs = {}},
          {.in = {normal({3, 4, 4, 72})}, .attrs = {}},
          {.in = {normal({2, 3, 5, 1031})}, .attrs = {}},
          {.in = {normal({2, 3, 3, 20}, DType::bf16)}, .attrs = {}},
          {.in = {normal({3, 3, 3, 72}, DType::bf16)}, .attrs = {}}};
}
std::vector<Sample> grad_samples() {
  const Attrs attrs = {{"height", int64_t{3}}, {"width", int64_t{5}}};
  return {{.in = {normal({3, 7})}, .attrs = attrs},
          {.in = {normal({3, 72})}, .attrs = attrs},
          {.in = {normal({2, 1031})}, .attrs = attrs},
          {.in = {normal({2, 20}, DType::bf16)}, .attrs = attrs},
          {.in = {normal({3, 72}, DType::bf16)}, .attrs = attrs}};
}

}  // namespace

const OpDef global_avg_pool{.name = "global_avg_pool",
                            .doc = "global_avg_pool(x [N, H, W, C]): [N, C], the mean over the image",
                            .inputs = {"x"},
                            .infer = infer,
                            .vjp = vjp,
                            .cpu = kernel,
                            .gpu = true,
                            .reference = reference,
                            .cost = cost,
                            .samples = samples};

const OpDef global_avg_pool_grad{.name = "global_avg_pool_grad",
                                 .doc = "global_avg_pool_grad(dy [N, C]): dx [N, height, width, C]",
                                 .inputs = {"dy"},
                                 .infer = infer_grad,
                                 .no_vjp_because = kNoSecondDerivatives,
                                 .cpu = grad_kernel,
                                 .gpu = true,
                                 .reference = grad_reference,
                                 .cost = cost,
                                 .samples = grad_samples};

}  // namespace hearth::ops
