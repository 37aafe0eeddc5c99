// Depthwise convolution on the CPU. A thread loads the source rows of a block of kRows output rows. For each
// stretch of pixels that have the same taps inside of the image, a SIMD kernel then sums the taps in
// registers, with vectors along channels. The input gradient is the same pass from dy to dx. The weight
// gradient has partial sums for parts of the rows, which are then added in order.
#include "ops/conv/depthwise_cpu.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/convert.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd/simd.h"

namespace hearth::cpu {
namespace {

/// Rows, columns and channels of the output tile that a thread computes at a time; the inputs of a tile fit
/// in the L1 cache.
constexpr int64_t kRows = 4, kColumns = 8, kChannels = 96;
/// Number of output columns over which weight gradients are summed in registers before they are added to
/// memory.
constexpr int64_t kSummedColumns = 16;

int64_t num_blocks(int64_t rows) { return (rows + kRows - 1) / kRows; }
int64_t taps_bytes(const ConvShape& s) {
  return round_up(s.kernel_h * s.kernel_w * static_cast<int64_t>(sizeof(DepthwiseTap)), 64);
}
/// Returns the tap list of output row `row` (of kRows) in a thread's workspace `room`.
DepthwiseTap* taps_of(std::byte* room, const ConvShape& s, int64_t row) {
  return reinterpret_cast<DepthwiseTap*>(room + row * taps_bytes(s));
}
int64_t num_weights(const ConvShape& s) { return s.kernel_h * s.kernel_w * s.out_c; }

/// Reader of source rows as f32. With a channel multiplier, each channel is repeated for every output channel
/// of its group.
struct SourceRows {
  DType dtype;
  const void* data;
  int64_t width, channels, repeats;

  int64_t row_floats() const { return width * channels * repeats; }
  /// True if rows are used where they are in `data`, without a copy.
  bool in_place() const { return dtype == DType::f32 && repeats == 1; }

  /// Returns `rows` of an image as f32, in `data` itself or loaded to `scratch`. `image` is the index in the
  /// batch of the image's first row.
  const float* take(int64_t image, Range rows, float* scratch) const {
    const int64_t local = width * channels;
    if (in_place()) return static_cast<const float*>(data) + (image + rows.begin) * local;
    for (int64_t y = rows.begin; y < rows.end; ++y) {
      float* to = scratch + (y - rows.begin) * row_floats();
      // Loads the row to the end of its row of scratch, so that repeating channels in place overwrites none
      // before it is read.
      float* from = to + local * (repeats - 1);
      load_f32(dtype, data, (image + y) * local, local, from);
      if (repeats == 1) continue;
      for (int64_t i = 0; i < local; ++i) std::fill_n(to + i * repeats, repeats, from[i]);
    }
    return scratch;
  }
};

/// Sums the `repeats` elements of each channel i into row[i], in place.
void join_repeats(float* row, int64_t count, int64_t repeats) {
  for (int64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int64_t j = 0; j < repeats; ++j) sum += row[i * repeats + j];
    row[i] = sum;
  }
}

/// Writes the taps of a stretch for output row `row` to `taps` and returns the SIMD kernel's arguments.
/// `sources` holds source rows from row `first` on; `w` is [taps][channels].
DepthwiseRun run_of(const DepthwisePass& pass, const ConvShape& s, const DepthwisePass::Stretch& stretch,
                    int64_t row, const float* sources, int64_t first, float* w, DepthwiseTap* taps) {
  DepthwiseRun run{.taps = taps,
                   .count = stretch.count,
                   .in_step = pass.in_step() * s.out_c,
                   .out_step = pass.out_step() * s.out_c,
                   .channels = s.out_c};
  for (int64_t ky = 0; ky < s.kernel_h; ++ky) {
    const int64_t y = pass.source_row(row, ky);
    if (y < 0) continue;
    if (pass.is_even()) run.row_taps = std::ssize(stretch.taps);
    for (const DepthwisePass::Stretch::Tap& tap : stretch.taps) {
      taps[run.num_taps++] = {sources + ((y - first) * pass.in_w() + tap.source) * s.out_c,
                              w + (ky * s.kernel_w + tap.number) * s.out_c};
    }
  }
  return run;
}

/// Splits the runs of several rows, all of one stretch, into parts of `columns` pixels and kChannels
/// channels. Calls body(row, the row's part) for all rows of a part before the next part.
template <typename Body>
void for_each_part(DepthwiseRun* runs, int64_t num_rows, int64_t columns, Body body) {
  const int64_t count = runs[0].count, channels = runs[0].channels;
  for (int64_t x = 0; x < count; x += columns) {
    for (int64_t c = 0; c < channels; c += kChannels) {
      for (int64_t y = 0; y < num_rows; ++y) {
        runs[y].first = x;
        runs[y].count = std::min(columns, count - x);
        runs[y].channel = c;
        runs[y].channels = std::min(kChannels, channels - c);
        body(y, runs[y]);
      }
    }
  }
}

/// Maximum number of source rows that kRows output rows read.
int64_t max_source_rows(const ConvShape& s, const DepthwisePass& pass, bool backward) {
  const int64_t reach =
      backward ? (kRows - 1 + s.span_h() - 1) / s.stride + 1 : (kRows - 1) * s.stride + s.span_h();
  return std::min(pass.in_h(), reach);
}

SourceRows rows_of_x(const ConvSpec& spec, const void* x) {
  return {spec.x, x, spec.shape.in_w, spec.shape.in_c, spec.shape.group_out()};
}
SourceRows rows_of_dy(const ConvSpec& spec, const void* dy) {
  return {spec.x, dy, spec.shape.out_w(), spec.shape.out_c, 1};
}
int64_t scratch_floats(const SourceRows& source, int64_t rows) {
  return source.in_place() ? 0 : rows * source.row_floats();
}

/// Computes each output row into the array [out_w][out_c] that to(row, buffer) returns, then calls
/// finish(row, that array, a scratch buffer of the same size).
template <typename To, typename Finish>
void make_rows(const ConvSpec& spec, const DepthwisePass& pass, const SourceRows& source, int64_t source_rows,
               const void* w, std::byte* workspace, ThreadPool& threads, To to, Finish finish) {
  const ConvShape& s = spec.shape;
  auto* weights = reinterpret_cast<float*>(workspace);
  load_f32(spec.w, w, 0, num_weights(s), weights);
  const int64_t row_floats = pass.out_w() * s.out_c, blocks = num_blocks(pass.out_h());
  const int64_t source_floats = scratch_floats(source, source_rows);
  std::byte* of_threads = workspace + round_up(float_bytes(num_weights(s)), 64);
  const int64_t thread_bytes = kRows * taps_bytes(s) + float_bytes(source_floats + (kRows + 1) * row_floats);
  threads.run_tasks(s.batch * blocks, spec.num_threads, [&](int64_t task, int thread) {
    std::byte* local = of_threads + thread * thread_bytes;
    auto* rows = reinterpret_cast<float*>(local + kRows * taps_bytes(s));
    float* scratch = rows + source_floats;
    const int64_t image = task / blocks, begin = task % blocks * kRows;
    const Range result{begin, std::min(begin + kRows, pass.out_h())};
    const Range seen = pass.source_rows(result);
    const float* sources = source.take(image * pass.in_h(), seen, rows);
    const int64_t first_row = image * pass.out_h() + result.begin;
    float* sums[kRows];
    for (int64_t y = 0; y < result.size(); ++y) sums[y] = to(first_row + y, scratch + y * row_floats);
    for (const DepthwisePass::Stretch& stretch : pass.stretches()) {
      DepthwiseRun runs[kRows];
      for (int64_t y = 0; y < result.size(); ++y)
        runs[y] =
            run_of(pass, s, stretch, result.begin + y, sources, seen.begin, weights, taps_of(local, s, y));
      for_each_part(runs, result.size(), kColumns, [&](int64_t y, const DepthwiseRun& run) {
        simd().depthwise(run, sums[y] + stretch.first * s.out_c);
      });
    }
    for (int64_t y = 0; y < result.size(); ++y) finish(first_row + y, sums[y], scratch + kRows * row_floats);
  });
}

}  // namespace

DepthwisePass::DepthwisePass(const ConvShape& shape, bool backward) : s_(shape), backward_(backward) {
  const int64_t step = out_step();
  for (int64_t first = 0; first < std::min(step, out_w()); ++first) {
    for (int64_t x = first; x < out_w(); x += step) {
      Stretch next{.first = x, .count = 1, .taps = {}};
      for (int64_t i = 0; i < s_.kernel_w; ++i) {
        const int64_t tap = backward_ ? s_.kernel_w - 1 - i : i;
        if (const int64_t found = source(x, tap, in_w()); found >= 0) next.taps.push_back({tap, found});
      }
      const auto same_tap = [](const Stretch::Tap& a, const Stretch::Tap& b) { return a.number == b.number; };
      if (x > first && std::ranges::equal(stretches_.back().taps, next.taps, same_tap)) {
        ++stretches_.back().count;
      } else {
        stretches_.push_back(std::move(next));
      }
    }
  }
}

int64_t DepthwisePass::source(int64_t at, int64_t tap, int64_t length) const {
  const int64_t reach = tap * s_.dilation - s_.padding;
  if (backward_ && (at - reach < 0 || (at - reach) % s_.stride != 0)) return -1;
  const int64_t found = backward_ ? (at - reach) / s_.stride : at * s_.stride + reach;
  return found < length ? std::max<int64_t>(found, -1) : -1;
}

Range DepthwisePass::source_rows(Range rows) const {
  Range found{in_h(), 0};
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (int64_t tap = 0; tap < s_.kernel_h; ++tap) {
      const int64_t y = source_row(row, tap);
      if (y >= 0) found = {std::min(found.begin, y), std::max(found.end, y + 1)};
    }
  }
  return found.end > 0 ? found : Range{0, 0};
}

DepthwiseConv::DepthwiseConv(const ConvSpec& spec)
    : spec_(spec), forward_(spec.shape, false), backward_(spec.shape, true) {}

int64_t DepthwiseConv::pass_workspace_bytes(bool backward) const {
  const DepthwisePass& pass = backward ? backward_ : forward_;
  const SourceRows source = backward ? rows_of_dy(spec_, nullptr) : rows_of_x(spec_, nullptr);
  const int64_t source_floats = scratch_floats(source, max_source_rows(spec_.shape, pass, backward));
  return round_up(float_bytes(num_weights(spec_.shape)), 64) +
         spec_.num_threads * (kRows * taps_bytes(spec_.shape) +
                              float_bytes(source_floats + (kRows + 1) * pass.out_w() * spec_.shape.out_c));
}

void DepthwiseConv::forward(const void* x, const void* w, const float* bias, const void* residual, void* y,
                            std::byte* workspace, ThreadPool& threads) const {
  const int64_t channels = spec_.shape.out_c, row_floats = forward_.out_w() * channels;
  const auto to = [&](int64_t row, float* scratch) {
    return spec_.x == DType::f32 ? static_cast<float*>(y) + row * row_floats : scratch;
  };
  const auto finish = [&](int64_t row, float* sums, float* scratch) {
    const int64_t at = row * row_floats;
    const float* more = residual == nullptr ? nullptr : as_f32(spec_.x, residual, at, row_floats, scratch);
    if (bias != nullptr || more != nullptr || spec_.relu) {
      for (int64_t i = 0; i < row_floats; i += channels)
        finish_row(sums + i, channels, bias, more == nullptr ? nullptr : more + i, spec_.relu);
    }
    store_f32(spec_.x, sums, y, at, row_floats);
  };
  make_rows(spec_, forward_, rows_of_x(spec_, x), max_source_rows(spec_.shape, forward_, false), w, workspace,
            threads, to, finish);
}

void DepthwiseConv::backward_data(const void* dy, const void* w, void* dx, std::byte* workspace,
                                  ThreadPool& threads) const {
  const ConvShape& s = spec_.shape;
  const int64_t row_floats = s.in_w * s.in_c, repeats = s.group_out();
  const auto to = [&](int64_t row, float* scratch) {
    const bool in_place = spec_.x == DType::f32 && repeats == 1;
    return in_place ? static_cast<float*>(dx) + row * row_floats : scratch;
  };
  const auto finish = [&](int64_t row, float* sums, float*) {
    if (repeats > 1) join_repeats(sums, row_floats, repeats);
    store_f32(spec_.x, sums, dx, row * row_floats, row_floats);
  };
  make_rows(spec_, backward_, rows_of_dy(spec_, dy), max_source_rows(s, backward_, true), w, workspace,
            threads, to, finish);
}

namespace {

/// Split of a weight gradient's sum over rows of pixels: each part has its own partial sums, which are added
/// in order. The number of parts depends only on the shape, so that results do not depend on the number of
/// threads.
struct WeightParts {
  int num_parts;
  int64_t rows_of_x, thread_bytes;

  WeightParts(const ConvSpec& spec, const DepthwisePass& pass) {
    constexpr int64_t kMinElements = 16 * 1024;
    const ConvShape& s = spec.shape;
    const int64_t row_floats = s.out_w() * s.out_c;
    num_parts = num_sum_parts(s.batch * num_blocks(s.out_h()) * row_floats, kMinElements);
    rows_of_x = scratch_floats(cpu::rows_of_x(spec, nullptr), max_source_rows(s, pass, false));
    thread_bytes = kRows * taps_bytes(s) + float_bytes(rows_of_x + kRows * row_floats);
  }
};

}  // namespace

int64_t DepthwiseConv::weights_workspace_bytes() const {
  const WeightParts parts(spec_, forward_);
  return round_up(float_bytes(parts.num_parts * num_weights(spec_.shape)), 64) +
         spec_.num_threads * parts.thread_bytes;
}

void DepthwiseConv::backward_weights(const void* x, const void* dy, float* dw, std::byte* workspace,
                                     ThreadPool& threads) const {
  const ConvShape& s = spec_.shape;
  const WeightParts parts(spec_, forward_);
  const SourceRows source = rows_of_x(spec_, x), given = rows_of_dy(spec_, dy);
  const int64_t blocks = num_blocks(s.out_h()), total = num_weights(s);
  auto* all_sums = reinterpret_cast<float*>(workspace);
  std::byte* of_threads = workspace + round_up(float_bytes(parts.num_parts * total), 64);
  threads.run_tasks(parts.num_parts, spec_.num_threads, [&](int64_t part, int thread) {
    std::byte* local = of_threads + thread * parts.thread_bytes;
    auto* rows = reinterpret_cast<float*>(local + kRows * taps_bytes(s));
    float* sums = all_sums + part * total;
    std::fill_n(sums, total, 0.0F);
    const Range mine = split_range(s.batch * blocks, parts.num_parts, static_cast<int>(part));
    for (int64_t block = mine.begin; block < mine.end; ++block) {
      const int64_t image = block / blocks, begin = block % blocks * kRows;
      const Range result{begin, std::min(begin + kRows, s.out_h())};
      const Range seen = forward_.source_rows(result);
      const float* sources = source.take(image * s.in_h, seen, rows);
      const float* dys = given.take(image * s.out_h(), result, rows + parts.rows_of_x);
      for (const DepthwisePass::Stretch& stretch : forward_.stretches()) {
        DepthwiseRun runs[kRows];
        for (int64_t y = 0; y < result.size(); ++y)
          runs[y] =
              run_of(forward_, s, stretch, result.begin + y, sources, seen.begin, sums, taps_of(local, s, y));
        for_each_part(runs, result.size(), kSummedColumns, [&](int64_t y, const DepthwiseRun& run) {
          simd().depthwise_weights(run, dys + (y * s.out_w() + stretch.first) * s.out_c);
        });
      }
    }
  });
  std::memcpy(dw, all_sums, static_cast<size_t>(total) * sizeof(float));
  for (int part = 1; part < parts.num_parts; ++part) add_row(all_sums + part * total, dw, total);
}

}  // namespace hearth::cpu
