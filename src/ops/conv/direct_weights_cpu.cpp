#include "backend/cpu/simd/simd.h"
#include "ops/conv/direct_cpu.h"
#include "ops/conv/patches_cpu.h"

namespace hearth::cpu {
namespace {

/// Work distribution of a weight gradient dw [k][o] = sum over pixels of patch^T dy. A thread computes some
/// rows of dw over all pixels, so that no reduction is needed. If dw has few elements, the pixels are split
/// into parts instead (split-K), whose partial sums are added in order. In both cases the result does not
/// depend on the number of threads.
struct WeightsPlan {
  Patches patches;
  int64_t k, o, groups, chunk;
  int pixel_parts;         ///< number of split-K parts; 0: threads divide the rows of dw
  int64_t scratch_floats;  ///< scratch per thread: parts of patches, and panels of dy
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

/// Minimum number of rows of dw for which packing dy into panels pays off.
constexpr int64_t kPackRows = 192;

/// Packs dy of `count` pixels from `first` on into panels [group][columns / kPanel][count][up to kPanel
/// columns].
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

/// Adds patches^T * dy [count][o] to sum [k][o] for patches that slide over the image (Patches::slides): only
/// patches that cross the left or right border are gathered.
void add_run_weights(const Patches& patches, const float* x, const float* dy, int64_t first, int64_t count,
                     float* sum, float* gathered) {
  const int64_t o = patches.s.out_c, k = patches.length();
  patches.for_each_run(first, count, [&](int64_t i, int64_t size, const Patches::Pixel& pixel, bool inside) {
    if (!inside) {
      patches.gather(DType::f32, x, first + i, size, {0, k}, gathered);
      return simd().gemm(k, o, size, gathered, 1, k, dy + i * o, o, sum, o, true);
    }
    patches.for_each_kernel_row(pixel, [&](Range part, int64_t x_offset) {
      simd().gemm(part.size(), o, size, x + x_offset, 1, patches.s.stride * patches.s.in_c, dy + i * o, o,
                  sum + part.begin * o, o, true);
    });
  });
}

/// Adds to c [rows][o] the transposed elements `rows` of the patches of `pixels`, times dy, which is
/// [count][o] or, if in_panels, packed by pack_cotangents().
void add_block(const WeightsPlan& plan, const ConvSpec& spec, const void* x, Range pixels, Range rows,
               const float* dy, bool in_panels, float* c, float* scratch) {
  const int64_t o = plan.o, group_o = o / plan.groups, count = pixels.size();
  const int64_t step = in_panels ? kPanel : group_o;
  for (int64_t g = 0; g < plan.groups; ++g) {
    const Patches::View a = Patches{spec.shape, g}.rows(spec.x, x, pixels.begin, count, rows, scratch);
    for (int64_t j = g * group_o; j < (g + 1) * group_o; j += step) {
      const int64_t columns = std::min(step, (g + 1) * group_o - j);
      simd().gemm(rows.size(), columns, count, a.data, 1, a.row, in_panels ? dy + j * count : dy + j,
                  in_panels ? columns : o, c + j, o, true);
    }
  }
}

/// Computes sum [rows][o] = the transposed elements `rows` of the patches of `pixels`, times dy.
void add_weights(const WeightsPlan& plan, const ConvSpec& spec, const void* x, const void* dy, Range pixels,
                 Range rows, float* sum, float* scratch) {
  float* panels = scratch + plan.chunk * std::min(plan.k, kWeightsRows);
  const int64_t o = plan.o;
  const bool in_panels = rows.size() >= kPackRows && o / plan.groups > kPanel;
  const bool slides = plan.patches.slides(spec.x) && rows.size() == plan.k;
  std::fill_n(sum, rows.size() * o, 0.0F);
  for (int64_t first = pixels.begin; first < pixels.end; first += plan.chunk) {
    const Range chunk{first, std::min(first + plan.chunk, pixels.end)};
    const float* b = panels;
    if (in_panels && !slides) {
      pack_cotangents(plan, spec.x, dy, first, chunk.size(), panels);
    } else {
      b = as_f32(spec.x, dy, first * o, chunk.size() * o, panels);
    }
    if (slides) {
      add_run_weights(plan.patches, static_cast<const float*>(x), b, first, chunk.size(), sum, scratch);
      continue;
    }
    plan.patches.for_each_part(first, chunk.size(), [&](Range part) {
      const int64_t end = std::min(part.end, rows.end);
      for (int64_t row = std::max(part.begin, rows.begin); row < end; row += kWeightsRows) {
        add_block(plan, spec, x, chunk, {row, std::min(row + kWeightsRows, end)}, b, in_panels,
                  sum + (row - rows.begin) * o, scratch);
      }
    });
  }
}

}  // namespace

int64_t DirectConv::weights_workspace_bytes() const {
  return float_bytes(WeightsPlan(spec).num_floats(spec.num_threads));
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
