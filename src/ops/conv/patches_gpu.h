#pragma once

#include "ops/conv/conv.h"
#include "ops/conv/product_gpu.h"
#include "ops/reduce/add_rows.h"

/// Convolutions of GPUs as matmuls: a row per pixel, a term per tap and channel, read from where
/// they lie in the image.
namespace hearth::ops {

/// Pixels of images of h by w, in their order in memory or by windows of 2 x 2.
template <bool by_window = false>
struct PixelGrid {
  struct Place {
    int image, y, x;
  };
  int h, w;

  RT_DEVICE Place operator[](int64_t i) const {
    const int number = static_cast<int>(i);
    if constexpr (!by_window) return {number / (h * w), number / w % h, number % w};
    const int window = number / 4, across = w / 2, down = h / 2;
    return {window / (across * down), window / across % down * 2 + number % 4 / 2,
            window % across * 2 + number % 2};
  }
};

/// A channel of a tap.
struct TapChannel {
  int y, x, channel;
};

/// From channel to channel and tap to tap: in each row `across` taps, `step` apart in an image and
/// `tap_bytes` in memory.
struct TapGrid {
  struct Walk {
    Spot spot;
    int channel;
  };
  int channels, across, step;
  uint32_t element_bytes, tap_bytes, row_bytes;  ///< modulo 2^32

  RT_DEVICE Walk walk(int term) const {
    const int tap = term / channels, channel = term % channels, row = tap / across, column = tap % across;
    return {{.y = step * row,
             .x = step * column,
             .bytes = row * row_bytes + column * tap_bytes + channel * element_bytes},
            channel};
  }
  /// kDepth terms on.
  RT_DEVICE void advance(Walk& walk) const {
    walk.channel += kDepth;
    walk.spot.bytes += kDepth * element_bytes;
    while (walk.channel >= channels) {
      walk.channel -= channels;
      walk.spot.x += step;
      walk.spot.bytes += tap_bytes - channels * element_bytes;
      if (walk.spot.x != step * across) continue;
      walk.spot.x = 0;
      walk.spot.y += step;
      walk.spot.bytes += row_bytes - across * tap_bytes;
    }
  }
};

/// What taps find, pixels by taps: tap (b, a) of the pixel (y, x) of a grid lies at (stride y + first_y +
/// direction b, stride x + first_x + direction a) of an image, 0 outside of it.
template <typename T, bool by_window = false>
struct Patches {
  using Pixels = PixelGrid<by_window>;
  struct Line {
    int64_t image;  ///< where it begins
    int y, x;       ///< of tap 0
  };
  using Term = TapChannel;
  struct PixelWalk {
    Spot spot;
    int end_y, end_x;  ///< after the last pixels of an image

    RT_DEVICE void move(const Spot& by) {
      spot = spot + by;
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
  typename Pixels::Place step;  ///< from pixel to pixel kDepth later, in their order in memory

  RT_DEVICE Line line(int64_t i) const {
    const typename Pixels::Place place = pixels[i];
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

  // The same by spots, where 32 bits hold the bytes of all images.
  RT_DEVICE const T* origin() const { return images; }
  RT_DEVICE bool has(const Spot& spot) const {
    return static_cast<unsigned>(spot.y) < static_cast<unsigned>(h) &&
           static_cast<unsigned>(spot.x) < static_cast<unsigned>(w);
  }
  RT_DEVICE PixelWalk walk_of_line(int i) const {
    const typename Pixels::Place place = pixels[i];
    const int y = stride * place.y + first_y, x = stride * place.x + first_x;
    return {.spot = {.y = y, .x = x, .bytes = bytes_to(place.image, y, x)},
            .end_y = first_y + stride * pixels.h,
            .end_x = first_x + stride * pixels.w};
  }
  RT_DEVICE TapGrid::Walk walk_of_term(int i) const { return taps().walk(i); }
  RT_DEVICE void advance(TapGrid::Walk& walk) const { taps().advance(walk); }
  RT_DEVICE void advance(PixelWalk& walk) const {
    Spot& spot = walk.spot;
    const int across = stride * pixels.w, down = stride * pixels.h;
    spot =
        spot + Spot{stride * step.y, stride * step.x, bytes_to(step.image, stride * step.y, stride * step.x)};
    const bool next_row = spot.x >= walk.end_x;
    spot = spot + (next_row ? Spot{stride, -across, bytes_to(0, stride, -across)} : Spot{});
    const bool next_image = spot.y >= walk.end_y;
    spot = spot + (next_image ? Spot{-down, 0, bytes_to(1, -down, 0)} : Spot{});
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

inline int64_t num_pixels(const cpu::ConvShape& s) { return s.batch * s.out_h() * s.out_w(); }
inline int64_t num_taps(const cpu::ConvShape& s) { return s.kernel_h * s.kernel_w * s.group_in(); }

/// What is known of channels of a convolution: `any` where 32 bits do not hold the bytes of its arrays.
inline Channels channels_of_images(const cpu::ConvShape& s, int64_t channels) {
  const int64_t most =
      std::max({s.batch * s.in_h * s.in_w * s.in_c, num_pixels(s) * s.out_c, num_taps(s) * s.out_c});
  return most < int64_t{1} << 31 ? channels_of(channels) : Channels::any;
}

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

/// How a gradient of weights, [taps, channels], shares out its sums over pixels: each part is an array of its
/// own until add_rows adds them up. Depends on the shape alone.
struct WeightParts {
  int64_t taps, channels, pixels;
  int64_t num_parts;

  /// Of blocks of `rows` by `columns`.
  WeightParts(const cpu::ConvShape& s, int64_t rows, int64_t columns)
      : taps(num_taps(s)), channels(s.out_c), pixels(num_pixels(s)) {
    // Nine taps share these blocks without a rest.
    constexpr int64_t kBlocks = 252, kLeastPixels = 256;
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
  float* sums = parts + blockIdx.z * taps * channels + part.row * channels + part.column;
  for_each_product<T, B>(x, dy, part, [&](int own_row, int own_column) {
    const OwnOutputs own(part, own_row, own_column, channels);
    return [=](int row, int column, float sum) { element(sums, own.index(row, column)) = sum; };
  });
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
