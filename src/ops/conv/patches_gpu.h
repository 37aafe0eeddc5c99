#pragma once

#include "ops/conv/conv.h"
#include "ops/conv/product_gpu.h"
#include "ops/reduce/add_rows.h"

/// Convolutions of GPUs as matmuls: a row per pixel, a term per tap and channel, read from where
/// they lie in the image.
namespace hearth::ops {

/// Pixels of images of h by w, in their order in memory or by windows of 2 x 2.
struct PixelGrid {
  struct Place {
    int image, y, x;
  };
  int h, w;
  bool by_window;

  RT_DEVICE Place operator[](int64_t i) const {
    const int number = static_cast<int>(i);
    if (!by_window) return {number / (h * w), number / w % h, number % w};
    const int window = number / 4, across = w / 2, down = h / 2;
    return {window / (across * down), window / across % down * 2 + number % 4 / 2,
            window % across * 2 + number % 2};
  }
};

/// A channel of a tap.
struct TapChannel {
  int y, x, channel;

  /// `by` later, channels first, of taps that lie `step` apart: in each row `across` of them from first_x on.
  RT_DEVICE void advance(int by, int channels, int first_x, int step, int across) {
    channel += by;
    while (channel >= channels) {
      channel -= channels;
      x += step;
      if (x != first_x + step * across) continue;
      x = first_x;
      y += step;
    }
  }
};

/// What taps find, pixels by taps: tap (b, a) of the pixel (y, x) of a grid lies at (stride y + first_y +
/// direction b, stride x + first_x + direction a) of an image, 0 outside of it.
template <typename T>
struct Patches {
  struct Line {
    int64_t image;  ///< where it begins
    int y, x;       ///< of tap 0
  };
  using Term = TapChannel;
  static constexpr bool kLinesAreNeighbors = false;
  const T* images;
  int h, w, channels;
  PixelGrid pixels;
  int taps_across;
  int stride, first_y, first_x, direction;

  RT_DEVICE Line line(int64_t i) const {
    const PixelGrid::Place place = pixels[i];
    return {static_cast<int64_t>(place.image) * h * w * channels, stride * place.y + first_y,
            stride * place.x + first_x};
  }
  RT_DEVICE Term term(int64_t i) const {
    const int number = static_cast<int>(i), tap = number / channels;
    return {direction * (tap / taps_across), direction * (tap % taps_across), number % channels};
  }
  /// Null: outside.
  RT_DEVICE const T* where(const Line& pixel, const Term& tap) const {
    const int y = pixel.y + tap.y, x = pixel.x + tap.x;
    if (y < 0 || x < 0 || y >= h || x >= w) return nullptr;
    return images + pixel.image + static_cast<int64_t>(y * w + x) * channels + tap.channel;
  }
  RT_DEVICE float at(const Line& pixel, const Term& tap) const {
    const T* found = where(pixel, tap);
    return found == nullptr ? 0.0F : rt::to_float(*found);
  }
  RT_DEVICE void advance(Term& tap, int by) const { tap.advance(by, channels, 0, direction, taps_across); }
  /// Of pixels in their order in memory.
  RT_DEVICE void advance(Line& pixel, int by) const {
    const int across = stride * pixels.w, down = stride * pixels.h;
    pixel.x += stride * by;
    while (pixel.x >= first_x + across) {
      pixel.x -= across;
      pixel.y += stride;
      if (pixel.y < first_y + down) continue;
      pixel.y -= down;
      pixel.image += static_cast<int64_t>(h) * w * channels;
    }
  }
};

inline int64_t num_pixels(const cpu::ConvShape& s) { return s.batch * s.out_h() * s.out_w(); }
inline int64_t num_taps(const cpu::ConvShape& s) { return s.kernel_h * s.kernel_w * s.in_c; }

template <typename T>
Patches<T> forward_patches(const cpu::ConvShape& s, const T* x, bool by_window) {
  return {
      .images = x,
      .h = static_cast<int>(s.in_h),
      .w = static_cast<int>(s.in_w),
      .channels = static_cast<int>(s.in_c),
      .pixels = {.h = static_cast<int>(s.out_h()), .w = static_cast<int>(s.out_w()), .by_window = by_window},
      .taps_across = static_cast<int>(s.kernel_w),
      .stride = static_cast<int>(s.stride),
      .first_y = static_cast<int>(-s.padding),
      .first_x = static_cast<int>(-s.padding),
      .direction = 1};
}

/// How a gradient of weights, [taps, channels], shares out its sums over pixels: each part is an array of its
/// own until add_rows adds them up. Depends on the shape alone.
struct WeightParts {
  int64_t taps, channels, pixels;
  int64_t num_parts;

  /// Of blocks of `rows` by `columns`.
  WeightParts(const cpu::ConvShape& s, int64_t rows, int64_t columns)
      : taps(num_taps(s)), channels(s.out_c), pixels(num_pixels(s)) {
    constexpr int64_t kBlocks = 256, kLeastPixels = 256;
    const int64_t tiles = divided_up(taps, rows) * divided_up(channels, columns);
    num_parts = std::clamp<int64_t>(kBlocks / tiles, 1, divided_up(pixels, kLeastPixels));
  }
  int64_t workspace_bytes() const {
    return num_parts > 1 ? num_parts * taps * channels * int64_t{sizeof(float)} : 0;
  }
};

/// blockIdx.z: the part.
template <typename T, typename B, typename Left, typename Right>
__global__ void __launch_bounds__(kBlockThreads)
    add_weight_gradients(Left x, Right dy, float* parts, int64_t taps, int64_t channels, int64_t pixels) {
  ProductPart part = own_part<B>(taps, channels, pixels);
  const int64_t share = (pixels + gridDim.z - 1) / gridDim.z;
  part.begin = blockIdx.z * share;
  part.end = part.begin + share < pixels ? part.begin + share : pixels;
  float* sums = parts + blockIdx.z * taps * channels;
  for_each_product<T, B>(
      x, dy, part, [&](int64_t row, int64_t column, float sum) { sums[row * channels + column] = sum; });
}

template <typename T, typename B, typename Left, typename Right>
void launch_weight_gradient(const Left& x, const Right& dy, const WeightParts& parts, float* workspace,
                            float* dw, void* stream) {
  const bool whole = parts.num_parts == 1;
  const int64_t width = parts.taps * parts.channels;
  rt::launch(add_weight_gradients<T, B, Left, Right>,
             product_blocks<B>(parts.taps, parts.channels, parts.num_parts), stream, x, dy,
             whole ? dw : workspace, parts.taps, parts.channels, parts.pixels);
  if (whole) return;
  rt::launch(add_rows<float>, {divided_up(width, kBlockThreads), kBlockThreads}, stream, workspace, dw,
             parts.num_parts, width);
}

}  // namespace hearth::ops
