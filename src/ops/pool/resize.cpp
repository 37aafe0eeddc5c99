#include <cmath>

#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "ops/pool/pool.h"
#include "ops/pool/resize_axis.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

constexpr int64_t kChannels = 1024;

HEARTH_CLONES void add_share(const float* in, float share, float* sum, int64_t count) {
  for (int64_t c = 0; c < count; ++c) sum[c] += share * in[c];
}

/// A line of images that is made, out of lines of others.
struct Line {
  const Resize& resize;
  DType dtype;
  int64_t image;
  int y;
};

void make_pixel(const Line& line, const void* from, int x, int64_t c, int64_t count, float* sum) {
  alignas(64) float scratch[kChannels];
  std::fill_n(sum, count, 0.0F);
  const ResizeAxis &down = line.resize.y, &across = line.resize.x;
  const auto rows = down.reads(line.y), columns = across.reads(x);
  for (int i = rows.first; i <= rows.last; ++i) {
    const float of_row = down.share(line.y, i);
    const int64_t row = (line.image * down.num_read() + i) * across.num_read();
    for (int j = columns.first; j <= columns.last; ++j) {
      const float share = of_row * across.share(x, j);
      if (share == 0) continue;
      const int64_t at = (row + j) * line.resize.channels + c;
      add_share(cpu::as_f32(line.dtype, from, at, count, scratch), share, sum, count);
    }
  }
}

void make_line(const Line& line, const KernelArgs& args, int64_t index) {
  alignas(64) float sum[kChannels];
  const int64_t channels = line.resize.channels, width = line.resize.x.num_made();
  for (int x = 0; x < width; ++x) {
    for (int64_t c = 0; c < channels; c += kChannels) {
      const int64_t count = std::min(kChannels, channels - c);
      make_pixel(line, args.in[0], x, c, count, sum);
      cpu::store_f32(line.dtype, sum, args.out[0], (index * width + x) * channels + c, count);
    }
  }
}

Kernel lines_kernel(const NodeView& node, bool back) {
  const Resize resize = resize_of(node, back);
  const DType dtype = node.in_type(0).dtype;
  const int64_t height = node.out_type(0).shape[1], elements = node.out_type(0).shape.num_elements();
  const auto run = [=](const KernelArgs& args) {
    const int64_t lines = resize.batch * height;
    const int64_t grain = std::max<int64_t>(1, kGrain * lines / std::max<int64_t>(1, elements));
    args.threads->parallel_for(lines, grain, [&](Range mine) {
      for (int64_t i = mine.begin; i < mine.end; ++i)
        make_line({.resize = resize, .dtype = dtype, .image = i / height, .y = static_cast<int>(i % height)},
                  args, i);
    });
  };
  return {.run = run};
}

Inferred infer(const NodeView& node) {
  const Type& x = node.in_type(0);
  if (x.shape.rank() != 4 || !is_storage_float(x.dtype)) return refuse_type("x", "floating [N, H, W, C]", x);
  const int64_t height = node.attrs.integer("height"), width = node.attrs.integer("width");
  const auto fits = [](int64_t length) { return length >= 1 && length <= ResizeAxis::kLongest; };
  if (!fits(height) || !fits(width) || !fits(x.shape[1]) || !fits(x.shape[2]))
    return refuse(fmt::format("expected heights and widths from 1 to {}", ResizeAxis::kLongest));
  if (node.attrs.integer_or("align_corners", 0) != 0 && node.attrs.integer("linear") == 0)
    return refuse("expected align_corners with linear=1 alone");
  return {.out = {{.dtype = x.dtype, .shape = {x.shape[0], height, width, x.shape[3]}}}, .error = ""};
}

/// Straight from the definition, in real numbers.
void add_pixel(const ReferenceArgs& args, const Resize& resize, bool back, int64_t n, int y, int x) {
  const auto taps = [](const ResizeAxis& axis, int o) {
    const double scale = static_cast<double>(axis.in) / axis.out;
    std::vector<std::pair<int, double>> made;
    if (!axis.linear) {
      made.emplace_back(static_cast<int>(std::floor(o * scale + 1e-9)), 1.0);
    } else {
      const double step = axis.out > 1 ? (axis.in - 1.0) / (axis.out - 1) : 0.0;
      // The last place is whole, but for rounding.
      const double place =
          axis.aligned ? std::min(o * step, axis.in - 1.0) : std::max(0.0, (o + 0.5) * scale - 0.5);
      const int first = std::min(static_cast<int>(place), axis.in - 1);
      made.emplace_back(first, 1 - (place - first));
      made.emplace_back(std::min(first + 1, axis.in - 1), place - first);
    }
    return made;
  };
  const auto channels = static_cast<size_t>(resize.channels);
  for (const auto& [i, of_row] : taps(resize.y, y)) {
    for (const auto& [j, of_column] : taps(resize.x, x)) {
      const auto in = static_cast<size_t>((n * resize.y.in + i) * resize.x.in + j) * channels;
      const auto out = static_cast<size_t>((n * resize.y.out + y) * resize.x.out + x) * channels;
      for (size_t c = 0; c < channels; ++c)
        args.out[0][(back ? in : out) + c] += of_row * of_column * args.in[0][(back ? out : in) + c];
    }
  }
}
void reference_of(const ReferenceArgs& args, bool back) {
  const Resize resize = resize_of(args.node, back);
  std::fill(args.out[0].begin(), args.out[0].end(), 0.0);
  for (int64_t n = 0; n < resize.batch; ++n) {
    for (int y = 0; y < resize.y.out; ++y) {
      for (int x = 0; x < resize.x.out; ++x) add_pixel(args, resize, back, n, y, x);
    }
  }
}

/// The attributes for images of another size.
Attrs of_size(Attrs attrs, int64_t height, int64_t width) {
  attrs.set("height", height);
  attrs.set("width", width);
  return attrs;
}

std::vector<ValueId> vjp(const VjpContext& context) {
  if (context.grad_out[0] == kNone) return {kNone};
  const Shape x = context.graph.type(context.node.inputs[0]).shape;
  return {emit(context, "resize_grad", {context.grad_out[0]}, of_size(context.node.attrs, x[1], x[2]))};
}

std::vector<Sample> samples() {
  const auto sample = [](const Shape& x, int64_t height, int64_t width, int64_t linear,
                         DType dtype = DType::f32) {
    return Sample{.in = {normal(x, dtype)},
                  .attrs = {{"height", height}, {"width", width}, {"linear", linear}}};
  };
  std::vector<Sample> made = {sample({2, 4, 5, 3}, 8, 10, 0),
                              sample({2, 4, 5, 3}, 8, 10, 1),
                              sample({1, 5, 7, 40}, 3, 11, 0),
                              sample({1, 5, 7, 40}, 3, 11, 1),
                              sample({3, 1, 9, 2}, 4, 1, 1),
                              sample({1, 2, 3, 2}, 16, 30, 1),
                              sample({1, 2, 2, 1031}, 3, 3, 1),
                              sample({2, 6, 4, 33}, 9, 8, 1, DType::bf16),
                              sample({2, 3, 4, 8}, 6, 8, 0, DType::f16)};
  for (Sample sample : {sample({2, 4, 5, 3}, 8, 10, 1), sample({1, 5, 7, 40}, 3, 11, 1),
                        sample({3, 1, 9, 2}, 4, 1, 1), sample({1, 9, 2, 2}, 17, 31, 1),
                        sample({1, 4, 5, 3}, 1, 2, 1), sample({2, 6, 4, 33}, 9, 8, 1, DType::bf16)}) {
    sample.attrs.set("align_corners", int64_t{1});
    made.push_back(std::move(sample));
  }
  return made;
}

std::vector<Sample> grad_samples() {
  std::vector<Sample> made = samples();
  for (Sample& sample : made) {
    ir::Type& type = sample.in[0].type;
    const Shape x = type.shape;
    type.shape = {x[0], sample.attrs.integer("height"), sample.attrs.integer("width"), x[3]};
    sample.attrs = of_size(sample.attrs, x[1], x[2]);
  }
  return made;
}

}  // namespace

const OpDef resize{.name = "resize",
                   .doc =
                       "resize(x [N, H, W, C]): [N, height, width, C], nearest or (linear=1) bilinear, that "
                       "with or without align_corners",
                   .inputs = {"x"},
                   .infer = infer,
                   .vjp = vjp,
                   .cpu = [](const NodeView& node) { return lines_kernel(node, false); },
                   .gpu = true,
                   .reference = [](const ReferenceArgs& args) { reference_of(args, false); },
                   .cost = [](const NodeView& node) { return stream_cost(node, 8); },
                   .samples = samples};

const OpDef resize_grad{.name = "resize_grad",
                        .doc = "resize_grad(dy): dx [N, height, width, C]",
                        .inputs = {"dy"},
                        .infer = infer,
                        .no_vjp_because = kNoSecondDerivatives,
                        .cpu = [](const NodeView& node) { return lines_kernel(node, true); },
                        .gpu = true,
                        .reference = [](const ReferenceArgs& args) { reference_of(args, true); },
                        .cost = [](const NodeView& node) { return stream_cost(node, 8); },
                        .samples = grad_samples};

}  // namespace hearth::ops
