#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "backend/cpu/convert.h"
#include "backend/cpu/rows.h"
#include "ops/conv/conv_spec.h"

namespace hearth::cpu {

/// Rows of the weight gradient computed at once, and pixels per chunk (fewer for dilated kernels, where a
/// chunk may see only padding through some taps): their inputs stay in the L2 cache while all columns are
/// computed.
inline constexpr int64_t kWeightsRows = 252, kWeightsPixels = 336, kDilatedPixels = 112;

/// Copies a short run, for which a call of memcpy costs more than the copy.
inline void copy_run(const float* from, int64_t count, float* to) {
  constexpr int64_t kStep = 8, kMaxRun = 64;
  if (count < kStep || count > kMaxRun) return static_cast<void>(std::copy_n(from, count, to));
  for (int64_t i = 0; i < count - kStep; i += kStep) std::memcpy(to + i, from + i, kStep * sizeof(float));
  // The last step overlaps the previous one.
  std::memcpy(to + count - kStep, from + count - kStep, kStep * sizeof(float));
}

/// Rows of inputs that the pixels of a convolution see (im2col), for all three passes of DirectConv.
struct Patches {
  const ConvShape& s;
  int64_t group = 0;
  /// Returns the elements of a patch.
  int64_t length() const { return s.kernel_h * s.kernel_w * s.group_in(); }
  int64_t num_pixels() const { return s.batch * s.out_h() * s.out_w(); }
  bool is_dilated() const { return s.dilation > 1; }
  /// Elements of a patch per matmul: one tap if dilated, otherwise all.
  int64_t part() const { return is_dilated() ? s.group_in() : length(); }
  /// Pixels per chunk, a multiple of the register kernel's rows: their part of the patches stays in the L2
  /// cache.
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
  /// True if patches are multiplied in place, one row of the kernel at a time (a matrix with overlapping
  /// rows).
  bool slides(DType dtype) const {
    constexpr int64_t kMaxChannels = 8;
    return dtype == DType::f32 && s.in_c <= kMaxChannels && s.groups == 1 && !is_dilated() && !trivial() &&
           length() <= kWeightsRows;
  }

  /// Position of an output pixel. for_each_pixel calls visit(i, pixel) for `count` pixels with one division
  /// in total.
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

  /// Calls visit(index in the patch, element index in x or -1 for padding, length) for each run of taps of a
  /// pixel.
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
      // Adjacent taps of a row are adjacent in NHWC memory: one run, with padding on both sides.
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

  /// True if one of `count` pixels from `first` on reads a pixel inside of its image through the tap.
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
  /// Calls visit(columns) for the parts of these pixels' patches that are not only padding.
  template <typename Visit>
  void for_each_part(int64_t first, int64_t count, Visit visit) const {
    if (!is_dilated()) return visit(Range{0, length()});
    for (int64_t tap = 0; tap < s.kernel_h * s.kernel_w; ++tap)
      if (reaches(tap, first, count)) visit(Range{tap * part(), (tap + 1) * part()});
  }

  /// Gathers elements [columns.begin, columns.end) of `count` patches from pixel `first` on into adjacent
  /// rows.
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

  /// Calls visit(i, size, pixel, inside) for runs of pixels of one row. A run starts at `pixel`, the i-th of
  /// `count` pixels from `first` on; `inside` is true if none of its patches crosses the left or right
  /// border.
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
  /// Calls visit(columns of the patch, element index in x of `pixel`'s inputs) for each kernel row that is
  /// inside of the image.
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
  /// Returns the gathered patches, or x itself if it has the layout of patches.
  View rows(DType dtype, const void* x, int64_t first, int64_t count, Range columns, float* gathered) const {
    if (is_in_place(dtype)) return {static_cast<const float*>(x) + first * s.in_c + columns.begin, s.in_c};
    if (trivial() && columns.size() == s.in_c) {
      load_f32(dtype, x, first * s.in_c, count * s.in_c, gathered);
    } else {
      gather(dtype, x, first, count, columns, gathered);
    }
    return {gathered, columns.size()};
  }

  /// Adds these elements of patches (full taps) to the pixels they were gathered from (col2im).
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
