#pragma once

#include "ops/conv/conv.h"
#include "ops/conv/product_gpu.h"
#include "ops/reduce/add_rows.h"

/// Convolutions on GPUs as implicit GEMM: the patch matrix has a row per output pixel and a term (reduction
/// index) per tap and channel. Its elements are read directly from the image.
namespace hearth::ops {

/// Maps pixel numbers to positions in h x w images, in memory order or window by window (2 x 2 pixels).
template <bool by_window = false>
struct PixelGrid {
  struct PixelPosition {
    int image, y, x;
  };
  int h, w;

  RT_DEVICE PixelPosition operator[](int64_t i) const {
    const int number = static_cast<int>(i);
    if constexpr (!by_window) return {number / (h * w), number / w % h, number % w};
    const int window = number / 4, across = w / 2, down = h / 2;
    return {window / (across * down), window / across % down * 2 + number % 4 / 2,
            window % across * 2 + number % 2};
  }
};

/// A reduction index as kernel coordinates (a tap) and a channel.
struct TapChannel {
  int y, x, channel;
};

/// Maps reduction indices to offsets in the image and steps from one index to a later one. A kernel row has
/// `across` taps, which are `step` pixels apart in the image and `tap_bytes` apart in memory.
struct TapGrid {
  struct Walk {
    TapOffset tap_offset;
    int channel;
  };
  int channels, across, step;
  uint32_t element_bytes, tap_bytes, row_bytes;  ///< strides in bytes, modulo 2^32

  RT_DEVICE Walk walk(int term) const {
    const int tap = term / channels, channel = term % channels, row = tap / across, column = tap % across;
    return {{.y = step * row,
             .x = step * column,
             .bytes = row * row_bytes + column * tap_bytes + channel * element_bytes},
            channel};
  }
  /// Moves `walk` forward by kDepth terms.
  RT_DEVICE void advance(Walk& walk) const {
    walk.channel += kDepth;
    walk.tap_offset.bytes += kDepth * element_bytes;
    while (walk.channel >= channels) {
      walk.channel -= channels;
      walk.tap_offset.x += step;
      walk.tap_offset.bytes += tap_bytes - channels * element_bytes;
      if (walk.tap_offset.x != step * across) continue;
      walk.tap_offset.x = 0;
      walk.tap_offset.y += step;
      walk.tap_offset.bytes += row_bytes - across * tap_bytes;
    }
  }
};

/// The implicit patch matrix [pixels, taps]. Tap (b, a) of output pixel (y, x) reads the image at (stride y +
/// first_y + direction b, stride x + first_x + direction a); 0 outside of the image.
template <typename T, bool by_window = false>
struct Patches {
  using Pixels = PixelGrid<by_window>;
  struct Line {
    int64_t image;  ///< element offset of the image
    int y, x;       ///< image coordinates of tap (0, 0)
  };
  using Term = TapChannel;
  struct PixelWalk {
    TapOffset tap_offset;
    int end_y, end_x;  ///< value of y after an image's last row, and of x after a row's last pixel

    RT_DEVICE void move(const TapOffset& by) {
      tap_offset = tap_offset + by;
      end_y += by.y;
      end_x += by.x;
    }
  };
  static constexpr bool kLinesAreNeighbors = false;
  const T* images;
  int h, w, channels;
  Pixels pixels;
  int taps_across;
  int stride, first_y, first_x, direction;
  typename Pixels::PixelPosition step;  ///< the number kDepth in units of images, rows and pixels

  RT_DEVICE Line line(int64_t i) const {
    const typename Pixels::PixelPosition position = pixels[i];
    return {static_cast<int64_t>(position.image) * h * w * channels, stride * position.y + first_y,
            stride * position.x + first_x};
  }
  RT_DEVICE Term term(int64_t i) const {
    const int number = static_cast<int>(i), tap = number / channels;
    return {direction * (tap / taps_across), direction * (tap % taps_across), number % channels};
  }
  /// Returns the address of an element; null if it is outside of the image.
  RT_DEVICE const T* where(const Line& pixel, const Term& tap) const {
    const int y = pixel.y + tap.y, x = pixel.x + tap.x;
    if (y < 0 || x < 0 || y >= h || x >= w) return nullptr;
    return images + pixel.image + static_cast<int64_t>(y * w + x) * channels + tap.channel;
  }
  RT_DEVICE float at(const Line& pixel, const Term& tap) const {
    const T* found = where(pixel, tap);
    return found == nullptr ? 0.0F : rt::to_float(*found);
  }

  // Access by 32-bit byte offsets (TapOffset), as EvenGathered requires.
  RT_DEVICE const T* origin() const { return images; }
  RT_DEVICE bool has(const TapOffset& tap_offset) const {
    return static_cast<unsigned>(tap_offset.y) < static_cast<unsigned>(h) &&
           static_cast<unsigned>(tap_offset.x) < static_cast<unsigned>(w);
  }
  /// Returns the offset of tap (0, 0) of output pixel i; advance() moves it to pixel i + kDepth.
  RT_DEVICE PixelWalk walk_of_line(int i) const {
    const typename Pixels::PixelPosition position = pixels[i];
    const int y = stride * position.y + first_y, x = stride * position.x + first_x;
    return {.tap_offset = {.y = y, .x = x, .bytes = bytes_to(position.image, y, x)},
            .end_y = first_y + stride * pixels.h,
            .end_x = first_x + stride * pixels.w};
  }
  RT_DEVICE TapGrid::Walk walk_of_term(int i) const { return taps().walk(i); }
  RT_DEVICE void advance(TapGrid::Walk& walk) const { taps().advance(walk); }
  RT_DEVICE void advance(PixelWalk& walk) const {
    TapOffset& tap_offset = walk.tap_offset;
    const int across = stride * pixels.w, down = stride * pixels.h;
    tap_offset = tap_offset + TapOffset{stride * step.y, stride * step.x,
                                        bytes_to(step.image, stride * step.y, stride * step.x)};
    const bool next_row = tap_offset.x >= walk.end_x;
    tap_offset =
        tap_offset + (next_row ? TapOffset{stride, -across, bytes_to(0, stride, -across)} : TapOffset{});
    const bool next_image = tap_offset.y >= walk.end_y;
    tap_offset = tap_offset + (next_image ? TapOffset{-down, 0, bytes_to(1, -down, 0)} : TapOffset{});
  }

 private:
  RT_DEVICE uint32_t bytes_to(int image, int y, int x) const {
    return ((static_cast<uint32_t>(image) * h + y) * w + x) * channels * static_cast<uint32_t>(sizeof(T));
  }
  RT_DEVICE TapGrid taps() const {
    const uint32_t tap_bytes = bytes_to(0, 0, direction);
    return {.channels = channels,
            .across = taps_across,
            .step = direction,
            .element_bytes = sizeof(T),
            .tap_bytes = tap_bytes,
            .row_bytes = w * tap_bytes};
  }
};

/// Returns the number of output pixels: the rows of the implicit matrix.
inline int64_t num_pixels(const cpu::ConvShape& s) { return s.batch * s.out_h() * s.out_w(); }
/// Returns the number of elements of a patch: the columns of the implicit matrix.
inline int64_t num_taps(const cpu::ConvShape& s) { return s.kernel_h * s.kernel_w * s.group_in(); }

/// Returns the alignment class of `channels`; `any` if byte offsets in the convolution's arrays exceed 32
/// bits.
inline Channels channels_of_images(const cpu::ConvShape& s, int64_t channels) {
  const int64_t max_elements =
      std::max({s.batch * s.in_h * s.in_w * s.in_c, num_pixels(s) * s.out_c, num_taps(s) * s.out_c});
  return max_elements < int64_t{1} << 31 ? channels_of(channels) : Channels::any;
}

/// Returns the patches of x for the forward pass and the weight gradient.
template <bool by_window = false, typename T>
Patches<T, by_window> forward_patches(const cpu::ConvShape& s, const T* x) {
  return {.images = x,
          .h = static_cast<int>(s.in_h),
          .w = static_cast<int>(s.in_w),
          .channels = static_cast<int>(s.in_c),
          .pixels = {.h = static_cast<int>(s.out_h()), .w = static_cast<int>(s.out_w())},
          .taps_across = static_cast<int>(s.kernel_w),
          .stride = static_cast<int>(s.stride),
          .first_y = static_cast<int>(-s.padding),
          .first_x = static_cast<int>(-s.padding),
          .direction = static_cast<int>(s.dilation),
          .step = {static_cast<int>(kDepth / (s.out_h() * s.out_w())),
                   static_cast<int>(kDepth / s.out_w() % s.out_h()), static_cast<int>(kDepth % s.out_w())}};
}

/// Split-K of a weight gradient [taps, channels] over the pixels: each part is a separate array; add_rows()
/// sums the arrays. The number of parts depends only on the shape.
struct WeightParts {
  int64_t taps, channels, pixels;
  int64_t num_parts;

  /// Chooses the number of parts for thread blocks of `rows` x `columns` outputs.
  WeightParts(const cpu::ConvShape& s, int64_t rows, int64_t columns)
      : taps(num_taps(s)), channels(s.out_c), pixels(num_pixels(s)) {
    num_parts = num_weight_parts(ceil_div(taps, rows) * ceil_div(channels, columns), pixels);
  }
  int64_t workspace_bytes() const {
    return num_parts > 1 ? num_parts * taps * channels * int64_t{sizeof(float)} : 0;
  }
};

/// Computes partial sums of a weight gradient; blockIdx.z is the part of the pixels.
template <typename T, typename B, typename Left, typename Right>
__global__ void __launch_bounds__(kBlockThreads)
    add_weight_gradients(Left x, Right dy, float* parts, int64_t taps, int64_t channels, int64_t pixels) {
  ProductPart part = block_part<B>(taps, channels, pixels);
  const int64_t share = (pixels + gridDim.z - 1) / gridDim.z;
  part.begin = blockIdx.z * share;
  part.end = part.begin + share < pixels ? part.begin + share : pixels;
  float* sums = parts + blockIdx.z * taps * channels + part.row * channels + part.column;
  for_each_product<T, B>(x, dy, part, [&](int thread_output_row, int thread_output_column) {
    const ThreadOutputs local(part, thread_output_row, thread_output_column, channels);
    return [=](int row, int column, float sum) { element(sums, local.index(row, column)) = sum; };
  });
}

/// Enqueues the weight gradient dw [taps, channels] = x^T dy and the reduction of its parts.
template <typename T, typename B, typename Left, typename Right>
void launch_weight_gradient(const Left& x, const Right& dy, const WeightParts& parts, float* workspace,
                            float* dw, void* stream) {
  const bool whole = parts.num_parts == 1;
  const int64_t width = parts.taps * parts.channels;
  rt::launch(add_weight_gradients<T, B, Left, Right>,
             product_blocks<B>(parts.taps, parts.channels, parts.num_parts), stream, x, dy,
             whole ? dw : workspace, parts.taps, parts.channels, parts.pixels);
  if (whole) return;
  rt::launch(add_rows<float>, {ceil_div(width, kBlockThreads), kBlockThreads}, stream, workspace, dw,
             parts.num_parts, width);
}

}  // namespace hearth::ops
