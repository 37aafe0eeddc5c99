#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "backend/cpu/convert.h"
#include "backend/cpu/rows.h"
#include "ops/conv/conv_spec.h"

namespace hearth::cpu {

/// Rows of the weight gradient computed at a time, and pixels per chunk: the patches and dy of a chunk stay
/// in the L2 cache while all columns are computed. Dilated kernels use smaller chunks, so that more taps read
/// only padding and are skipped.
inline constexpr int64_t kWeightsRows = 252, kWeightsPixels = 336, kDilatedPixels = 112;

/// Copies a short run of floats inline: a call of memcpy would cost more than the copy.
inline void copy_run(const float* from, int64_t count, float* to) {
  constexpr int64_t kStep = 8, kMaxRun = 64;
  if (count < kStep || count > kMaxRun) return static_cast<void>(std::copy_n(from, count, to));
  for (int64_t i = 0; i < count - kStep; i += kStep) std::memcpy(to + i, from + i, kStep * sizeof(float));
  // The last kStep elements overlap those of the previous step.
  std::memcpy(to + count - kStep, from + count - kStep, kStep * sizeof(float));
}

/// The patch matrix (im2col) of one group: a row per output pixel, with the inputs that the pixel depends on.
/// Used by all three passes of DirectConv.
struct Patches {
  const ConvShape& s;
  int64_t group = 0;
  /// Returns the number of elements of a patch.
  int64_t length() const { return s.kernel_h * s.kernel_w * s.group_in(); }
  int64_t num_pixels() const { return s.batch * s.out_h() * s.out_w(); }
  bool is_dilated() const { return s.dilation > 1; }
  /// Returns the number of patch elements per matmul: one tap if dilated, otherwise the full patch.
  int64_t part() const { return is_dilated() ? s.group_in() : length(); }
  /// Returns the number of pixels per chunk, a multiple of the 14 rows of a register tile. The patch elements
  /// of one matmul stay in the L2 cache.
  int64_t chunk() const {
    constexpr int64_t kFloats = 64 * 1024, kRows = 14;
    return std::clamp<int64_t>(kFloats / part() / kRows * kRows, kRows, 32 * kRows);
  }
  int64_t weights_chunk() const { return is_dilated() ? kDilatedPixels : kWeightsPixels; }
  /// True if the patches are the rows of the image itself.
  bool trivial() const {
    return s.kernel_h == 1 && s.kernel_w == 1 && s.stride == 1 && s.padding == 0 && s.groups == 1;
  }

  /// True if patches are read directly from x, without gathering.
  bool is_in_place(DType dtype) const { return trivial() && dtype == DType::f32; }
  /// True if patches are not gathered: for each kernel row, the patches of a row of pixels are read as a
  /// matrix with overlapping rows.
  bool slides(DType dtype) const {
    constexpr int64_t kMaxChannels = 8;
    return dtype == DType::f32 && s.in_c <= kMaxChannels && s.groups == 1 && !is_dilated() && !trivial() &&
           length() <= kWeightsRows;
  }

  /// Position of an output pixel. for_each_pixel() calls visit(i, pixel) for `count` pixels from `first` on,
  /// stepping instead of dividing per pixel.
  struct Pixel {
    int64_t x, y, image;
  };
  template <typename Visit>
  void for_each_pixel(int64_t first, int64_t count, Visit visit) const {
    const int64_t w = s.out_w(), h = s.out_h();
    Pixel pixel{.x = first % w, .y = first / w % h, .image = first / (w * h)};
    for (int64_t i = 0; i < count; ++i) {
      visit(i, pixel);
      if (++pixel.x < w) continue;
      pixel.x = 0;
      if (++pixel.y < h) continue;
      pixel.y = 0;
      ++pixel.image;
    }
  }

  /// Calls visit(index in the patch, element index in x or -1 for padding, number of elements) for each
  /// contiguous run of elements of a pixel's patch.
  template <typename Visit>
  void for_each_tap(const Pixel& pixel, Visit visit) const {
    const auto [ox, oy, image] = pixel;
    const int64_t x0 = ox * s.stride - s.padding;
    const int64_t channels = s.group_in();
    for (int64_t ky = 0; ky < s.kernel_h; ++ky) {
      const int64_t y = oy * s.stride - s.padding + s.dilation * ky;
      const int64_t row = ky * s.kernel_w;
      const bool real = y >= 0 && y < s.in_h;
      if (s.dilation > 1 || s.groups > 1) {
        for (int64_t kx = 0; kx < s.kernel_w; ++kx) {
          const int64_t x = x0 + s.dilation * kx;
          const int64_t source = ((image * s.in_h + y) * s.in_w + x) * s.in_c + group * channels;
          visit((row + kx) * channels, real && x >= 0 && x < s.in_w ? source : int64_t{-1}, channels);
        }
        continue;
      }
      // The taps of a kernel row are adjacent in NHWC memory: one run, possibly with padding on both sides.
      const int64_t first = real ? std::clamp<int64_t>(-x0, 0, s.kernel_w) : s.kernel_w;
      const int64_t last = real ? std::clamp<int64_t>(s.in_w - x0, first, s.kernel_w) : s.kernel_w;
      if (first > 0) visit(row * s.in_c, int64_t{-1}, first * s.in_c);
      if (last > first) {
        const int64_t source = ((image * s.in_h + y) * s.in_w + x0 + first) * s.in_c;
        visit((row + first) * s.in_c, source, (last - first) * s.in_c);
      }
      if (last < s.kernel_w) visit((row + last) * s.in_c, int64_t{-1}, (s.kernel_w - last) * s.in_c);
    }
  }

  /// True if the tap is inside of the image for any of `count` pixels from `first` on.
  bool reaches(int64_t tap, int64_t first, int64_t count) const {
    const int64_t dy = s.dilation * (tap / s.kernel_w) - s.padding;
    const int64_t dx = s.dilation * (tap % s.kernel_w) - s.padding;
    bool found = false;
    for_each_pixel(first, count, [&](int64_t, const Pixel& pixel) {
      const int64_t y = pixel.y * s.stride + dy, x = pixel.x * s.stride + dx;
      found |= y >= 0 && y < s.in_h && x >= 0 && x < s.in_w;
    });
    return found;
  }
  /// Calls visit(range of patch elements) for each part() of the patches of `count` pixels from `first` on
  /// that is not only padding.
  template <typename Visit>
  void for_each_part(int64_t first, int64_t count, Visit visit) const {
    if (!is_dilated()) return visit(Range{0, length()});
    for (int64_t tap = 0; tap < s.kernel_h * s.kernel_w; ++tap)
      if (reaches(tap, first, count)) visit(Range{tap * part(), (tap + 1) * part()});
  }

  /// Gathers elements [columns.begin, columns.end) of the patches of `count` pixels from `first` on into the
  /// rows of `out`.
  void gather(DType dtype, const void* x, int64_t first, int64_t count, Range columns, float* out) const {
    for_each_pixel(first, count, [&](int64_t i, const Pixel& pixel) {
      float* patch = out + i * columns.size() - columns.begin;
      for_each_tap(pixel, [&](int64_t patch_index, int64_t source, int64_t run) {
        const int64_t begin = std::max(patch_index, columns.begin);
        const int64_t size = std::min(patch_index + run, columns.end) - begin;
        if (size <= 0) return;
        if (source < 0) {
          std::fill_n(patch + begin, size, 0.0F);
        } else if (dtype == DType::f32) {
          copy_run(static_cast<const float*>(x) + source + begin - patch_index, size, patch + begin);
        } else {
          load_f32(dtype, x, source + begin - patch_index, size, patch + begin);
        }
      });
    });
  }

  /// Splits `count` pixels from `first` on into runs of adjacent pixels of one row. Calls visit(index i of
  /// the run's first pixel, number of pixels, first pixel, inside); `inside` is true if none of the run's
  /// patches crosses the left or right border.
  template <typename Visit>
  void for_each_run(int64_t first, int64_t count, Visit visit) const {
    const int64_t w = s.out_w(), h = s.out_h();
    const int64_t last = s.in_w + s.padding - s.kernel_w;
    const int64_t begin = std::min((s.padding + s.stride - 1) / s.stride, w);
    const int64_t end = last < 0 ? begin : std::clamp(last / s.stride + 1, begin, w);
    for (int64_t i = 0, size = 0; i < count; i += size) {
      const int64_t row = (first + i) / w, x = (first + i) % w;
      const bool inside = x >= begin && x < end;
      size = std::min((x < begin ? begin : inside ? end : w) - x, count - i);
      visit(i, size, Pixel{.x = x, .y = row % h, .image = row / h}, inside);
    }
  }
  /// Calls visit(range of patch elements, index in x of the first of them) for each kernel row of the pixel's
  /// patch that is inside of the image.
  template <typename Visit>
  void for_each_kernel_row(const Pixel& pixel, Visit visit) const {
    const int64_t run = s.kernel_w * s.in_c;
    for (int64_t ky = 0; ky < s.kernel_h; ++ky) {
      const int64_t y = pixel.y * s.stride - s.padding + ky;
      if (y < 0 || y >= s.in_h) continue;
      visit(Range{ky * run, (ky + 1) * run},
            ((pixel.image * s.in_h + y) * s.in_w + pixel.x * s.stride - s.padding) * s.in_c);
    }
  }

  /// A matrix of patch elements with a row stride of `row` floats.
  struct View {
    const float* data;
    int64_t row;
  };
  /// Returns elements `columns` of the patches of `count` pixels from `first` on: a view of x if that has the
  /// layout of patches, otherwise of `gathered`, which is filled.
  View rows(DType dtype, const void* x, int64_t first, int64_t count, Range columns, float* gathered) const {
    if (is_in_place(dtype)) return {static_cast<const float*>(x) + first * s.in_c + columns.begin, s.in_c};
    if (trivial() && columns.size() == s.in_c) {
      load_f32(dtype, x, first * s.in_c, count * s.in_c, gathered);
    } else {
      gather(dtype, x, first, count, columns, gathered);
    }
    return {gathered, columns.size()};
  }

  /// Adds elements `columns` (full taps) of patches to the input pixels that they correspond to (col2im); dx
  /// starts at element dx_begin of the full array.
  void scatter(const float* patches, int64_t first, int64_t count, Range columns, float* dx,
               int64_t dx_begin) const {
    for_each_pixel(first, count, [&](int64_t i, const Pixel& pixel) {
      const float* patch = patches + i * columns.size() - columns.begin;
      for_each_tap(pixel, [&](int64_t patch_index, int64_t target, int64_t run) {
        const bool is_asked = patch_index >= columns.begin && patch_index < columns.end;
        if (is_asked && target >= 0) add_row(patch + patch_index, dx + target - dx_begin, run);
      });
    });
  }
};

}  // namespace hearth::cpu
