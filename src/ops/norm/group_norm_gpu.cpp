#include "ops/norm/moments_gpu.h"
#include "ops/norm/norm.h"
#include "ops/reduce/columns.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Shape of x [samples, rows, width], with `groups` groups of adjacent channels. blockIdx.z is the sample.
struct Groups {
  int64_t samples;
  int64_t rows;
  int width;
  int groups;
  float eps;

  RT_DEVICE int64_t sample_begin() const { return blockIdx.z * rows * width; }
  /// Returns the index in mean and rstd [samples, groups] of the group of channel `column`.
  RT_DEVICE int64_t statistic_of(int column) const {
    return static_cast<int64_t>(blockIdx.z) * groups + column / (width / groups);
  }
  RT_DEVICE float elements_of_group() const {
    return static_cast<float>(rows) * static_cast<float>(width / groups);
  }
};
Groups groups_of(const NodeView& node) {
  constexpr int64_t kMaxSamples = 65535;
  const Shape& x = node.in_type(0).shape;
  if (x[0] > kMaxSamples) refuse_on_gpu("the number of samples of a group norm", kMaxSamples, x[0]);
  return {.samples = x[0],
          .rows = x.num_elements() / (x[0] * x.back()),
          .width = static_cast<int>(x.back()),
          .groups = static_cast<int>(node.attrs.integer("groups")),
          .eps = static_cast<float>(node.attrs.real_or("eps", 1e-5))};
}
rt::Shape for_samples(rt::Shape shape, const Groups& all) {
  shape.blocks.z = static_cast<unsigned>(all.samples);
  return shape;
}

/// Computes parts [samples, parts, width]: the moments of each channel over each part's rows.
template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads) measure(const T* x, Moments* parts, Groups all) {
  const int column = first_column<n>();
  Moments local[n] = {};
  if (column < all.width)
    moments_of(x + all.sample_begin() + column, all.width, first_row(), row_stride(), all.rows, local);
  const int64_t part = static_cast<int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  join_lanes(local, all.width, [&](int at, const Moments& joined) { parts[part * all.width + at] = joined; });
}

/// Merges the values of all threads of a block with Value::join(), by tree reduction. Only thread 0 gets the
/// result.
template <typename Value>
RT_DEVICE Value join_block(const Value& local) {
  RT_SHARED(values, Value[kBlockThreads]);
  const int thread = static_cast<int>(threadIdx.x);
  values[thread] = local;
  for (int apart = 1; apart < kBlockThreads; apart *= 2) {
    rt::sync_block();
    if (thread % (2 * apart) == 0) values[thread].join(values[thread + apart]);
  }
  return values[thread];
}

/// Merges the moments of all channels and parts of a group into mean and rstd; one block per group and
/// sample.
__global__ void __launch_bounds__(kBlockThreads)
    keep_statistics(const Moments* parts, int num_parts, float* mean, float* rstd, Groups all) {
  const int count = all.width / all.groups, group = static_cast<int>(blockIdx.x);
  const Moments* of_group = parts + static_cast<int64_t>(blockIdx.z) * num_parts * all.width + group * count;
  Moments local = {};
  for (int i = static_cast<int>(threadIdx.x); i < num_parts * count; i += kBlockThreads)
    local.join(of_group[static_cast<int64_t>(i / count) * all.width + i % count]);
  const Moments joined = join_block(local);
  if (threadIdx.x != 0) return;
  const int64_t at = static_cast<int64_t>(blockIdx.z) * all.groups + group;
  mean[at] = joined.mean;
  rstd[at] = 1 / sqrtf(joined.squares / joined.count + all.eps);
}

/// Statistics [samples, groups], and weight and bias [width], which may be null.
struct Channels {
  const float* mean;
  const float* rstd;
  const float* weight;
  const float* bias;

  RT_DEVICE float weight_of(int column) const { return weight == nullptr ? 1.0F : weight[column]; }
};

template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads) normalize(const T* x, T* y, Channels channels, Groups all) {
  const int column = first_column<n>();
  if (column >= all.width) return;
  float mean[n], scale[n], bias[n];
  RT_UNROLL
  for (int c = 0; c < n; ++c) {
    const int64_t at = all.statistic_of(column + c);
    mean[c] = channels.mean[at];
    scale[c] = channels.rstd[at] * channels.weight_of(column + c);
    bias[c] = channels.bias == nullptr ? 0.0F : channels.bias[column + c];
  }
  for (int64_t r = first_row(); r < all.rows; r += row_stride()) {
    const int64_t i = all.sample_begin() + r * all.width + column;
    const rt::Vec<T, n> values = rt::load<T, n>(x + i);
    rt::Vec<T, n> made;
    RT_UNROLL
    for (int c = 0; c < n; ++c)
      made.at[c] = rt::from_float<T>((rt::to_float(values.at[c]) - mean[c]) * scale[c] + bias[c]);
    rt::store(y + i, made);
  }
}

/// Sums over a channel of dy and of dy (x - mean).
struct Sums {
  float plain;
  float by_deviation;

  RT_DEVICE void join(const Sums& more) {
    plain += more.plain;
    by_deviation += more.by_deviation;
  }
};

/// Computes parts [samples, parts, width]: the Sums of each channel over each part's rows.
template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads)
    add_cotangents(const T* x, const T* dy, const float* means, Sums* parts, Groups all) {
  const int column = first_column<n>();
  Sums local[n] = {};
  if (column < all.width) {
    float mean[n];
    RT_UNROLL
    for (int c = 0; c < n; ++c) mean[c] = means[all.statistic_of(column + c)];
    for (int64_t r = first_row(); r < all.rows; r += row_stride()) {
      const int64_t i = all.sample_begin() + r * all.width + column;
      const rt::Vec<T, n> values = rt::load<T, n>(x + i), slopes = rt::load<T, n>(dy + i);
      RT_UNROLL
      for (int c = 0; c < n; ++c) {
        const float slope = rt::to_float(slopes.at[c]);
        local[c].join({slope, slope * (rt::to_float(values.at[c]) - mean[c])});
      }
    }
  }
  const int64_t part = static_cast<int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  join_lanes(local, all.width, [&](int at, const Sums& joined) { parts[part * all.width + at] = joined; });
}

/// Adds the parts of each sample up into the sample's first part.
__global__ void __launch_bounds__(kBlockThreads) join_parts(Sums* parts, int num_parts, Groups all) {
  Sums* of_sample = parts + static_cast<int64_t>(blockIdx.z) * num_parts * all.width;
  Sums local[1] = {};
  const int column = first_column<1>();
  for (int64_t part = first_row(); part < num_parts && column < all.width; part += row_stride())
    local[0].join(of_sample[part * all.width + column]);
  join_lanes(local, all.width, [&](int at, const Sums& joined) { of_sample[at] = joined; });
}

/// Computes sums [samples, groups]: the channels' Sums (in each sample's first part) times their weights,
/// summed over the group. One block per group and sample.
__global__ void __launch_bounds__(kBlockThreads)
    add_groups(const Sums* parts, int num_parts, Channels channels, Sums* sums, Groups all) {
  const int count = all.width / all.groups, first = static_cast<int>(blockIdx.x) * count;
  const Sums* of_sample = parts + static_cast<int64_t>(blockIdx.z) * num_parts * all.width;
  Sums local = {};
  for (int c = first + static_cast<int>(threadIdx.x); c < first + count; c += kBlockThreads) {
    const float weight = channels.weight_of(c);
    local.join({of_sample[c].plain * weight, of_sample[c].by_deviation * weight});
  }
  const Sums joined = join_block(local);
  if (threadIdx.x == 0) sums[static_cast<int64_t>(blockIdx.z) * all.groups + blockIdx.x] = joined;
}

__global__ void __launch_bounds__(kBlockThreads)
    keep_gradients(const Sums* parts, int num_parts, const float* rstd, float* dweight, float* dbias,
                   Groups all) {
  const auto column = static_cast<int>(first_element());
  if (column >= all.width) return;
  float of_weight = 0, of_bias = 0;
  for (int64_t sample = 0; sample < all.samples; ++sample) {
    const Sums sums = parts[sample * num_parts * all.width + column];
    of_weight += sums.by_deviation * rstd[sample * all.groups + column / (all.width / all.groups)];
    of_bias += sums.plain;
  }
  dweight[column] = of_weight;
  dbias[column] = of_bias;
}

/// Computes dx = rstd (weight dy - sum(weight dy) / M - xhat sum(weight dy xhat) / M), with the group's sums.
template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads)
    spread(const T* x, const T* dy, const Sums* sums, Channels channels, T* dx, Groups all) {
  const int column = first_column<n>();
  if (column >= all.width) return;
  float mean[n], of_dy[n], of_x[n], constant[n];
  RT_UNROLL
  for (int c = 0; c < n; ++c) {
    const int64_t at = all.statistic_of(column + c);
    const float rstd = channels.rstd[at], of_all = -rstd / all.elements_of_group();
    mean[c] = channels.mean[at];
    of_dy[c] = rstd * channels.weight_of(column + c);
    of_x[c] = of_all * rstd * rstd * sums[at].by_deviation;
    constant[c] = of_all * sums[at].plain;
  }
  for (int64_t r = first_row(); r < all.rows; r += row_stride()) {
    const int64_t i = all.sample_begin() + r * all.width + column;
    const rt::Vec<T, n> values = rt::load<T, n>(x + i), slopes = rt::load<T, n>(dy + i);
    rt::Vec<T, n> made;
    RT_UNROLL
    for (int c = 0; c < n; ++c) {
      const float deviation = rt::to_float(values.at[c]) - mean[c];
      made.at[c] =
          rt::from_float<T>(of_dy[c] * rt::to_float(slopes.at[c]) + of_x[c] * deviation + constant[c]);
    }
    rt::store(dx + i, made);
  }
}

rt::Shape block_per_group(const Groups& all) {
  return {rt::Dim3{static_cast<unsigned>(all.groups), 1, static_cast<unsigned>(all.samples)},
          rt::Dim3{kBlockThreads, 1, 1}};
}
/// Returns input `index`, f32 [C]; null if absent.
const float* channels_of(const KernelArgs& args, size_t index) {
  return args.in.size() > index ? input_of<float>(args, index) : nullptr;
}

template <typename T, int n>
ir::Kernel make(const NodeView& node) {
  const Groups all = groups_of(node);
  const ColumnBlocks blocks(all.rows, all.width, n);
  const auto run = [=](const KernelArgs& args) {
    auto* parts = reinterpret_cast<Moments*>(args.workspace);
    float *mean = output_of<float>(args, 1), *rstd = output_of<float>(args, 2);
    rt::launch(measure<T, n>, for_samples(blocks.for_parts(), all), args.stream->handle(),
               input_of<T>(args, 0), parts, all);
    rt::launch(keep_statistics, block_per_group(all), args.stream->handle(), parts,
               static_cast<int>(blocks.num_parts()), mean, rstd, all);
    rt::launch(normalize<T, n>, for_samples(blocks.for_rows(), all), args.stream->handle(),
               input_of<T>(args, 0), output_of<T>(args, 0),
               Channels{mean, rstd, channels_of(args, 1), channels_of(args, 2)}, all);
  };
  return {.run = run,
          .workspace_bytes = all.samples * blocks.num_parts() * all.width * int64_t{sizeof(Moments)}};
}

template <typename T, int n>
ir::Kernel make_grad(const NodeView& node) {
  const Groups all = groups_of(node);
  const ColumnBlocks blocks(all.rows, all.width, n);
  const int64_t num_sums = all.samples * blocks.num_parts() * all.width;
  const auto run = [=](const KernelArgs& args) {
    auto* parts = reinterpret_cast<Sums*>(args.workspace);
    const auto num_parts = static_cast<int>(blocks.num_parts());
    const T *x = input_of<T>(args, 0), *dy = input_of<T>(args, 1);
    const Channels channels{input_of<float>(args, 2), input_of<float>(args, 3), channels_of(args, 4),
                            nullptr};
    rt::launch(add_cotangents<T, n>, for_samples(blocks.for_parts(), all), args.stream->handle(), x, dy,
               channels.mean, parts, all);
    rt::launch(join_parts, for_samples(ColumnBlocks::for_columns(all.width), all), args.stream->handle(),
               parts, num_parts, all);
    rt::launch(keep_gradients, {ceil_div(all.width, kBlockThreads), kBlockThreads}, args.stream->handle(),
               parts, num_parts, channels.rstd, output_of<float>(args, 1), output_of<float>(args, 2), all);
    rt::launch(add_groups, block_per_group(all), args.stream->handle(), parts, num_parts, channels,
               parts + num_sums, all);
    rt::launch(spread<T, n>, for_samples(blocks.for_rows(), all), args.stream->handle(), x, dy,
               parts + num_sums, channels, output_of<T>(args, 0), all);
  };
  return {.run = run, .workspace_bytes = (num_sums + all.samples * all.groups) * int64_t{sizeof(Sums)}};
}

ir::Kernel group_norm_gpu(const NodeView& node) {
  return with_columns(node.in_type(0), [&](auto x, auto n) { return make<decltype(x), n>(node); });
}
ir::Kernel group_norm_grad_gpu(const NodeView& node) {
  return with_columns(node.in_type(0), [&](auto x, auto n) { return make_grad<decltype(x), n>(node); });
}

const GpuKernels kKernels = {{.op = "group_norm", .one = group_norm_gpu},
                             {.op = "group_norm_grad", .one = group_norm_grad_gpu}};

}  // namespace
}  // namespace hearth::ops
