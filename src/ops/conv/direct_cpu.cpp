// Convolution as matmul of patches by weights (im2col). The patch of an output pixel is a row of the kernel_h
// x kernel_w x in_c inputs that it depends on. All patches of a 3x3 kernel would be 9 times the size of the
// image, so each thread gathers a chunk that stays in its cache, multiplies it, and discards it. With
// channels last, the taps of a kernel row are adjacent in memory, so that gathering is a few copies per
// pixel. The weight gradient is the transposed patches times dy. The input gradient is dy times the
// transposed weights, scattered to the pixels (col2im). Each group of channels is a separate convolution.
// With large dilations, some taps read only padding for all pixels of a chunk: taps are then multiplied one
// by one, and such taps are skipped (up to 19 of 27 in DeepLab on 32x32 pixels). With few channels nothing is
// gathered: for one kernel row, the patches of a row of pixels are a matrix in the image itself, with
// overlapping rows.
#include "ops/conv/direct_cpu.h"

#include "backend/cpu/simd/simd.h"
#include "ops/conv/patches_cpu.h"

namespace hearth::cpu {
namespace {

/// Returns the number of floats of scratch that pack_groups() needs in addition to the panels.
int64_t packing_floats(const ConvSpec& spec) {
  const ConvShape& s = spec.shape;
  return spec.w == DType::f32 && s.groups == 1 ? 0 : s.kernel_h * s.kernel_w * s.group_in() * s.out_c;
}

/// Returns the number of floats in the packed panels of one group's weight matrix.
int64_t group_panel_floats(const ConvShape& s, bool transposed) {
  const int64_t k = s.kernel_h * s.kernel_w * s.group_in(), o = s.group_out();
  return transposed ? panel_floats(o, k) : panel_floats(k, o);
}

/// Packs each group's [k][o] part of the weights [k][out_c], or its transpose, into panels.
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

/// Computes c [count][out_c] = patches of `count` pixels from `first` on times the weight panels, for one
/// part of the patches' columns after another.
void multiply_parts(const ConvSpec& spec, const void* x, int64_t first, int64_t count, const float* panels,
                    float* gathered, float* c) {
  const Patches patches{spec.shape};
  const int64_t o = spec.shape.out_c, k = patches.length(), group_o = spec.shape.group_out();
  for (int64_t g = 0; g < spec.shape.groups; ++g) {
    bool begun = false;
    patches.for_each_part(first, count, [&](Range part) {
      const Patches::View a = Patches{spec.shape, g}.rows(spec.x, x, first, count, part, gathered);
      const float* b = panels + g * group_panel_floats(spec.shape, false) + part.begin * kPanel;
      for (int64_t j = 0; j < group_o; j += kPanel) {
        simd().gemm(count, std::min(kPanel, group_o - j), part.size(), a.data, a.row, 1, b + j * k, kPanel,
                    c + g * group_o + j, o, begun);
      }
      begun = true;
    });
    for (int64_t i = 0; !begun && i < count; ++i) std::fill_n(c + i * o + g * group_o, group_o, 0.0F);
  }
}
/// Computes the product of multiply_parts() for patches that slide over the image (Patches::slides): only
/// patches that cross the left or right border are gathered.
void multiply_runs(const Patches& patches, const float* x, int64_t first, int64_t count, const float* panels,
                   float* gathered, float* c) {
  const int64_t o = patches.s.out_c, k = patches.length();
  patches.for_each_run(first, count, [&](int64_t i, int64_t size, const Patches::Pixel& pixel, bool inside) {
    bool begun = false;
    const auto multiply = [&](const float* a, int64_t a_row, Range part) {
      for (int64_t j = 0; j < o; j += kPanel) {
        simd().gemm(size, std::min(kPanel, o - j), part.size(), a, a_row, 1,
                    panels + j * k + part.begin * kPanel, kPanel, c + i * o + j, o, begun);
      }
      begun = true;
    };
    if (inside) {
      patches.for_each_kernel_row(pixel, [&](Range part, int64_t x_offset) {
        multiply(x + x_offset, patches.s.stride * patches.s.in_c, part);
      });
      if (!begun) std::fill_n(c + i * o, size * o, 0.0F);
    } else {
      patches.gather(DType::f32, x, first + i, size, {0, k}, gathered);
      multiply(gathered, k, {0, k});
    }
  });
}

/// Per-thread workspace of the forward pass, in floats: gathered patches and, if the dtype is not f32, f32
/// copies of outputs and residual.
struct ForwardRoom {
  int64_t gathered, wide;
  explicit ForwardRoom(const ConvSpec& spec) {
    const Patches patches{spec.shape};
    gathered = patches.is_in_place(spec.x) ? 0 : patches.chunk() * patches.part();
    wide = spec.x == DType::f32 ? 0 : patches.chunk() * spec.shape.out_c;
  }
  int64_t total() const { return gathered + 2 * wide; }
};

/// Per-thread workspace of the input gradient, in floats: gradients of patches and, if the dtype is not f32,
/// f32 copies of a chunk of dy and of an image of dx.
struct DataRoom {
  int64_t patches, dy, dx;
  explicit DataRoom(const ConvSpec& spec) {
    const Patches p{spec.shape};
    const bool is_f32 = spec.x == DType::f32;
    patches = p.trivial() ? 0 : p.chunk() * p.part();
    dy = is_f32 ? 0 : p.chunk() * spec.shape.out_c;
    dx = is_f32 ? 0 : spec.shape.in_h * spec.shape.in_w * spec.shape.in_c;
  }
  int64_t total() const { return patches + dy + dx; }
};

}  // namespace

int64_t DirectConv::forward_workspace_bytes() const {
  return float_bytes(spec.shape.groups * group_panel_floats(spec.shape, false) + packing_floats(spec) +
                     spec.num_threads * ForwardRoom(spec).total());
}

void DirectConv::forward(const void* x, const void* w, const float* bias, const void* residual, void* y,
                         std::byte* workspace, ThreadPool& threads) const {
  const Patches patches{spec.shape};
  const int64_t o = spec.shape.out_c;
  const int64_t chunk = patches.chunk();
  auto* panels = reinterpret_cast<float*>(workspace);
  float* scratch = panels + spec.shape.groups * group_panel_floats(spec.shape, false);
  pack_groups(spec, w, false, panels, scratch, threads);
  const ForwardRoom room(spec);
  float* per_thread = scratch + packing_floats(spec);
  threads.run([&](int thread) {
    float* gathered = per_thread + thread * room.total();
    float* wide = gathered + room.gathered;
    float* wide_residual = wide + room.wide;
    const Range mine = split_range(patches.num_pixels(), spec.num_threads, thread);
    for (int64_t first = mine.begin; first < mine.end; first += chunk) {
      const int64_t count = std::min(chunk, mine.end - first);
      float* c = spec.x == DType::f32 ? static_cast<float*>(y) + first * o : wide;
      if (patches.slides(spec.x)) {
        multiply_runs(patches, static_cast<const float*>(x), first, count, panels, gathered, c);
      } else {
        multiply_parts(spec, x, first, count, panels, gathered, c);
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
  return float_bytes(spec.shape.groups * group_panel_floats(spec.shape, true) + packing_floats(spec) +
                     spec.num_threads * DataRoom(spec).total());
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
  const DataRoom room(spec);
  float* per_thread = scratch + packing_floats(spec);
  threads.run([&](int thread) {
    float* gathered = per_thread + thread * room.total();
    float* wide_dy = gathered + room.patches;
    float* wide_dx = wide_dy + room.dy;
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

}  // namespace hearth::cpu
