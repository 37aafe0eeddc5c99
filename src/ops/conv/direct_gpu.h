#pragma once

#include <algorithm>

#include "ops/conv/patches_gpu.h"
#include "ops/pool/pixels_gpu.h"
#include "ops/reduce/columns.h"

/// Convolutions in groups on GPUs: too few products for each output to be a matmul. A thread keeps `n`
/// neighboring channels and goes from pixel to pixel; with more than one, each channel is a group of its own.
namespace hearth::ops {

/// A convolution as kernels see it.
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

/// Where the sums of a convolution go.
template <typename T>
struct Images {
  Epilogue<T> epilogue;
  const float* factors;  ///< of the sums of each channel, or null
  T* y;
  float* moments;  ///< of y, or null

  RT_DEVICE T finished(float sum, int column, int64_t at) const {
    return epilogue(factors == nullptr ? sum : sum * factors[column], column, at);
  }
};

/// sums[c] += a[c] b[c].
template <typename T, int n>
RT_DEVICE void add_product(float (&sums)[n], const T* a, const T* b) {
  const rt::Vec<T, n> left = rt::load<T, n>(a), right = rt::load<T, n>(b);
  RT_UNROLL
  for (int c = 0; c < n; ++c) sums[c] += rt::to_float(left.at[c]) * rt::to_float(right.at[c]);
}

template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads)
    convolve_groups(const T* x, const T* w, Images<T> out, DeviceConv s, int64_t pixels) {
  const int channel = first_column<n>();
  if (channel >= s.out_c) return;
  const int first_in = channel / s.group_out * s.group_in;
  for (int64_t row = first_row(); row < pixels; row += row_stride()) {
    const Pixel place = pixel_at(row, s.out_h, s.out_w);
    float sums[n] = {};
    for (int tap = 0; tap < s.kernel_h * s.kernel_w; ++tap) {
      const int in_y = place.y * s.stride - s.padding + tap / s.kernel_w * s.dilation;
      const int in_x = place.x * s.stride - s.padding + tap % s.kernel_w * s.dilation;
      if (in_y < 0 || in_x < 0 || in_y >= s.in_h || in_x >= s.in_w) continue;
      const T* seen = x + ((place.image * s.in_h + in_y) * s.in_w + in_x) * s.in_c + first_in;
      const T* weights = w + static_cast<int64_t>(tap) * s.group_in * s.out_c + channel;
      for (int c = 0; c < s.group_in; ++c)
        add_product<T, n>(sums, seen + c, weights + static_cast<int64_t>(c) * s.out_c);
    }
    rt::Vec<T, n> made;
    const int64_t at = row * s.out_c + channel;
    RT_UNROLL
    for (int c = 0; c < n; ++c) made.at[c] = out.finished(sums[c], channel + c, at + c);
    rt::store(out.y + at, made);
  }
}

/// `at` divided by the stride where that leaves no rest, below `length`; else -1.
RT_DEVICE int before_stride(int at, int stride, int length) {
  const int found = at / stride;
  return at >= 0 && found * stride == at && found < length ? found : -1;
}

template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads)
    spread_groups(const T* dy, const T* w, T* dx, DeviceConv s, int64_t pixels) {
  const int channel = first_column<n>();
  if (channel >= s.in_c) return;
  const int first_out = channel / s.group_in * s.group_out, within = channel % s.group_in;
  for (int64_t row = first_row(); row < pixels; row += row_stride()) {
    const Pixel place = pixel_at(row, s.in_h, s.in_w);
    float sums[n] = {};
    for (int tap = 0; tap < s.kernel_h * s.kernel_w; ++tap) {
      const int y = before_stride(place.y + s.padding - tap / s.kernel_w * s.dilation, s.stride, s.out_h);
      const int x = before_stride(place.x + s.padding - tap % s.kernel_w * s.dilation, s.stride, s.out_w);
      if (y < 0 || x < 0) continue;
      const T* given = dy + ((place.image * s.out_h + y) * s.out_w + x) * s.out_c + first_out;
      const T* weights = w + (static_cast<int64_t>(tap) * s.group_in + within) * s.out_c + first_out;
      for (int o = 0; o < s.group_out; ++o) add_product<T, n>(sums, given + o, weights + o);
    }
    rt::Vec<T, n> made;
    RT_UNROLL
    for (int c = 0; c < n; ++c) made.at[c] = rt::from_float<T>(sums[c]);
    rt::store(dx + row * s.in_c + channel, made);
  }
}

/// Taps whose gradients a thread adds up at once.
inline constexpr int kOwnTaps = 3;
struct TapSums {
  float at[kOwnTaps];
  RT_DEVICE void join(const TapSums& more) {
    RT_UNROLL
    for (int t = 0; t < kOwnTaps; ++t) at[t] += more.at[t];
  }
};

/// blockIdx.z: the taps, and which of a group's inputs they multiply; blockIdx.y: the part.
template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads)
    add_group_weights(const T* x, const T* dy, float* parts, DeviceConv s, int64_t pixels) {
  const int channel = first_column<n>();
  const int within = static_cast<int>(blockIdx.z) % s.group_in;
  const int first_tap = static_cast<int>(blockIdx.z) / s.group_in * kOwnTaps;
  const int num_taps = s.kernel_h * s.kernel_w;
  const int in_channel = channel / s.group_out * s.group_in + within;
  TapSums own[n] = {};
  for (int64_t row = first_row(); row < pixels && channel < s.out_c; row += row_stride()) {
    const Pixel place = pixel_at(row, s.out_h, s.out_w);
    const rt::Vec<T, n> given = rt::load<T, n>(dy + row * s.out_c + channel);
    RT_UNROLL
    for (int t = 0; t < kOwnTaps; ++t) {
      const int tap = first_tap + t;
      const int in_y = place.y * s.stride - s.padding + tap / s.kernel_w * s.dilation;
      const int in_x = place.x * s.stride - s.padding + tap % s.kernel_w * s.dilation;
      if (tap >= num_taps || in_y < 0 || in_x < 0 || in_y >= s.in_h || in_x >= s.in_w) continue;
      const rt::Vec<T, n> seen =
          rt::load<T, n>(x + ((place.image * s.in_h + in_y) * s.in_w + in_x) * s.in_c + in_channel);
      RT_UNROLL
      for (int c = 0; c < n; ++c) own[c].at[t] += rt::to_float(seen.at[c]) * rt::to_float(given.at[c]);
    }
  }
  float* sums = parts + static_cast<int64_t>(blockIdx.y) * num_taps * s.group_in * s.out_c;
  join_lanes(own, s.out_c, [&](int column, const TapSums& all) {
    for (int t = 0; t < kOwnTaps && first_tap + t < num_taps; ++t)
      sums[(static_cast<int64_t>(first_tap + t) * s.group_in + within) * s.out_c + column] = all.at[t];
  });
}

/// What body(n) returns, n being how many channels a thread keeps.
template <typename T, typename Body>
ir::Kernel with_group_columns(const cpu::ConvShape& s, Body body) {
  const bool own_groups = s.group_in() == 1 && s.group_out() == 1;
  return own_groups ? with_columns<T>(s.in_c, body) : body(std::integral_constant<int, 1>());
}

/// images(args): the node's own. Moments are left out.
template <typename T, typename ImagesOf>
ir::Kernel groups_forward(const cpu::ConvShape& shape, ImagesOf images) {
  return with_group_columns<T>(shape, [&](auto n) -> ir::Kernel {
    const int64_t pixels = counted_pixels(shape.batch, shape.out_h(), shape.out_w());
    const ColumnBlocks blocks(pixels, shape.out_c, n);
    const auto run = [=](const ir::KernelArgs& args) {
      rt::launch(convolve_groups<T, decltype(n)::value>, blocks.for_rows(), args.stream->handle(),
                 input_of<T>(args, ConvIn::x), input_of<T>(args, ConvIn::w), images(args), device_conv(shape),
                 pixels);
    };
    return {.run = run};
  });
}

template <typename T>
ir::Kernel groups_grad_input(const cpu::ConvShape& shape) {
  return with_group_columns<T>(shape, [&](auto n) -> ir::Kernel {
    const int64_t pixels = counted_pixels(shape.batch, shape.in_h, shape.in_w);
    const ColumnBlocks blocks(pixels, shape.in_c, n);
    const auto run = [=](const ir::KernelArgs& args) {
      rt::launch(spread_groups<T, decltype(n)::value>, blocks.for_rows(), args.stream->handle(),
                 input_of<T>(args, 0), input_of<T>(args, 1), output_of<T>(args, 0), device_conv(shape),
                 pixels);
    };
    return {.run = run};
  });
}

template <typename T>
ir::Kernel groups_grad_weight(const cpu::ConvShape& shape) {
  constexpr int64_t kMostBlocks = 4096, kMostRows = 65535;
  const int64_t across = divided_up(shape.kernel_h * shape.kernel_w, kOwnTaps) * shape.group_in();
  if (across > kMostRows)
    refuse_on_gpu("third of a kernel's taps times a group's channels", kMostRows, across);
  const int64_t width = num_taps(shape) * shape.out_c;
  return with_group_columns<T>(shape, [&](auto n) -> ir::Kernel {
    const int64_t pixels = counted_pixels(shape.batch, shape.out_h(), shape.out_w());
    const ColumnBlocks blocks(pixels, shape.out_c, n);
    rt::Shape grid = blocks.for_parts();
    const int64_t of_part = across * grid.blocks.x;
    const int64_t num_parts = std::min(blocks.num_parts(), std::max<int64_t>(1, kMostBlocks / of_part));
    grid.blocks.y = static_cast<unsigned>(num_parts);
    grid.blocks.z = static_cast<unsigned>(across);
    const auto run = [=](const ir::KernelArgs& args) {
      auto* dw = output_of<float>(args, 0);
      auto* parts = num_parts > 1 ? reinterpret_cast<float*>(args.workspace) : dw;
      rt::launch(add_group_weights<T, decltype(n)::value>, grid, args.stream->handle(), input_of<T>(args, 0),
                 input_of<T>(args, 1), parts, device_conv(shape), pixels);
      if (num_parts == 1) return;
      rt::launch(add_rows<float>, {divided_up(width, kBlockThreads), kBlockThreads}, args.stream->handle(),
                 parts, dw, num_parts, width);
    };
    return {.run = run, .workspace_bytes = num_parts > 1 ? num_parts * width * int64_t{sizeof(float)} : 0};
  });
}

}  // namespace hearth::ops
