#include <algorithm>
#include <cmath>

#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "ops/pool/pool.h"
#include "ops/pool/resize_axis.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

/// Number of elements converted to f32 at a time.
constexpr int64_t kChunk = 1024;

/// Resampling of one axis: output element i is the weighted sum of spans[i].count source elements from
/// spans[i].first on, with the weights shares[spans[i].at], shares[spans[i].at + 1], ...
struct Taps {
  struct Span {
    int first, count;
    size_t at;
  };
  std::vector<Span> spans;
  std::vector<float> shares;
};

Taps taps_of(const ResizeAxis& axis) {
  Taps taps;
  for (int result = 0; result < axis.num_made(); ++result) {
    auto [first, last] = axis.reads(result);
    while (first < last && axis.share(result, first) == 0) ++first;
    while (first < last && axis.share(result, last) == 0) --last;
    taps.spans.push_back({.first = first, .count = last - first + 1, .at = taps.shares.size()});
    for (int read = first; read <= last; ++read) taps.shares.push_back(axis.share(result, read));
  }
  return taps;
}

HEARTH_CLONES void scale_into(const float* in, float share, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = share * in[i];
}
HEARTH_CLONES void add_share(const float* in, float share, float* sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += share * in[i];
}

/// Resamples one line [columns, channels] along its columns.
HEARTH_CLONES void blend_columns(const Taps& taps, const float* line, int64_t channels, float* out) {
  for (const Taps::Span& span : taps.spans) {
    const float* in = line + span.first * channels;
    const float* share = &taps.shares[span.at];
    if (span.count == 2) {
      const float left = share[0], right = share[1];
      for (int64_t c = 0; c < channels; ++c) out[c] = left * in[c] + right * in[channels + c];
    } else {
      for (int64_t c = 0; c < channels; ++c) out[c] = share[0] * in[c];
      for (int j = 1; j < span.count; ++j) {
        const float* next = in + j * channels;
        for (int64_t c = 0; c < channels; ++c) out[c] += share[j] * next[c];
      }
    }
    out += channels;
  }
}

/// Computes output images line by line: first the weighted sum of source lines, then the resampling of its
/// columns.
class Lines {
 public:
  Lines(const Resize& resize, DType dtype, int num_threads)
      : dtype_(dtype),
        batch_(resize.batch),
        channels_(resize.channels),
        read_height_(resize.y.num_read()),
        read_width_(resize.x.num_read()),
        rows_(taps_of(resize.y)),
        columns_(taps_of(resize.x)),
        num_threads_(num_threads) {}

  int64_t workspace_bytes() const { return num_threads_ * thread_floats() * int64_t{sizeof(float)}; }

  void run(const KernelArgs& args) const {
    const int64_t height = std::ssize(rows_.spans), num_lines = batch_ * height;
    const int64_t work = std::max(out_length(), in_length());
    const int64_t grain = std::clamp<int64_t>(kGrain / std::max<int64_t>(1, work), 1, num_lines);
    args.threads->run_tasks((num_lines + grain - 1) / grain, num_threads_, [&](int64_t task, int thread) {
      auto* scratch = reinterpret_cast<float*>(args.workspace) + thread * thread_floats();
      for (int64_t i = task * grain; i < std::min(num_lines, (task + 1) * grain); ++i)
        make_line(args, i, scratch);
    });
  }

 private:
  int64_t in_length() const { return read_width_ * channels_; }
  int64_t out_length() const { return std::ssize(columns_.spans) * channels_; }
  int64_t thread_floats() const { return in_length() + out_length(); }

  void make_line(const KernelArgs& args, int64_t index, float* scratch) const {
    const int64_t height = std::ssize(rows_.spans), length = out_length();
    const float* line = blend_rows(args.in[0], index / height, rows_.spans[index % height], scratch);
    if (dtype_ == DType::f32) {
      blend_columns(columns_, line, channels_, args.output<float>(0) + index * length);
      return;
    }
    float* result = scratch + in_length();
    blend_columns(columns_, line, channels_, result);
    cpu::store_f32(dtype_, result, args.out[0], index * length, length);
  }

  /// Returns the weighted sum of source lines as f32: `sum`, or the source line itself if it is f32 and the
  /// only one, with weight 1.
  const float* blend_rows(const void* images, int64_t image, Taps::Span span, float* sum) const {
    alignas(64) float chunk[kChunk];
    const int64_t length = in_length(), start = (image * read_height_ + span.first) * length;
    const float* share = &rows_.shares[span.at];
    if (span.count == 1 && *share == 1) return cpu::as_f32(dtype_, images, start, length, sum);
    for (int64_t at = 0; at < length; at += kChunk) {
      const int64_t count = std::min(kChunk, length - at);
      for (int i = 0; i < span.count; ++i) {
        const float* in = cpu::as_f32(dtype_, images, start + i * length + at, count, chunk);
        (i == 0 ? scale_into : add_share)(in, share[i], sum + at, count);
      }
    }
    return sum;
  }

  DType dtype_;
  int64_t batch_, channels_, read_height_, read_width_;
  Taps rows_, columns_;
  int num_threads_;
};

Kernel lines_kernel(const NodeView& node, bool back) {
  const Lines lines(resize_of(node, back), node.in_type(0).dtype, node.num_threads);
  return {.run = [=](const KernelArgs& args) { lines.run(args); },
          .workspace_bytes = lines.workspace_bytes()};
}

Inferred infer(const NodeView& node) {
  const Type& x = node.in_type(0);
  if (x.shape.rank() != 4 || !is_storage_float(x.dtype)) return refuse_type("x", "floating [N, H, W, C]", x);
  const int64_t height = node.attrs.integer("height"), width = node.attrs.integer("width");
  const auto fits = [](int64_t length) { return length >= 1 && length <= ResizeAxis::kMaxLength; };
  if (!fits(height) || !fits(width) || !fits(x.shape[1]) || !fits(x.shape[2]))
    return refuse(fmt::format("expected heights and widths in [1, {}]", ResizeAxis::kMaxLength));
  if (node.attrs.integer_or("align_corners", 0) != 0 && node.attrs.integer("linear") == 0)
    return refuse("align_corners requires linear=1");
  return {.out = {{.dtype = x.dtype, .shape = {x.shape[0], height, width, x.shape[3]}}}, .error = ""};
}

/// Reference: adds the terms of output pixel (y, x) to the output or, if `back`, to the gradient. Computes
/// positions by the definition, in floating point.
void add_pixel(const ReferenceArgs& args, const Resize& resize, bool back, int64_t n, int y, int x) {
  const auto taps = [](const ResizeAxis& axis, int o) {
    const double scale = static_cast<double>(axis.in) / axis.out;
    std::vector<std::pair<int, double>> result;
    if (!axis.linear) {
      result.emplace_back(static_cast<int>(std::floor(o * scale + 1e-9)), 1.0);
    } else {
      const double step = axis.out > 1 ? (axis.in - 1.0) / (axis.out - 1) : 0.0;
      // The minimum removes the rounding error of the last position, which must be in - 1.
      const double position =
          axis.aligned ? std::min(o * step, axis.in - 1.0) : std::max(0.0, (o + 0.5) * scale - 0.5);
      const int first = std::min(static_cast<int>(position), axis.in - 1);
      result.emplace_back(first, 1 - (position - first));
      result.emplace_back(std::min(first + 1, axis.in - 1), position - first);
    }
    return result;
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

/// Returns `attrs` with another height and width.
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

Cost cost(const NodeView& node) {
  const int64_t larger =
      std::max(node.in_type(0).shape.num_elements(), node.out_type(0).shape.num_elements());
  return {.flops = 8 * static_cast<double>(larger), .bytes = bytes_moved(node), .kernel = KernelKind::resize};
}

std::vector<Sample> samples() {
  const auto sample = [](const Shape& x, int64_t height, int64_t width, int64_t linear,
                         DType dtype = DType::f32) {
    return Sample{.in = {normal(x, dtype)},
                  .attrs = {{"height", height}, {"width", width}, {"linear", linear}}};
  };
  std::vector<Sample> result = {sample({2, 4, 5, 3}, 8, 10, 0),
                                sample({2, 4, 5, 3}, 8, 10, 1),
                                sample({1, 5, 7, 40}, 3, 11, 0),
                                sample({1, 5, 7, 40}, 3, 11, 1),
                                sample({3, 1, 9, 2}, 4, 1, 1),
                                sample({1, 2, 3, 2}, 16, 30, 1),
                                sample({1, 2, 2, 1031}, 3, 3, 1),
                                sample({2, 6, 4, 33}, 9, 8, 1, DType::bf16),
                                sample({2, 3, 4, 8}, 6, 8, 0, DType::f16),
                                sample({1, 2, 3, 16}, 3, 36, 1, DType::bf16)};
  for (Sample sample : {sample({2, 4, 5, 3}, 8, 10, 1), sample({1, 5, 7, 40}, 3, 11, 1),
                        sample({3, 1, 9, 2}, 4, 1, 1), sample({1, 9, 2, 2}, 17, 31, 1),
                        sample({1, 4, 5, 3}, 1, 2, 1), sample({2, 6, 4, 33}, 9, 8, 1, DType::bf16)}) {
    sample.attrs.set("align_corners", int64_t{1});
    result.push_back(std::move(sample));
  }
  return result;
}

std::vector<Sample> grad_samples() {
  std::vector<Sample> result = samples();
  for (Sample& sample : result) {
    ir::Type& type = sample.in[0].type;
    const Shape x = type.shape;
    type.shape = {x[0], sample.attrs.integer("height"), sample.attrs.integer("width"), x[3]};
    sample.attrs = of_size(sample.attrs, x[1], x[2]);
  }
  return result;
}

}  // namespace

const OpDef resize{.name = "resize",
                   .doc =
                       "resize(x [N, H, W, C]){height, width, linear, align_corners}: [N, height, width, C], "
                       "nearest or (linear=1) bilinear",
                   .inputs = {"x"},
                   .infer = infer,
                   .vjp = vjp,
                   .cpu = [](const NodeView& node) { return lines_kernel(node, false); },
                   .gpu = true,
                   .reference = [](const ReferenceArgs& args) { reference_of(args, false); },
                   .cost = cost,
                   .samples = samples};

const OpDef resize_grad{.name = "resize_grad",
                        .doc = "resize_grad(dy): dx [N, height, width, C]",
                        .inputs = {"dy"},
                        .infer = infer,
                        .no_vjp_because = kNoSecondDerivatives,
                        .cpu = [](const NodeView& node) { return lines_kernel(node, true); },
                        .gpu = true,
                        .reference = [](const ReferenceArgs& args) { reference_of(args, true); },
                        .cost = cost,
                        .samples = grad_samples};

}  // namespace hearth::ops
