#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "ops/pool/pool.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

constexpr int64_t kChannels = 1024;
/// Number of pixels per partial sum; partial sums limit the growth of rounding errors with the image size.
constexpr int64_t kRun = 64;

HEARTH_CLONES void multiply(const float* a, const float* b, float* out, int64_t count) {
  for (int64_t c = 0; c < count; ++c) out[c] = a[c] * b[c];
}
HEARTH_CLONES void add_products(const float* a, const float* b, float* sum, int64_t count) {
  for (int64_t c = 0; c < count; ++c) sum[c] += a[c] * b[c];
}
HEARTH_CLONES void add(const float* in, float* sum, int64_t count) {
  for (int64_t c = 0; c < count; ++c) sum[c] += in[c];
}

/// Shape of a batch of images.
struct Images {
  DType dtype;
  int64_t count, pixels, channels;
};
Images images_of(const Type& x) {
  return {.dtype = x.dtype, .count = x.shape[0], .pixels = x.shape[1] * x.shape[2], .channels = x.shape[3]};
}
Type per_channel(const Type& x) { return {.dtype = x.dtype, .shape = {x.shape[0], x.shape[3]}}; }

std::string check_images(const Type& x) {
  if (x.shape.rank() == 4 && is_storage_float(x.dtype)) return "";
  return fmt::format("expected floating [N, H, W, C], got {}", to_string(x));
}
Inferred infer_scale(const NodeView& node) {
  if (auto error = check_images(node.in_type(0)); !error.empty()) return refuse(error);
  const Type wanted = per_channel(node.in_type(0));
  if (node.in_type(1) != wanted) return refuse_type("the factors", to_string(wanted), node.in_type(1));
  return same_as_first(node);
}
Inferred infer_dot(const NodeView& node) {
  if (auto error = check_images(node.in_type(0)); !error.empty()) return refuse(error);
  if (node.in_type(1) != node.in_type(0))
    return refuse_type("b", to_string(node.in_type(0)), node.in_type(1));
  return {.out = {per_channel(node.in_type(0))}, .error = ""};
}

Kernel scale_kernel(const NodeView& node) {
  const Images images = images_of(node.in_type(0));
  return {.run = [images](const KernelArgs& args) {
    const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, images.channels));
    args.threads->parallel_for(images.count * images.pixels, grain, [&](Range pixels) {
      alignas(64) float scratch[kChannels], factors[kChannels];
      for (int64_t p = pixels.begin; p < pixels.end; ++p) {
        for (int64_t c = 0; c < images.channels; c += kChannels) {
          const int64_t n = std::min(kChannels, images.channels - c), at = p * images.channels + c;
          const float* x = cpu::as_f32(images.dtype, args.in[0], at, n, scratch);
          const float* s =
              cpu::as_f32(images.dtype, args.in[1], p / images.pixels * images.channels + c, n, factors);
          float* out = run_to_write(images.dtype, args.out[0], at, scratch);
          multiply(x, s, out, n);
          cpu::store_f32(images.dtype, out, args.out[0], at, n);
        }
      }
    });
  }};
}

/// Computes the dot products of the two inputs over the pixels of image i, for channels [c, c + n).
void dot_image(const Images& images, const KernelArgs& args, int64_t i, int64_t c, int64_t n) {
  alignas(64) float sum[kChannels] = {}, part[kChannels], a_scratch[kChannels], b_scratch[kChannels];
  for (int64_t begin = 0; begin < images.pixels; begin += kRun) {
    std::fill_n(part, n, 0.0F);
    for (int64_t p = begin; p < std::min(begin + kRun, images.pixels); ++p) {
      const int64_t at = (i * images.pixels + p) * images.channels + c;
      add_products(cpu::as_f32(images.dtype, args.in[0], at, n, a_scratch),
                   cpu::as_f32(images.dtype, args.in[1], at, n, b_scratch), part, n);
    }
    add(part, sum, n);
  }
  cpu::store_f32(images.dtype, sum, args.out[0], i * images.channels + c, n);
}

Kernel dot_kernel(const NodeView& node) {
  const Images images = images_of(node.in_type(0));
  return {.run = [images](const KernelArgs& args) {
    const int64_t grain =
        std::max<int64_t>(1, kGrain / std::max<int64_t>(1, images.pixels * images.channels));
    args.threads->parallel_for(images.count, grain, [&](Range range) {
      for (int64_t i = range.begin; i < range.end; ++i)
        for (int64_t c = 0; c < images.channels; c += kChannels)
          dot_image(images, args, i, c, std::min(kChannels, images.channels - c));
    });
  }};
}

/// Returns the index in the factors [N, C] for element i of the images.
size_t factor_of(const Images& images, size_t i) {
  const auto channels = static_cast<size_t>(images.channels), pixels = static_cast<size_t>(images.pixels);
  return i / (channels * pixels) * channels + i % channels;
}
void scale_reference(const ReferenceArgs& args) {
  const Images images = images_of(args.node.in_type(0));
  for (size_t i = 0; i < args.in[0].size(); ++i)
    args.out[0][i] = args.in[0][i] * args.in[1][factor_of(images, i)];
}
void dot_reference(const ReferenceArgs& args) {
  const Images images = images_of(args.node.in_type(0));
  std::ranges::fill(args.out[0], 0.0);
  for (size_t i = 0; i < args.in[0].size(); ++i)
    args.out[0][factor_of(images, i)] += args.in[0][i] * args.in[1][i];
}

constexpr std::pair<std::array<int64_t, 4>, DType> kSamples[] = {{{3, 4, 4, 7}, DType::f32},
                                                                 {{2, 11, 9, 72}, DType::f32},
                                                                 {{2, 3, 2, 1031}, DType::f32},
                                                                 {{2, 3, 3, 20}, DType::bf16},
                                                                 {{2, 9, 8, 72}, DType::bf16}};
template <bool scales>
std::vector<Sample> samples() {
  std::vector<Sample> result;
  for (const auto& [axes, dtype] : kSamples) {
    const Shape shape(std::vector<int64_t>(axes.begin(), axes.end()));
    result.push_back({.in = {normal(shape, dtype), normal(scales ? Shape{axes[0], axes[3]} : shape, dtype)}});
  }
  return result;
}

}  // namespace

const OpDef scale_channels{
    .name = "scale_channels",
    .doc = "scale_channels(x [N, H, W, C], s [N, C]): x times the factor of the image and channel",
    .inputs = {"x", "s"},
    .infer = infer_scale,
    .vjp = [](const VjpContext& c) -> std::vector<ValueId> {
      return {emit(c, "scale_channels", {c.grad_out[0], c.node.inputs[1]}),
              emit(c, "channel_dot", {c.grad_out[0], c.node.inputs[0]})};
    },
    .cpu = scale_kernel,
    .gpu = true,
    .reference = scale_reference,
    .cost = [](const NodeView& node) { return stream_cost(node, 1); },
    .may_work_in_place = true,
    .samples = samples<true>};

const OpDef channel_dot{.name = "channel_dot",
                        .doc = "channel_dot(a, b [N, H, W, C]): sum of a b over each image's pixels, [N, C]",
                        .inputs = {"a", "b"},
                        .infer = infer_dot,
                        .vjp = [](const VjpContext& c) -> std::vector<ValueId> {
                          return {emit(c, "scale_channels", {c.node.inputs[1], c.grad_out[0]}),
                                  emit(c, "scale_channels", {c.node.inputs[0], c.grad_out[0]})};
                        },
                        .cpu = dot_kernel,
                        .gpu = true,
                        .reference = dot_reference,
                        .cost = [](const NodeView& node) { return stream_cost(node, 2); },
                        .samples = samples<false>};

}  // namespace hearth::ops
