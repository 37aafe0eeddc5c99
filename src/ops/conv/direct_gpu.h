#pragma once

#include <algorithm>

#include "ops/conv/patches_gpu.h"
#include "ops/pool/pixels_gpu.h"
#include "ops/reduce/columns.h"

/// Grouped convolutions on GPUs without matrix instructions, because an output has too few products for a
/// matmul. A thread computes `n` adjacent channels of kRun adjacent pixels at a time; n > 1 requires that
/// each channel is a group.
namespace hearth::ops {

/// Shape of a convolution as a kernel parameter.
struct DeviceConv {
  int batch, in_h, in_w, in_c;
  int out_h, out_w, out_c;
  int kernel_h, kernel_w, stride, padding, dilation;
  int group_in, group_out;
};
inline DeviceConv device_conv(const cpu::ConvShape& s) {
  return {.batch = static_cast<int>(s.batch),
          .in_h = static_cast<int>(s.in_h),
          .in_w = static_cast<int>(s.in_w),
          .in_c = static_cast<int>(s.in_c),
          .out_h = static_cast<int>(s.out_h()),
          .out_w = static_cast<int>(s.out_w()),
          .out_c = static_cast<int>(s.out_c),
          .kernel_h = static_cast<int>(s.kernel_h),
          .kernel_w = static_cast<int>(s.kernel_w),
          .stride = static_cast<int>(s.stride),
          .padding = static_cast<int>(s.padding),
          .dilation = static_cast<int>(s.dilation),
          .group_in = static_cast<int>(s.group_in()),
          .group_out = static_cast<int>(s.group_out())};
}

/// Output arrays and epilogue of a convolution.
template <typename T>
struct Images {
  Epilogue<T> epilogue;
  const float* factors;  ///< scale per output channel, applied before the epilogue; or null
  T* y;
  float* moments;  ///< destination of the moments of y; or null

  RT_DEVICE T finished(float sum, int column, int64_t at) const {
    return epilogue(factors == nullptr ? sum : sum * factors[column], column, at);
  }
};

/// Adds a[c] * b[c] to sums[c].
template <typename T, int n>
RT_DEVICE void add_product(float (&sums)[n], const rt::Vec<T, n>& a, const rt::Vec<T, n>& b) {
  RT_UNROLL
  for (int c = 0; c < n; ++c) sums[c] += rt::to_float(a.at[c]) * rt::to_float(b.at[c]);
}

/// Number of adjacent pixels of a row (a run) that a thread computes at a time; each weight is loaded once
/// per run.
inline constexpr int kRun = 4;
/// Returns the first pixel of run `number`. A row of `width` pixels has ceil(width / kRun) runs.
RT_DEVICE Pixel run_at(int64_t number, int height, int width) {
  Pixel position = pixel_at(number, height, (width + kRun - 1) / kRun);
  position.x *= kRun;
  return position;
}
/// Returns the number of runs; UserError if it exceeds 32 bits.
inline int64_t counted_runs(int64_t batch, int64_t height, int64_t width) {
  return counted_pixels(batch, height, ceil_div(width, kRun));
}
/// True if 0 <= at < length.
RT_DEVICE bool is_within(int at, int length) {
  return static_cast<unsigned>(at) < static_cast<unsigned>(length);
}
/// Loads result[p] from column column_of(p) of a row of pixels; zeros if the column is -1. Branch-free, so
/// that all loads are in flight at once.
template <typename T, int n, typename ColumnOf>
RT_DEVICE void load_run(const T* line, int channels, ColumnOf column_of, rt::Vec<T, n> (&result)[kRun]) {
  RT_UNROLL
  for (int p = 0; p < kRun; ++p) {
    const int column = column_of(p);
    result[p] = rt::load<T, n>(line + int64_t{column < 0 ? 0 : column} * channels);
    if (column < 0) result[p] = {};
  }
}

template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads)
    convolve_groups(const T* x, const T* w, Images<T> out, DeviceConv s, int64_t runs) {
  const int channel = first_column<n>();
  if (channel >= s.out_c) return;
  const int first_in = channel / s.group_out * s.group_in;
  for (int64_t row = first_row(); row < runs; row += row_stride()) {
    const Pixel position = run_at(row, s.out_h, s.out_w);
    float sums[kRun][n] = {};
    for (int ky = 0; ky < s.kernel_h; ++ky) {
      const int in_y = position.y * s.stride - s.padding + ky * s.dilation;
      if (!is_within(in_y, s.in_h)) continue;
      const T* line = x + (position.image * s.in_h + in_y) * s.in_w * s.in_c + first_in;
      const T* weights = w + static_cast<int64_t>(ky * s.kernel_w) * s.group_in * s.out_c + channel;
      for (int tap = 0; tap < s.kernel_w * s.group_in; ++tap, weights += s.out_c) {
        const int kx = s.group_in == 1 ? tap : tap / s.group_in, c = tap - kx * s.group_in;
        const int first_x = position.x * s.stride - s.padding + kx * s.dilation;
        const rt::Vec<T, n> weight = rt::load<T, n>(weights);
        rt::Vec<T, n> seen[kRun];
        load_run(
            line + c, s.in_c,
            [&](int p) {
              const int in_x = first_x + p * s.stride;
              return is_within(in_x, s.in_w) ? in_x : -1;
            },
            seen);
        RT_UNROLL
        for (int p = 0; p < kRun; ++p) add_product(sums[p], seen[p], weight);
      }
    }
    RT_UNROLL
    for (int p = 0; p < kRun; ++p) {
      if (position.x + p >= s.out_w) continue;
      const int64_t at =
          ((position.image * s.out_h + position.y) * s.out_w + position.x + p) * s.out_c + channel;
      rt::Vec<T, n> result;
      RT_UNROLL
      for (int c = 0; c < n; ++c) result.at[c] = out.finished(sums[p][c], channel + c, at + c);
      rt::store(out.y + at, result);
    }
  }
}

/// Returns at / stride if `at` is a multiple of the stride and the quotient is below `length`; otherwise -1.
RT_DEVICE int before_stride(int at, int stride, int length) {
  const int found = stride == 1 ? at : at / stride;
  return at >= 0 && found * stride == at && found < length ? found : -1;
}

template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads)
    spread_groups(const T* dy, const T* w, const T* residual, T* dx, DeviceConv s, int64_t runs) {
  const int channel = first_column<n>();
  if (channel >= s.in_c) return;
  const int first_out = channel / s.group_in * s.group_out, within = channel % s.group_in;
  for (int64_t row = first_row(); row < runs; row += row_stride()) {
    const Pixel position = run_at(row, s.in_h, s.in_w);
    float sums[kRun][n] = {};
    for (int ky = 0; ky < s.kernel_h; ++ky) {
      const int y = before_stride(position.y + s.padding - ky * s.dilation, s.stride, s.out_h);
      if (y < 0) continue;
      const T* line = dy + (position.image * s.out_h + y) * s.out_w * s.out_c + first_out;
      for (int kx = 0; kx < s.kernel_w; ++kx) {
        const int first_x = position.x + s.padding - kx * s.dilation;
        const T* weights =
            w + static_cast<int64_t>((ky * s.kernel_w + kx) * s.group_in + within) * s.out_c + first_out;
        for (int o = 0; o < s.group_out; ++o) {
          const rt::Vec<T, n> weight = rt::load<T, n>(weights + o);
          rt::Vec<T, n> given[kRun];
          load_run(
              line + o, s.out_c, [&](int p) { return before_stride(first_x + p, s.stride, s.out_w); }, given);
          RT_UNROLL
          for (int p = 0; p < kRun; ++p) add_product(sums[p], given[p], weight);
        }
      }
    }
    RT_UNROLL
    for (int p = 0; p < kRun; ++p) {
      if (position.x + p >= s.in_w) continue;
      const int64_t at =
          ((position.image * s.in_h + position.y) * s.in_w + position.x + p) * s.in_c + channel;
      rt::Vec<T, n> result = {};
      if (residual != nullptr) result = rt::load<T, n>(residual + at);
      RT_UNROLL
      for (int c = 0; c < n; ++c) result.at[c] = rt::from_float<T>(sums[p][c] + rt::to_float(result.at[c]));
      rt::store(dx + at, result);
    }
  }
}

/// Number of kernel taps whose weight gradients a thread sums at once.
inline constexpr int kTapsPerThread = 3;
/// Partial weight gradients of kTapsPerThread taps of one channel.
struct TapSums {
  float at[kTapsPerThread];
  RT_DEVICE void join(const TapSums& more) {
    RT_UNROLL
    for (int t = 0; t < kTapsPerThread; ++t) at[t] += more.at[t];
  }
};

/// Computes partial sums of the weight gradient. blockIdx.z selects the taps and the input channel within the
/// group; blockIdx.y selects the part of the pixels.
template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads)
    add_group_weights(const T* x, const T* dy, float* parts, DeviceConv s, int64_t runs) {
  const int channel = first_column<n>();
  const int within = static_cast<int>(blockIdx.z) % s.group_in;
  const int first_tap = static_cast<int>(blockIdx.z) / s.group_in * kTapsPerThread;
  const int num_taps = s.kernel_h * s.kernel_w;
  const int in_channel = channel / s.group_out * s.group_in + within;
  // Coordinates in x that each tap reads for output pixel (0, 0); taps past the end of the kernel get a row
  // outside of every image.
  constexpr int kOutside = -(1 << 30);
  int tap_y[kTapsPerThread], tap_x[kTapsPerThread];
  RT_UNROLL
  for (int t = 0; t < kTapsPerThread; ++t) {
    const int tap = first_tap + t;
    tap_y[t] = tap < num_taps ? tap / s.kernel_w * s.dilation - s.padding : kOutside;
    tap_x[t] = tap % s.kernel_w * s.dilation - s.padding;
  }
  TapSums local[n] = {};
  for (int64_t row = first_row(); row < runs && channel < s.out_c; row += row_stride()) {
    const Pixel position = run_at(row, s.out_h, s.out_w);
    rt::Vec<T, n> given[kRun];
    load_run(
        dy + (position.image * s.out_h + position.y) * s.out_w * s.out_c + channel, s.out_c,
        [&](int p) { return position.x + p < s.out_w ? position.x + p : -1; }, given);
    RT_UNROLL
    for (int t = 0; t < kTapsPerThread; ++t) {
      const int in_y = position.y * s.stride + tap_y[t];
      if (!is_within(in_y, s.in_h)) continue;
      rt::Vec<T, n> seen[kRun];
      load_run(
          x + (position.image * s.in_h + in_y) * s.in_w * s.in_c + in_channel, s.in_c,
          [&](int p) {
            const int in_x = (position.x + p) * s.stride + tap_x[t];
            return is_within(in_x, s.in_w) ? in_x : -1;
          },
          seen);
      RT_UNROLL
      for (int c = 0; c < n; ++c) {
        RT_UNROLL
        for (int p = 0; p < kRun; ++p)
          local[c].at[t] += rt::to_float(seen[p].at[c]) * rt::to_float(given[p].at[c]);
      }
    }
  }
  float* sums = parts + static_cast<int64_t>(blockIdx.y) * num_taps * s.group_in * s.out_c;
  join_lanes(local, s.out_c, [&](int column, const TapSums& all) {
    for (int t = 0; t < kTapsPerThread && first_tap + t < num_taps; ++t)
      sums[(static_cast<int64_t>(first_tap + t) * s.group_in + within) * s.out_c + column] = all.at[t];
  });
}

/// Returns body(n), where n is the number of channels per thread.
template <typename T, typename Body>
ir::Kernel with_group_columns(const cpu::ConvShape& s, Body body) {
  const bool own_groups = s.group_in() == 1 && s.group_out() == 1;
  return own_groups ? with_columns<T>(s.in_c, body) : body(std::integral_constant<int, 1>());
}

/// Returns the forward kernel of a grouped convolution; images(args) returns the Images that receive the
/// results. Does not compute moments.
template <typename T, typename ImagesOf>
ir::Kernel groups_forward(const cpu::ConvShape& shape, ImagesOf images) {
  return with_group_columns<T>(shape, [&](auto n) -> ir::Kernel {
    const int64_t runs = counted_runs(shape.batch, shape.out_h(), shape.out_w());
    const ColumnBlocks blocks(runs, shape.out_c, n);
    const auto run = [=](const ir::KernelArgs& args) {
      rt::launch(convolve_groups<T, decltype(n)::value>, blocks.for_rows(), args.stream->handle(),
                 input_of<T>(args, ConvIn::x), input_of<T>(args, ConvIn::w), images(args), device_conv(shape),
                 runs);
    };
    return {.run = run};
  });
}

/// Returns the kernel of the input gradient of a grouped convolution.
template <typename T>
ir::Kernel groups_grad_input(const cpu::ConvShape& shape, bool residual) {
  return with_group_columns<T>(shape, [&](auto n) -> ir::Kernel {
    const int64_t runs = counted_runs(shape.batch, shape.in_h, shape.in_w);
    const ColumnBlocks blocks(runs, shape.in_c, n);
    const auto run = [=](const ir::KernelArgs& args) {
      rt::launch(spread_groups<T, decltype(n)::value>, blocks.for_rows(), args.stream->handle(),
                 input_of<T>(args, 0), input_of<T>(args, 1),
                 residual ? input_of<T>(args, kGradInputResidual) : nullptr, output_of<T>(args, 0),
                 device_conv(shape), runs);
    };
    return {.run = run};
  });
}

/// Returns the kernel of the weight gradient of a grouped convolution.
template <typename T>
ir::Kernel groups_grad_weight(const cpu::ConvShape& shape) {
  constexpr int64_t kMaxBlocks = 4096, kMaxRows = 65535;
  const int64_t across = ceil_div(shape.kernel_h * shape.kernel_w, kTapsPerThread) * shape.group_in();
  if (across > kMaxRows)
    refuse_on_gpu("kernel height * kernel width / 3 * input channels per group", kMaxRows, across);
  const int64_t width = num_taps(shape) * shape.out_c;
  return with_group_columns<T>(shape, [&](auto n) -> ir::Kernel {
    const int64_t runs = counted_runs(shape.batch, shape.out_h(), shape.out_w());
    const ColumnBlocks blocks(runs, shape.out_c, n);
    rt::Shape grid = blocks.for_parts();
    const int64_t of_part = across * grid.blocks.x;
    const int64_t num_parts = std::min(blocks.num_parts(), std::max<int64_t>(1, kMaxBlocks / of_part));
    grid.blocks.y = static_cast<unsigned>(num_parts);
    grid.blocks.z = static_cast<unsigned>(across);
    const auto run = [=](const ir::KernelArgs& args) {
      auto* dw = output_of<float>(args, 0);
      auto* parts = num_parts > 1 ? reinterpret_cast<float*>(args.workspace) : dw;
      rt::launch(add_group_weights<T, decltype(n)::value>, grid, args.stream->handle(), input_of<T>(args, 0),
                 input_of<T>(args, 1), parts, device_conv(shape), runs);
      if (num_parts == 1) return;
      rt::launch(add_rows<float>, {ceil_div(width, kBlockThreads), kBlockThreads}, args.stream->handle(),
                 parts, dw, num_parts, width);
    };
    return {.run = run, .workspace_bytes = num_parts > 1 ? num_parts * width * int64_t{sizeof(float)} : 0};
  });
}

}  // namespace hearth::ops
