#include "base/formula.h"
#include "ops/denoise/denoise.h"
#include "ops/denoise/timestep_formula.h"
#include "ops/reduce/columns.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Computes timestep embeddings; one thread per element.
__global__ void __launch_bounds__(kBlockThreads)
    embed_times(const float* t, float* out, int64_t count, int size, TimestepFormula formula) {
  const int64_t i = first_element();
  if (i < count) out[i] = static_cast<float>(formula.element(t[i / size], i % size));
}

/// Shape of an array [samples, time, width]. Kernels that sum over the rows of a sample use blockIdx.z as the
/// sample.
struct SampleRows {
  int64_t samples, time;
  int width;

  HEARTH_FORMULA int64_t rows() const { return samples * time; }
  /// Returns the sample that a row belongs to. Divides in 32 bits, because GPUs have no 64-bit division.
  RT_DEVICE int64_t sample_of(int64_t row) const {
    return static_cast<uint32_t>(row) / static_cast<uint32_t>(time);
  }
  /// Returns the index in [samples, parts] of the partial sum that this block computes.
  RT_DEVICE int64_t part() const { return static_cast<int64_t>(blockIdx.z) * gridDim.y + blockIdx.y; }
};
SampleRows rows_of(const NodeView& node) {
  constexpr int64_t kMaxSamples = 65535, kMaxRows = (int64_t{1} << 31) - 1;
  const Shape &x = node.in_type(0).shape, &modulation = node.in_type(1).shape;
  if (modulation[0] > kMaxSamples) refuse_on_gpu("the number of samples", kMaxSamples, modulation[0]);
  if (x[0] > kMaxRows) refuse_on_gpu("the number of tokens", kMaxRows, x[0]);
  return {.samples = modulation[0], .time = x[0] / modulation[0], .width = static_cast<int>(x[1])};
}
rt::Shape for_samples(rt::Shape shape, const SampleRows& all) {
  shape.blocks.z = static_cast<unsigned>(all.samples);
  return shape;
}

template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads)
    add_gated(const T* x, const T* gate, const T* branch, T* y, SampleRows all) {
  const int column = first_column<n>();
  if (column >= all.width) return;
  for (int64_t r = first_row(); r < all.rows(); r += row_stride()) {
    const int64_t at = r * all.width + column;
    const rt::Vec<T, n> values = rt::load<T, n>(x + at), more = rt::load<T, n>(branch + at);
    const rt::Vec<T, n> gates = rt::load<T, n>(gate + all.sample_of(r) * all.width + column);
    rt::Vec<T, n> result;
    RT_UNROLL
    for (int c = 0; c < n; ++c)
      result.at[c] = rt::from_float<T>(rt::to_float(values.at[c]) +
                                       rt::to_float(gates.at[c]) * rt::to_float(more.at[c]));
    rt::store(y + at, result);
  }
}

/// Partial sum of one column, for join_lanes().
struct Sum {
  float value;

  RT_DEVICE void join(const Sum& more) { value += more.value; }
};

/// Computes dbranch, which may alias branch, and partial sums [samples, parts, width] of dgate in `parts`.
template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads)
    spread_gated(const T* branch, const T* gate, const T* dy, T* dbranch, float* parts, SampleRows all) {
  const int column = first_column<n>();
  Sum local[n] = {};
  if (column < all.width) {
    const rt::Vec<T, n> gates = rt::load<T, n>(gate + static_cast<int64_t>(blockIdx.z) * all.width + column);
    for (int64_t r = first_row(); r < all.time; r += row_stride()) {
      const int64_t at = (blockIdx.z * all.time + r) * all.width + column;
      const rt::Vec<T, n> values = rt::load<T, n>(branch + at), slopes = rt::load<T, n>(dy + at);
      rt::Vec<T, n> result;
      RT_UNROLL
      for (int c = 0; c < n; ++c) {
        const float slope = rt::to_float(slopes.at[c]);
        local[c].value += slope * rt::to_float(values.at[c]);
        result.at[c] = rt::from_float<T>(slope * rt::to_float(gates.at[c]));
      }
      rt::store(dbranch + at, result);
    }
  }
  join_lanes(local, all.width,
             [&](int c, const Sum& joined) { parts[all.part() * all.width + c] = joined.value; });
}

/// Computes out [samples, width] = the sums over num_parts of parts [samples, num_parts, width]; one thread
/// per column of a sample.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    keep_sums(const float* parts, T* out, int num_parts, SampleRows all) {
  const int64_t column = first_element();
  if (column >= all.width) return;
  const float* of_sample = parts + static_cast<int64_t>(blockIdx.z) * num_parts * all.width + column;
  float sum = 0;
  for (int part = 0; part < num_parts; ++part) sum += of_sample[static_cast<int64_t>(part) * all.width];
  out[static_cast<int64_t>(blockIdx.z) * all.width + column] = rt::from_float<T>(sum);
}
template <typename T>
void launch_keep_sums(const KernelArgs& args, const float* parts, size_t output, int64_t num_parts,
                      const SampleRows& all) {
  rt::launch(keep_sums<T>, for_samples({ceil_div(all.width, kBlockThreads), kBlockThreads}, all),
             args.stream->handle(), parts, output_of<T>(args, output), static_cast<int>(num_parts), all);
}

/// Threads per block, which processes one row; with more threads, most would be idle on short rows.
constexpr int kRowThreads = 128;

/// Calls body(column) for each run of n columns that this thread processes.
template <int n, typename Body>
RT_DEVICE void for_columns(int width, Body body) {
  for (int c = static_cast<int>(threadIdx.x) * n; c < width; c += kRowThreads * n) body(c);
}

template <typename T>
struct NormArrays {
  const T* x;
  const T* shift;
  const T* scale;
  T* y;
  float* rstd;
  float* mean;
};
/// Computes y, rstd and mean of modulated_norm; one block per row.
template <typename T, int n>
__global__ void __launch_bounds__(kRowThreads) modulate(NormArrays<T> arrays, SampleRows all, float eps) {
  const T* x = arrays.x + static_cast<int64_t>(blockIdx.x) * all.width;
  const int64_t sample = all.sample_of(blockIdx.x) * all.width;
  const float share = 1 / static_cast<float>(all.width);
  float sum = 0, squares = 0;
  for_columns<n>(all.width, [&](int c) {
    const rt::Vec<T, n> values = rt::load<T, n>(x + c);
    RT_UNROLL
    for (int e = 0; e < n; ++e) sum += rt::to_float(values.at[e]);
  });
  const float mean = rt::reduce_block(sum, rt::Add(), 0.0F) * share;
  for_columns<n>(all.width, [&](int c) {
    const rt::Vec<T, n> values = rt::load<T, n>(x + c);
    RT_UNROLL
    for (int e = 0; e < n; ++e) {
      const float deviation = rt::to_float(values.at[e]) - mean;
      squares += deviation * deviation;
    }
  });
  const float rstd = 1 / sqrtf(rt::reduce_block(squares, rt::Add(), 0.0F) * share + eps);
  for_columns<n>(all.width, [&](int c) {
    const rt::Vec<T, n> values = rt::load<T, n>(x + c), scales = rt::load<T, n>(arrays.scale + sample + c),
                        shifts = rt::load<T, n>(arrays.shift + sample + c);
    rt::Vec<T, n> result;
    RT_UNROLL
    for (int e = 0; e < n; ++e) {
      const float normal = (rt::to_float(values.at[e]) - mean) * rstd;
      result.at[e] =
          rt::from_float<T>(normal * (1 + rt::to_float(scales.at[e])) + rt::to_float(shifts.at[e]));
    }
    rt::store(arrays.y + static_cast<int64_t>(blockIdx.x) * all.width + c, result);
  });
  if (threadIdx.x != 0) return;
  arrays.rstd[blockIdx.x] = rstd;
  arrays.mean[blockIdx.x] = mean;
}

template <typename T>
struct NormGradArrays {
  const T* x;
  const T* scale;
  const float* rstd;
  const float* mean;
  const T* dy;
  T* dx;
};
/// Computes dx = rstd (g - mean(g) - normal mean(g normal)), with normal = (x - mean) rstd and g = dy (1 +
/// scale). One block per row.
template <typename T, int n>
__global__ void __launch_bounds__(kRowThreads) spread_norm(NormGradArrays<T> arrays, SampleRows all) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * all.width;
  const float rstd = arrays.rstd[blockIdx.x], mean = arrays.mean[blockIdx.x];
  /// Calls body(e, normal, g) for the n elements e of a run of columns.
  const auto for_elements = [&](int column, auto body) {
    const rt::Vec<T, n> values = rt::load<T, n>(arrays.x + row + column);
    const rt::Vec<T, n> slopes = rt::load<T, n>(arrays.dy + row + column);
    const rt::Vec<T, n> scales =
        rt::load<T, n>(arrays.scale + all.sample_of(blockIdx.x) * all.width + column);
    RT_UNROLL
    for (int e = 0; e < n; ++e)
      body(e, (rt::to_float(values.at[e]) - mean) * rstd,
           rt::to_float(slopes.at[e]) * (1 + rt::to_float(scales.at[e])));
  };
  float sum = 0, dot = 0;
  for_columns<n>(all.width, [&](int c) {
    for_elements(c, [&](int, float normal, float g) {
      sum += g;
      dot += g * normal;
    });
  });
  const float share = 1 / static_cast<float>(all.width);
  const float mean_g = rt::reduce_block(sum, rt::Add(), 0.0F) * share;
  const float mean_dot = rt::reduce_block(dot, rt::Add(), 0.0F) * share;
  for_columns<n>(all.width, [&](int c) {
    rt::Vec<T, n> result;
    for_elements(c, [&](int e, float normal, float g) {
      result.at[e] = rt::from_float<T>(rstd * (g - mean_g - normal * mean_dot));
    });
    rt::store(arrays.dx + row + c, result);
  });
}

/// Partial sums of one column over a sample's rows: of dy (dshift), and of dy times the normalized x
/// (dscale).
struct NormSums {
  float plain, by_normal;

  RT_DEVICE void join(const NormSums& more) {
    plain += more.plain;
    by_normal += more.by_normal;
  }
};
/// Computes partial sums [samples, parts, width] of dshift and of dscale.
template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads)
    add_modulations(NormGradArrays<T> arrays, float* of_shift, float* of_scale, SampleRows all) {
  const int column = first_column<n>();
  NormSums local[n] = {};
  for (int64_t r = first_row(); r < all.time && column < all.width; r += row_stride()) {
    const int64_t row = blockIdx.z * all.time + r, at = row * all.width + column;
    const rt::Vec<T, n> values = rt::load<T, n>(arrays.x + at), slopes = rt::load<T, n>(arrays.dy + at);
    const float rstd = arrays.rstd[row], mean = arrays.mean[row];
    RT_UNROLL
    for (int c = 0; c < n; ++c) {
      const float slope = rt::to_float(slopes.at[c]);
      local[c].join({slope, slope * (rt::to_float(values.at[c]) - mean) * rstd});
    }
  }
  join_lanes(local, all.width, [&](int c, const NormSums& joined) {
    of_shift[all.part() * all.width + c] = joined.plain;
    of_scale[all.part() * all.width + c] = joined.by_normal;
  });
}

template <typename T, int n>
ir::Kernel make_gated(const NodeView& node) {
  const SampleRows all = rows_of(node);
  const ColumnBlocks blocks(all.rows(), all.width, n);
  const auto run = [=](const KernelArgs& args) {
    rt::launch(add_gated<T, n>, blocks.for_rows(), args.stream->handle(), input_of<T>(args, 0),
               input_of<T>(args, 1), input_of<T>(args, 2), output_of<T>(args, 0), all);
  };
  return {.run = run};
}
template <typename T, int n>
ir::Kernel make_gated_grad(const NodeView& node) {
  const SampleRows all = rows_of(node);
  const ColumnBlocks blocks(all.time, all.width, n);
  const int64_t num_parts = blocks.num_parts();
  const auto run = [=](const KernelArgs& args) {
    auto* parts = reinterpret_cast<float*>(args.workspace);
    rt::launch(spread_gated<T, n>, for_samples(blocks.for_parts(), all), args.stream->handle(),
               input_of<T>(args, 0), input_of<T>(args, 1), input_of<T>(args, 2), output_of<T>(args, 0), parts,
               all);
    launch_keep_sums<T>(args, parts, 1, num_parts, all);
  };
  return {.run = run, .workspace_bytes = all.samples * num_parts * all.width * int64_t{sizeof(float)}};
}
template <typename T, int n>
ir::Kernel make_norm(const NodeView& node) {
  const SampleRows all = rows_of(node);
  const auto eps = static_cast<float>(node.attrs.real("eps"));
  const auto run = [=](const KernelArgs& args) {
    const NormArrays<T> arrays{.x = input_of<T>(args, 0),
                               .shift = input_of<T>(args, 1),
                               .scale = input_of<T>(args, 2),
                               .y = output_of<T>(args, 0),
                               .rstd = output_of<float>(args, 1),
                               .mean = output_of<float>(args, 2)};
    rt::launch(modulate<T, n>, {all.rows(), kRowThreads}, args.stream->handle(), arrays, all, eps);
  };
  return {.run = run};
}
template <typename T, int n>
ir::Kernel make_norm_grad(const NodeView& node) {
  const SampleRows all = rows_of(node);
  const ColumnBlocks blocks(all.time, all.width, n);
  const int64_t num_parts = blocks.num_parts(), size = all.samples * num_parts * all.width;
  const auto run = [=](const KernelArgs& args) {
    auto* parts = reinterpret_cast<float*>(args.workspace);
    const NormGradArrays<T> arrays{.x = input_of<T>(args, 0),
                                   .scale = input_of<T>(args, 1),
                                   .rstd = input_of<float>(args, 2),
                                   .mean = input_of<float>(args, 3),
                                   .dy = input_of<T>(args, 4),
                                   .dx = output_of<T>(args, 0)};
    void* stream = args.stream->handle();
    rt::launch(spread_norm<T, n>, {all.rows(), kRowThreads}, stream, arrays, all);
    rt::launch(add_modulations<T, n>, for_samples(blocks.for_parts(), all), stream, arrays, parts,
               parts + size, all);
    launch_keep_sums<T>(args, parts, 1, num_parts, all);
    launch_keep_sums<T>(args, parts + size, 2, num_parts, all);
  };
  return {.run = run, .workspace_bytes = 2 * size * int64_t{sizeof(float)}};
}

ir::Kernel timestep_embedding_gpu(const NodeView& node) {
  const TimestepFormula formula(node.attrs);
  const Shape& out = node.out_type(0).shape;
  const auto run = [formula, count = out.num_elements(),
                    size = static_cast<int>(out[1])](const KernelArgs& args) {
    rt::launch(embed_times, {ceil_div(count, kBlockThreads), kBlockThreads}, args.stream->handle(),
               input_of<float>(args, 0), output_of<float>(args, 0), count, size, formula);
  };
  return {.run = run};
}
ir::Kernel gated_add_gpu(const NodeView& node) {
  return with_columns(node.in_type(0), [&](auto x, auto n) { return make_gated<decltype(x), n>(node); });
}
ir::Kernel gated_add_grad_gpu(const NodeView& node) {
  return with_columns(node.in_type(0), [&](auto x, auto n) { return make_gated_grad<decltype(x), n>(node); });
}
ir::Kernel modulated_norm_gpu(const NodeView& node) {
  return with_columns(node.in_type(0), [&](auto x, auto n) { return make_norm<decltype(x), n>(node); });
}
ir::Kernel modulated_norm_grad_gpu(const NodeView& node) {
  return with_columns(node.in_type(0), [&](auto x, auto n) { return make_norm_grad<decltype(x), n>(node); });
}

const GpuKernels kKernels = {{.op = "timestep_embedding", .one = timestep_embedding_gpu},
                             {.op = "gated_add", .one = gated_add_gpu},
                             {.op = "gated_add_grad", .one = gated_add_grad_gpu},
                             {.op = "modulated_norm", .one = modulated_norm_gpu},
                             {.op = "modulated_norm_grad", .one = modulated_norm_grad_gpu}};

}  // namespace
}  // namespace hearth::ops
