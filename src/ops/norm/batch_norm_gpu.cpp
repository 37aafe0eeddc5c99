#include "ops/norm/moments_gpu.h"
#include "ops/norm/norm.h"
#include "ops/reduce/columns.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

struct Rows {
  int64_t count;
  int width;
  float momentum;
  float eps;
  bool relu;
};
Rows rows_of(const NodeView& node) {
  const ir::Type& x = node.in_type(0);
  return {.count = x.shape.num_elements() / x.shape.back(),
          .width = static_cast<int>(x.shape.back()),
          .momentum = static_cast<float>(node.attrs.real_or("momentum", 0.1)),
          .eps = static_cast<float>(node.attrs.real_or("eps", 1e-5)),
          .relu = node.attrs.text_or("activation", "none") == "relu"};
}

/// x itself, or the moments of its groups, as what moments of a thread's rows are made from.
template <typename T>
struct Values {
  const T* x;
  RT_DEVICE Moments of_own_rows(int column, const Rows& rows) const {
    return moments_of(x, rows.width, column, first_row(), row_stride(), rows.count);
  }
};
struct Groups {
  const float* moments;
  RT_DEVICE Moments of_own_rows(int column, const Rows& rows) const {
    Moments all = {0, 0, 0};
    for (int64_t g = first_row(); g * kMomentRows < rows.count; g += row_stride()) {
      const int64_t left = rows.count - g * kMomentRows, at = 2 * g * rows.width + column;
      all.join({static_cast<float>(left < kMomentRows ? left : kMomentRows), moments[at],
                moments[at + rows.width]});
    }
    return all;
  }
};

template <typename Source>
__global__ void __launch_bounds__(kBlockThreads) measure(Source from, Moments* parts, Rows rows) {
  const int column = own_column();
  Moments own = {0, 0, 0};
  if (column < rows.width) own = from.of_own_rows(column, rows);
  const Moments joined = join_lanes(own);
  if (own_lane() == 0 && column < rows.width)
    parts[static_cast<int64_t>(blockIdx.y) * rows.width + column] = joined;
}

/// What a channel keeps of its statistics, an element per channel.
struct Statistics {
  float* mean;
  float* rstd;
  float* running_mean;
  float* running_var;
};
RT_DEVICE float blend(float old, float now, float momentum) { return (1 - momentum) * old + momentum * now; }

__global__ void __launch_bounds__(kBlockThreads)
    keep_statistics(const Moments* parts, int num_parts, Statistics kept, Rows rows) {
  const int column = own_column();
  Moments mine = {0, 0, 0};
  for (int part = own_lane(); part < num_parts && column < rows.width; part += kBlockRows)
    mine.join(parts[static_cast<int64_t>(part) * rows.width + column]);
  const Moments all = join_lanes(mine);
  if (own_lane() != 0 || column >= rows.width) return;
  kept.mean[column] = all.mean;
  kept.rstd[column] = 1 / sqrtf(all.squares / all.count + rows.eps);
  kept.running_mean[column] = blend(kept.running_mean[column], all.mean, rows.momentum);
  const float others = all.count > 1 ? all.count - 1 : 1.0F;
  kept.running_var[column] = blend(kept.running_var[column], all.squares / others, rows.momentum);
}

/// A channel's statistics, and its weight and bias.
struct Channels {
  const float* mean;
  const float* statistic;
  const float* weight;
  const float* bias;
  bool is_variance;  ///< the statistic; otherwise 1 / sqrt(variance + eps)
};

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    normalize(const T* x, const T* residual, T* y, Channels channels, Rows rows) {
  const int column = own_column();
  if (column >= rows.width) return;
  const float statistic = channels.statistic[column];
  const float rstd = channels.is_variance ? 1 / sqrtf(statistic + rows.eps) : statistic;
  const float mean = channels.mean[column], scale = rstd * channels.weight[column],
              bias = channels.bias[column];
  for (int64_t r = first_row(); r < rows.count; r += row_stride()) {
    const int64_t i = r * rows.width + column;
    float value = (rt::to_float(x[i]) - mean) * scale + bias;
    if (residual != nullptr) value += rt::to_float(residual[i]);
    y[i] = rt::from_float<T>(rows.relu && value < 0 ? 0.0F : value);
  }
}

template <typename T>
void launch_normalize(const KernelArgs& args, bool residual, const Channels& channels, const Rows& rows) {
  rt::launch(normalize<T>, column_blocks(rows.width, num_row_blocks(rows.count)), args.stream->handle(),
             input_of<T>(args, 0), residual ? input_of<T>(args, 5) : nullptr, output_of<T>(args, 0), channels,
             rows);
}

template <typename T>
ir::Kernel make_train(const NodeView& node) {
  const Rows rows = rows_of(node);
  const bool measured = node.has_input(6);
  const int64_t num_parts = num_column_parts(measured ? moment_groups(rows.count) : rows.count);
  const auto run = [rows, num_parts, measured, residual = node.has_input(5)](const KernelArgs& args) {
    auto* parts = reinterpret_cast<Moments*>(args.workspace);
    const rt::Shape shape = column_blocks(rows.width, num_parts);
    if (measured) {
      rt::launch(measure<Groups>, shape, args.stream->handle(), Groups{input_of<float>(args, 6)}, parts,
                 rows);
    } else {
      rt::launch(measure<Values<T>>, shape, args.stream->handle(), Values<T>{input_of<T>(args, 0)}, parts,
                 rows);
    }
    rt::launch(keep_statistics, column_blocks(rows.width, 1), args.stream->handle(), parts,
               static_cast<int>(num_parts),
               Statistics{output_of<float>(args, 1), output_of<float>(args, 2), output_of<float>(args, 3),
                          output_of<float>(args, 4)},
               rows);
    launch_normalize<T>(args, residual,
                        {.mean = output_of<float>(args, 1),
                         .statistic = output_of<float>(args, 2),
                         .weight = input_of<float>(args, 1),
                         .bias = input_of<float>(args, 2),
                         .is_variance = false},
                        rows);
  };
  return {.run = run, .workspace_bytes = num_parts * rows.width * int64_t{sizeof(Moments)}};
}

template <typename T>
ir::Kernel make_infer(const NodeView& node) {
  const bool is_variance = node.attrs.text_or("statistics", "variance") == "variance";
  const auto run = [rows = rows_of(node), residual = node.has_input(5), is_variance](const KernelArgs& args) {
    launch_normalize<T>(args, residual,
                        {.mean = input_of<float>(args, 3),
                         .statistic = input_of<float>(args, 4),
                         .weight = input_of<float>(args, 1),
                         .bias = input_of<float>(args, 2),
                         .is_variance = is_variance},
                        rows);
  };
  return {.run = run};
}

/// Of a channel's cotangents, masked where relu was in the way.
struct GradientSums {
  float plain;
  float by_deviation;

  RT_DEVICE void join(const GradientSums& more) {
    plain += more.plain;
    by_deviation += more.by_deviation;
  }
};

/// What the gradient reads: y is null without relu.
template <typename T>
struct Cotangents {
  const T* x;
  const T* dy;
  const T* y;

  RT_DEVICE float at(int64_t i) const {
    return y != nullptr && !(rt::to_float(y[i]) > 0) ? 0.0F : rt::to_float(dy[i]);
  }
};

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    add_cotangents(Cotangents<T> in, const float* mean, GradientSums* parts, Rows rows) {
  const int column = own_column();
  GradientSums mine = {0, 0};
  for (int64_t r = first_row(); r < rows.count && column < rows.width; r += row_stride()) {
    const int64_t i = r * rows.width + column;
    const float g = in.at(i);
    mine.join({g, g * (rt::to_float(in.x[i]) - mean[column])});
  }
  const GradientSums joined = join_lanes(mine);
  if (own_lane() == 0 && column < rows.width)
    parts[static_cast<int64_t>(blockIdx.y) * rows.width + column] = joined;
}

__global__ void __launch_bounds__(kBlockThreads)
    keep_gradients(const GradientSums* parts, int num_parts, const float* rstd, float* dweight, float* dbias,
                   int width) {
  const int column = own_column();
  GradientSums mine = {0, 0};
  for (int part = own_lane(); part < num_parts && column < width; part += kBlockRows)
    mine.join(parts[static_cast<int64_t>(part) * width + column]);
  const GradientSums all = join_lanes(mine);
  if (own_lane() != 0 || column >= width) return;
  dweight[column] = all.by_deviation * rstd[column];
  dbias[column] = all.plain;
}

/// A channel's statistics, weight, and gradients of weight and bias.
struct GradientChannels {
  const float* weight;
  const float* mean;
  const float* rstd;
  const float* dweight;
  const float* dbias;
};

/// dx = weight rstd (g - dbias / n - xhat dweight / n), g being the masked dy.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    spread(Cotangents<T> in, GradientChannels channels, T* dx, T* dresidual, Rows rows) {
  const int column = own_column();
  if (column >= rows.width) return;
  const float rstd = channels.rstd[column], mean = channels.mean[column];
  const float of_dy = rstd * channels.weight[column], of_all = -of_dy / static_cast<float>(rows.count);
  const float of_x = of_all * rstd * channels.dweight[column], constant = of_all * channels.dbias[column];
  for (int64_t r = first_row(); r < rows.count; r += row_stride()) {
    const int64_t i = r * rows.width + column;
    const float g = in.at(i);
    dx[i] = rt::from_float<T>(of_dy * g + of_x * (rt::to_float(in.x[i]) - mean) + constant);
    if (dresidual != nullptr) dresidual[i] = rt::from_float<T>(g);
  }
}

template <typename T>
ir::Kernel make_grad(const NodeView& node) {
  const Rows rows = rows_of(node);
  const int64_t num_parts = num_column_parts(rows.count);
  const auto run = [rows, num_parts, residual = node.out.size() > 3](const KernelArgs& args) {
    auto* parts = reinterpret_cast<GradientSums*>(args.workspace);
    const Cotangents<T> in{input_of<T>(args, 0), input_of<T>(args, 4),
                           rows.relu ? input_of<T>(args, 5) : nullptr};
    const GradientChannels channels{.weight = input_of<float>(args, 1),
                                    .mean = input_of<float>(args, 2),
                                    .rstd = input_of<float>(args, 3),
                                    .dweight = output_of<float>(args, 1),
                                    .dbias = output_of<float>(args, 2)};
    rt::launch(add_cotangents<T>, column_blocks(rows.width, num_parts), args.stream->handle(), in,
               channels.mean, parts, rows);
    rt::launch(keep_gradients, column_blocks(rows.width, 1), args.stream->handle(), parts,
               static_cast<int>(num_parts), channels.rstd, output_of<float>(args, 1),
               output_of<float>(args, 2), rows.width);
    rt::launch(spread<T>, column_blocks(rows.width, num_row_blocks(rows.count)), args.stream->handle(), in,
               channels, output_of<T>(args, 0), residual ? output_of<T>(args, 3) : nullptr, rows);
  };
  return {.run = run, .workspace_bytes = num_parts * rows.width * int64_t{sizeof(GradientSums)}};
}

}  // namespace

ir::Kernel batch_norm_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype, [&](auto x) { return make_train<decltype(x)>(node); });
}
ir::Kernel batch_norm_infer_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype, [&](auto x) { return make_infer<decltype(x)>(node); });
}
ir::Kernel batch_norm_grad_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype, [&](auto x) { return make_grad<decltype(x)>(node); });
}

}  // namespace hearth::ops
