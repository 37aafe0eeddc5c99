// A convolution is a matmul of patches by weights: the row of a pixel holds the kernel_h x kernel_w x in_c
// inputs that it sees. Written out, these rows would be 9 times the image for a 3x3 kernel. So each thread
// gathers a chunk of rows that stays in its cache, multiplies it, and forgets it. With channels last, the
// taps of one kernel row lie side by side in memory: gathering is a few copies per pixel. The gradient of the
// weights multiplies the same rows from the left, that of the inputs scatters what the transposed weights
// give back. A group of channels is a convolution of its own over parts of the same rows. Where a kernel is
// dilated so far that whole chunks see only padding through a tap, taps are multiplied one by one and those
// are left out: of DeepLab's 27 on 32x32 pixels, as many as 19.
#include "ops/conv/direct_cpu.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/convert.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd/simd.h"

namespace hearth::cpu {
namespace {

constexpr int64_t kChunkFloats = 64 * 1024;
/// Rows of the weight gradient that are made at once of kWeightsPixels pixels, or of fewer where some of them
/// may see only padding: their inputs stay in the second-level cache while all columns are made.
constexpr int64_t kWeightsRows = 252, kWeightsPixels = 336, kDilatedPixels = 112;

/// For short runs, where a call costs more than the copy.
inline void copy_run(const float* from, int64_t count, float* to) {
  constexpr int64_t kStep = 8, kMost = 64;
  if (count < kStep || count > kMost) return static_cast<void>(std::copy_n(from, count, to));
  for (int64_t i = 0; i < count - kStep; i += kStep) std::memcpy(to + i, from + i, kStep * sizeof(float));
  // The last step overlaps the one before.
  std::memcpy(to + count - kStep, from + count - kStep, kStep * sizeof(float));
}

/// The geometry shared by the three passes.
struct Patches {
  const ConvShape& s;
  int64_t group = 0;
  int64_t length() const { return s.kernel_h * s.kernel_w * s.group_in(); }
  int64_t num_pixels() const { return s.batch * s.out_h() * s.out_w(); }
  bool is_dilated() const { return s.dilation > 1; }
  /// Elements of a patch that are multiplied at once.
  int64_t part() const { return is_dilated() ? s.group_in() : length(); }
  int64_t chunk() const { return std::clamp<int64_t>(kChunkFloats / part() / 14 * 14, 14, 448); }
  int64_t weights_chunk() const { return is_dilated() ? kDilatedPixels : kWeightsPixels; }
  /// Patches are the image's own rows.
  bool trivial() const {
    return s.kernel_h == 1 && s.kernel_w == 1 && s.stride == 1 && s.padding == 0 && s.groups == 1;
  }

  /// An output pixel; for_each_pixel calls visit(i, pixel) for `count` of them without a division for each.
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

  /// Calls visit(place in the patch, element index in x or -1 when outside, run of taps) for each tap run of
  /// a pixel.
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
      // Neighboring taps of a row are neighbors in NHWC memory: one run of them, padding on either side.
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

  /// Whether some of `count` pixels from `first` on find a pixel of their image through a tap.
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
  /// Calls visit(columns) for the parts of these pixels' patches that may be more than padding.
  template <typename Visit>
  void for_each_part(int64_t first, int64_t count, Visit visit) const {
    if (!is_dilated()) return visit(Range{0, length()});
    for (int64_t tap = 0; tap < s.kernel_h * s.kernel_w; ++tap)
      if (reaches(tap, first, count)) visit(Range{tap * part(), (tap + 1) * part()});
  }

  /// Elements [columns.begin, columns.end) of `count` patches from pixel `first` on, side by side.
  void gather(DType dtype, const void* x, int64_t first, int64_t count, Range columns, float* out) const {
    for_each_pixel(first, count, [&](int64_t i, const Pixel& pixel) {
      float* patch = out + i * columns.size() - columns.begin;
      for_each_tap(pixel, [&](int64_t place, int64_t source, int64_t run) {
        const int64_t begin = std::max(place, columns.begin);
        const int64_t size = std::min(place + run, columns.end) - begin;
        if (size <= 0) return;
        if (source < 0) {
          std::fill_n(patch + begin, size, 0.0F);
        } else if (dtype == DType::f32) {
          copy_run(static_cast<const float*>(x) + source + begin - place, size, patch + begin);
        } else {
          load_f32(dtype, x, source + begin - place, size, patch + begin);
        }
      });
    });
  }

  /// Rows of patch elements, `row` floats apart.
  struct View {
    const float* data;
    int64_t row;
  };
  /// The gathered patches, or x itself where they lie there as such.
  View rows(DType dtype, const void* x, int64_t first, int64_t count, Range columns, float* gathered) const {
    if (trivial() && dtype == DType::f32)
      return {static_cast<const float*>(x) + first * s.in_c + columns.begin, s.in_c};
    if (trivial() && columns.size() == s.in_c) {
      load_f32(dtype, x, first * s.in_c, count * s.in_c, gathered);
    } else {
      gather(dtype, x, first, count, columns, gathered);
    }
    return {gathered, columns.size()};
  }

  /// Adds these elements of patches, of whole taps, to where they come from.
  void scatter(const float* patches, int64_t first, int64_t count, Range columns, float* dx,
               int64_t dx_begin) const {
    for_each_pixel(first, count, [&](int64_t i, const Pixel& pixel) {
      const float* patch = patches + i * columns.size() - columns.begin;
      for_each_tap(pixel, [&](int64_t place, int64_t target, int64_t run) {
        const bool is_asked = place >= columns.begin && place < columns.end;
        if (is_asked && target >= 0) add_row(patch + place, dx + target - dx_begin, run);
      });
    });
  }
};

int64_t floats(int64_t count) { return count * static_cast<int64_t>(sizeof(float)); }

int64_t weight_floats(const ConvShape& s) { return s.kernel_h * s.kernel_w * s.group_in() * s.out_c; }

/// Floats of the panels of one group's matrix of weights, rows by columns.
int64_t group_panel_floats(const ConvShape& s, bool transposed) {
  const int64_t k = s.kernel_h * s.kernel_w * s.group_in(), o = s.group_out();
  return transposed ? panel_floats(o, k) : panel_floats(k, o);
}

/// Packs each group's [k][o] of the weights [k][out_c], or its transpose, by way of weight_floats() of
/// scratch.
void pack_groups(const ConvSpec& spec, const void* w, bool transposed, float* panels, float* scratch,
                 ThreadPool& threads) {
  const ConvShape& s = spec.shape;
  const int64_t o = s.group_out(), k = s.kernel_h * s.kernel_w * s.group_in();
  const int64_t rows = transposed ? o : k, columns = transposed ? k : o;
  if (s.groups == 1) return pack_panels(spec.w, w, rows, columns, transposed, panels, scratch, threads);
  for (int64_t g = 0; g < s.groups; ++g) {
    for (int64_t i = 0; i < k; ++i) load_f32(spec.w, w, i * s.out_c + g * o, o, scratch + i * o);
    pack_panels(DType::f32, scratch, rows, columns, transposed,
                panels + g * group_panel_floats(s, transposed), nullptr, threads);
  }
}

}  // namespace

int64_t DirectConv::forward_workspace_bytes() const {
  const Patches patches{spec.shape};
  const int64_t per_thread = patches.chunk() * (patches.part() + 2 * spec.shape.out_c);
  return floats(spec.shape.groups * group_panel_floats(spec.shape, false) + weight_floats(spec.shape) +
                spec.num_threads * per_thread);
}

void DirectConv::forward(const void* x, const void* w, const float* bias, const void* residual, void* y,
                         std::byte* workspace, ThreadPool& threads) const {
  const Patches patches{spec.shape};
  const int64_t k = patches.length();
  const int64_t o = spec.shape.out_c;
  const int64_t chunk = patches.chunk();
  const int64_t groups = spec.shape.groups, group_o = o / groups;
  const int64_t group_panels = group_panel_floats(spec.shape, false);
  auto* panels = reinterpret_cast<float*>(workspace);
  float* scratch = panels + groups * group_panels;
  pack_groups(spec, w, false, panels, scratch, threads);
  float* per_thread = scratch + weight_floats(spec.shape);
  threads.run([&](int thread) {
    float* gathered = per_thread + thread * chunk * (patches.part() + 2 * o);
    float* wide = gathered + chunk * patches.part();
    float* wide_residual = wide + chunk * o;
    const Range mine = split_range(patches.num_pixels(), spec.num_threads, thread);
    for (int64_t first = mine.begin; first < mine.end; first += chunk) {
      const int64_t count = std::min(chunk, mine.end - first);
      float* c = spec.x == DType::f32 ? static_cast<float*>(y) + first * o : wide;
      for (int64_t g = 0; g < groups; ++g) {
        bool begun = false;
        patches.for_each_part(first, count, [&](Range part) {
          const Patches::View a = Patches{spec.shape, g}.rows(spec.x, x, first, count, part, gathered);
          const float* b = panels + g * group_panels + part.begin * kPanel;
          for (int64_t j = 0; j < group_o; j += kPanel) {
            simd().gemm(count, std::min(kPanel, group_o - j), part.size(), a.data, a.row, 1, b + j * k,
                        kPanel, c + g * group_o + j, o, begun);
          }
          begun = true;
        });
        for (int64_t i = 0; !begun && i < count; ++i) std::fill_n(c + i * o + g * group_o, group_o, 0.0F);
      }
      const float* r =
          residual == nullptr ? nullptr : as_f32(spec.x, residual, first * o, count * o, wide_residual);
      if (bias != nullptr || r != nullptr || spec.relu) {
        for (int64_t i = 0; i < count; ++i)
          finish_row(c + i * o, o, bias, r == nullptr ? nullptr : r + i * o, spec.relu);
      }
      store_f32(spec.x, c, y, first * o, count * o);
    }
  });
}

int64_t DirectConv::data_workspace_bytes() const {
  const Patches patches{spec.shape};
  const int64_t image = spec.shape.in_h * spec.shape.in_w * spec.shape.in_c;
  const int64_t per_thread = patches.chunk() * (patches.part() + spec.shape.out_c) + image;
  return floats(spec.shape.groups * group_panel_floats(spec.shape, true) + weight_floats(spec.shape) +
                spec.num_threads * per_thread);
}

void DirectConv::backward_data(const void* dy, const void* w, void* dx, std::byte* workspace,
                               ThreadPool& threads) const {
  const Patches patches{spec.shape};
  const ConvShape& s = spec.shape;
  const int64_t k = patches.length();
  const int64_t o = s.out_c;
  const int64_t chunk = patches.chunk();
  const int64_t image_floats = s.in_h * s.in_w * s.in_c;
  const int64_t image_pixels = s.out_h() * s.out_w();
  const int64_t group_o = s.group_out(), group_panels = group_panel_floats(s, true);
  auto* panels = reinterpret_cast<float*>(workspace);
  float* scratch = panels + s.groups * group_panels;
  pack_groups(spec, w, true, panels, scratch, threads);
  float* per_thread = scratch + weight_floats(s);
  threads.run([&](int thread) {
    float* gathered = per_thread + thread * (chunk * (patches.part() + o) + image_floats);
    float* wide_dy = gathered + chunk * patches.part();
    float* wide_dx = wide_dy + chunk * o;
    const Range images = split_range(s.batch, spec.num_threads, thread);
    for (int64_t image = images.begin; image < images.end; ++image) {
      float* sum = spec.x == DType::f32 ? static_cast<float*>(dx) + image * image_floats : wide_dx;
      if (!patches.trivial()) std::fill(sum, sum + image_floats, 0.0F);
      for (int64_t done = 0; done < image_pixels; done += chunk) {
        const int64_t count = std::min(chunk, image_pixels - done);
        const int64_t first = image * image_pixels + done;
        const float* a = as_f32(spec.x, dy, first * o, count * o, wide_dy);
        float* c = patches.trivial() ? sum + done * k : gathered;
        for (int64_t g = 0; g < s.groups; ++g) {
          patches.for_each_part(first, count, [&](Range part) {
            int64_t columns = 0;
            for (int64_t j = part.begin; j < part.end; j += columns) {
              const int64_t inside = j % kPanel;
              columns = std::min(kPanel - inside, part.end - j);
              simd().gemm(count, columns, group_o, a + g * group_o, o, 1,
                          panels + g * group_panels + (j - inside) * group_o + inside, kPanel,
                          c + j - part.begin, part.size(), false);
            }
            if (!patches.trivial())
              Patches{s, g}.scatter(gathered, first, count, part, sum, image * image_floats);
          });
        }
      }
      store_f32(spec.x, sum, dx, image * image_floats, image_floats);
    }
  });
}

namespace {

/// How threads share a weight gradient dw [k][o] = sum over pixels of patch^T dy. Each computes rows of dw
/// over all pixels, so that no sums have to be joined. Where dw has few elements it is summed over parts of
/// the pixels instead, which are joined in their order. Either way no bit depends on the number of threads.
struct WeightsPlan {
  Patches patches;
  int64_t k, o, groups, chunk;
  int pixel_parts;         ///< 0: threads share rows of dw
  int64_t scratch_floats;  ///< of a thread: parts of patches, and panels of dy
  int64_t row_tasks;

  explicit WeightsPlan(const ConvSpec& spec)
      : patches{spec.shape},
        k(patches.length()),
        o(spec.shape.out_c),
        groups(spec.shape.groups),
        chunk(patches.weights_chunk()) {
    constexpr int64_t kSmall = 32 * 1024, kTasksPerThread = 2;
    pixel_parts = k * o <= kSmall ? num_sum_parts(patches.num_pixels(), chunk) : 0;
    row_tasks = std::clamp<int64_t>(k / 14, 1, kTasksPerThread * spec.num_threads);
    scratch_floats = chunk * (std::min(k, kWeightsRows) + o);
  }
  int64_t num_floats(int num_threads) const { return pixel_parts * k * o + num_threads * scratch_floats; }
};

/// From this many rows of the weight gradient on, dy is read often enough to be put together before.
constexpr int64_t kPackRows = 192;

/// dy of `count` pixels from `first` on, as panels of each group's columns: [group][columns / kPanel][count].
void pack_cotangents(const WeightsPlan& plan, DType dtype, const void* dy, int64_t first, int64_t count,
                     float* panels) {
  const int64_t group_o = plan.o / plan.groups;
  for (int64_t g = 0; g < plan.groups; ++g) {
    for (int64_t j = 0; j < group_o; j += kPanel) {
      const int64_t columns = std::min(kPanel, group_o - j), column = g * group_o + j;
      float* panel = panels + column * count;
      for (int64_t i = 0; i < count; ++i)
        load_f32(dtype, dy, (first + i) * plan.o + column, columns, panel + i * columns);
    }
  }
}

/// sum [rows][o] += the patches' elements `rows` of these pixels, transposed, times dy.
void add_weights(const WeightsPlan& plan, const ConvSpec& spec, const void* x, const void* dy, Range pixels,
                 Range rows, float* sum, float* scratch) {
  float* panels = scratch + plan.chunk * std::min(plan.k, kWeightsRows);
  const int64_t o = plan.o, group_o = o / plan.groups;
  const bool packs = rows.size() >= kPackRows && group_o > kPanel;
  std::fill_n(sum, rows.size() * o, 0.0F);
  for (int64_t first = pixels.begin; first < pixels.end; first += plan.chunk) {
    const int64_t count = std::min(plan.chunk, pixels.end - first);
    const float* b = panels;
    if (packs) {
      pack_cotangents(plan, spec.x, dy, first, count, panels);
    } else {
      b = as_f32(spec.x, dy, first * o, count * o, panels);
    }
    plan.patches.for_each_part(first, count, [&](Range part) {
      const Range asked{std::max(part.begin, rows.begin), std::min(part.end, rows.end)};
      for (int64_t row = asked.begin; row < asked.end; row += kWeightsRows) {
        const Range block{row, std::min(row + kWeightsRows, asked.end)};
        float* c = sum + (row - rows.begin) * o;
        for (int64_t g = 0; g < plan.groups; ++g) {
          const Patches::View a = Patches{spec.shape, g}.rows(spec.x, x, first, count, block, scratch);
          const int64_t step = packs ? kPanel : group_o;
          for (int64_t j = g * group_o; j < (g + 1) * group_o; j += step) {
            const int64_t columns = std::min(step, (g + 1) * group_o - j);
            simd().gemm(block.size(), columns, count, a.data, 1, a.row, packs ? b + j * count : b + j,
                        packs ? columns : o, c + j, o, true);
          }
        }
      }
    });
  }
}

}  // namespace

int64_t DirectConv::weights_workspace_bytes() const {
  return floats(WeightsPlan(spec).num_floats(spec.num_threads));
}

void DirectConv::backward_weights(const void* x, const void* dy, float* dw, std::byte* workspace,
                                  ThreadPool& threads) const {
  const WeightsPlan plan(spec);
  const int64_t num_pixels = plan.patches.num_pixels();
  const int64_t total = plan.k * plan.o;
  auto* sums = reinterpret_cast<float*>(workspace);
  float* scratch = sums + plan.pixel_parts * total;
  if (plan.pixel_parts == 0) {
    threads.run_tasks(plan.row_tasks, spec.num_threads, [&](int64_t task, int thread) {
      const Range rows = split_range(plan.k, static_cast<int>(plan.row_tasks), static_cast<int>(task));
      add_weights(plan, spec, x, dy, {0, num_pixels}, rows, dw + rows.begin * plan.o,
                  scratch + thread * plan.scratch_floats);
    });
    return;
  }
  threads.run_tasks(plan.pixel_parts, spec.num_threads, [&](int64_t part, int thread) {
    const Range pixels = split_range(num_pixels, plan.pixel_parts, static_cast<int>(part));
    add_weights(plan, spec, x, dy, pixels, {0, plan.k}, sums + part * total,
                scratch + thread * plan.scratch_floats);
  });
  std::memcpy(dw, sums, static_cast<size_t>(total) * sizeof(float));
  for (int part = 1; part < plan.pixel_parts; ++part) add_row(sums + part * total, dw, total);
}

}  // namespace hearth::cpu
