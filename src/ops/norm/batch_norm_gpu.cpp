#include "ops/elementwise/formulas.h"
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
  NormActivation activation;
};
Rows rows_of(const NodeView& node) {
  const ir::Type& x = node.in_type(0);
  return {.count = x.shape.num_elements() / x.shape.back(),
          .width = static_cast<int>(x.shape.back()),
          .momentum = static_cast<float>(node.attrs.real_or("momentum", 0.1)),
          .eps = static_cast<float>(node.attrs.real_or("eps", 1e-5)),
          .activation = norm_activation(node.attrs)};
}

/// Source of the kernel measure() that computes moments from the elements of x: each thread processes some
/// rows of kLaneElements columns. Groups is the alternative source, which merges given moments of groups of
/// rows.
template <typename T, int n>
struct Values {
  static constexpr int kLaneElements = n;
  const T* x;
  RT_DEVICE void of_own_rows(int column, const Rows& rows, Moments (&local)[n]) const {
    moments_of(x + column, rows.width, first_row(), row_stride(), rows.count, local);
  }
};
struct Groups {
  static constexpr int kLaneElements = 1;
  const float* moments;
  RT_DEVICE void of_own_rows(int column, const Rows& rows, Moments (&local)[1]) const {
    Moments& all = local[0];
    for (int64_t g = first_row(); g * kMomentRows < rows.count; g += row_stride()) {
      const int64_t left = rows.count - g * kMomentRows, at = 2 * g * rows.width + column;
      all.join({static_cast<float>(left < kMomentRows ? left : kMomentRows), moments[at],
                moments[at + rows.width]});
    }
  }
};

template <typename Source>
__global__ void __launch_bounds__(kBlockThreads) measure(Source from, Moments* parts, Rows rows) {
  const int column = first_column<Source::kLaneElements>();
  Moments local[Source::kLaneElements] = {};
  if (column < rows.width) from.of_own_rows(column, rows, local);
  join_lanes(local, rows.width, [&](int at, const Moments& joined) {
    parts[static_cast<int64_t>(blockIdx.y) * rows.width + at] = joined;
  });
}

/// Merges the partial results of a column over the parts that this thread processes.
template <typename Value>
RT_DEVICE Value merge_parts(const Value* parts, int num_parts, int column, int width) {
  Value local = {};
  for (auto part = first_row(); part < num_parts && column < width; part += row_stride())
    local.join(parts[part * width + column]);
  return local;
}

/// Outputs of batch_norm with one element per channel.
struct Statistics {
  float* mean;
  float* rstd;
  float* running_mean;
  float* running_var;
};
RT_DEVICE float blend(float old, float now, float momentum) { return (1 - momentum) * old + momentum * now; }

__global__ void __launch_bounds__(kBlockThreads)
    keep_statistics(const Moments* parts, int num_parts, Statistics kept, Rows rows) {
  const Moments local[] = {merge_parts(parts, num_parts, first_column<1>(), rows.width)};
  join_lanes(local, rows.width, [&](int column, const Moments& all) {
    kept.mean[column] = all.mean;
    kept.rstd[column] = 1 / sqrtf(all.squares / all.count + rows.eps);
    kept.running_mean[column] = blend(kept.running_mean[column], all.mean, rows.momentum);
    const float others = all.count > 1 ? all.count - 1 : 1.0F;
    kept.running_var[column] = blend(kept.running_var[column], all.squares / others, rows.momentum);
  });
}

/// Input from which rstd() returns 1 / sqrt(variance + eps) of a channel: an array of variances, or of such
/// values.
struct Statistic {
  const float* of_channel;
  float eps;
  bool is_variance;

  RT_DEVICE float rstd(int column) const {
    return is_variance ? 1 / sqrtf(of_channel[column] + eps) : of_channel[column];
  }
};
bool has_variance(const NodeView& node) { return node.attrs.text_or("statistics", "variance") == "variance"; }

/// Per-channel inputs of the normalization.
struct Channels {
  Statistic statistic;
  const float* mean;
  const float* weight;
  const float* bias;
};

template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads)
    normalize(const T* x, const T* residual, T* y, uint8_t* mask, Channels channels, Rows rows) {
  const int column = first_column<n>();
  if (column >= rows.width) return;
  float mean[n], scale[n], bias[n];
  RT_UNROLL
  for (int c = 0; c < n; ++c) {
    mean[c] = channels.mean[column + c];
    scale[c] = channels.statistic.rstd(column + c) * channels.weight[column + c];
    bias[c] = channels.bias[column + c];
  }
  struct Loaded {
    rt::Vec<T, n> x, residual;
  };
  const auto load = [&](int64_t r) {
    const int64_t i = r * rows.width + column;
    Loaded loaded{rt::load<T, n>(x + i), {}};
    if (residual != nullptr) loaded.residual = rt::load<T, n>(residual + i);
    return loaded;
  };
  for_each_row(rows.count, load, [&](int64_t r, const Loaded& loaded) {
    const int64_t i = r * rows.width + column;
    rt::Vec<T, n> made;
    uint32_t bits = 0;
    RT_UNROLL
    for (int c = 0; c < n; ++c) {
      float value = (rt::to_float(loaded.x.at[c]) - mean[c]) * scale[c] + bias[c];
      if (residual != nullptr) value += rt::to_float(loaded.residual.at[c]);
      if (rows.activation == NormActivation::relu) value = value < 0 ? 0.0F : value;
      if (rows.activation == NormActivation::silu) value = Silu()(value, 0.0F, 0.0F);
      made.at[c] = rt::from_float<T>(value);
      bits |= (rt::to_float(made.at[c]) > 0 ? 1U : 0U) << c;
    }
    rt::store(y + i, made);
    if (mask != nullptr) mask[i / kMaskElements] = static_cast<uint8_t>(bits);
  });
}

/// Launches normalize(); `mask` is null unless the mask of y is needed.
template <typename T, int n>
void launch_normalize(const KernelArgs& args, bool residual, uint8_t* mask, const Channels& channels,
                      const Rows& rows) {
  rt::launch(normalize<T, n>, ColumnBlocks(rows.count, rows.width, n).for_rows(), args.stream->handle(),
             input_of<T>(args, 0), residual ? input_of<T>(args, 5) : nullptr, output_of<T>(args, 0), mask,
             channels, rows);
}

template <typename T, int n>
ir::Kernel make_train(const NodeView& node) {
  const Rows rows = rows_of(node);
  const bool measured = node.has_input(6);
  const ColumnBlocks blocks = measured
                                  ? ColumnBlocks(moment_groups(rows.count), rows.width, Groups::kLaneElements)
                                  : ColumnBlocks(rows.count, rows.width, n);
  const auto run = [rows, blocks, measured, residual = node.has_input(5),
                    masked = node.out.size() > kNormMask](const KernelArgs& args) {
    auto* parts = reinterpret_cast<Moments*>(args.workspace);
    if (measured) {
      rt::launch(measure<Groups>, blocks.for_parts(), args.stream->handle(), Groups{input_of<float>(args, 6)},
                 parts, rows);
    } else {
      rt::launch(measure<Values<T, n>>, blocks.for_parts(), args.stream->handle(),
                 Values<T, n>{input_of<T>(args, 0)}, parts, rows);
    }
    rt::launch(keep_statistics, ColumnBlocks::for_columns(rows.width), args.stream->handle(), parts,
               static_cast<int>(blocks.num_parts()),
               Statistics{output_of<float>(args, 1), output_of<float>(args, 2), output_of<float>(args, 3),
                          output_of<float>(args, 4)},
               rows);
    launch_normalize<T, n>(args, residual, masked ? output_of<uint8_t>(args, kNormMask) : nullptr,
                           {.statistic = {output_of<float>(args, 2), rows.eps, false},
                            .mean = output_of<float>(args, 1),
                            .weight = input_of<float>(args, 1),
                            .bias = input_of<float>(args, 2)},
                           rows);
  };
  return {.run = run, .workspace_bytes = blocks.num_parts() * rows.width * int64_t{sizeof(Moments)}};
}

template <typename T, int n>
ir::Kernel make_infer(const NodeView& node) {
  const bool is_variance = has_variance(node);
  const auto run = [rows = rows_of(node), residual = node.has_input(5), is_variance](const KernelArgs& args) {
    launch_normalize<T, n>(args, residual, nullptr,
                           {.statistic = {input_of<float>(args, 4), rows.eps, is_variance},
                            .mean = input_of<float>(args, 3),
                            .weight = input_of<float>(args, 1),
                            .bias = input_of<float>(args, 2)},
                           rows);
  };
  return {.run = run};
}

/// Sums over a channel of g, the gradient before the activation, and of g (x - mean).
struct GradientSums {
  float plain;
  float by_deviation;

  RT_DEVICE void join(const GradientSums& more) {
    plain += more.plain;
    by_deviation += more.by_deviation;
  }
};

/// Per-channel values to recompute the input of silu; bias is null if the activation is not silu.
struct SiluChannels {
  const float* mean;
  const float* rstd;
  const float* weight;
  const float* bias;
};

/// Arrays from which g, the gradient before the activation, is computed. With relu, either y or its mask is
/// set; without relu, both are null.
template <typename T>
struct Cotangents {
  const T* x;
  const T* dy;
  const T* y;
  const uint8_t* mask;
  SiluChannels silu;

  /// Adjacent elements of the arrays.
  template <int n>
  struct Loaded {
    rt::Vec<T, n> x, dy, y;
    uint32_t bits;  ///< bits of the mask; all 1 without a mask
  };
  /// Loads the n adjacent elements from element i on; of x only if `with_x`, otherwise zeros.
  template <int n>
  RT_DEVICE Loaded<n> load(int64_t i, bool with_x) const {
    Loaded<n> loaded{{}, rt::load<T, n>(dy + i), {}, mask == nullptr ? ~0U : mask[i / kMaskElements]};
    if (with_x) loaded.x = rt::load<T, n>(x + i);
    if (y != nullptr) loaded.y = rt::load<T, n>(y + i);
    return loaded;
  }
  /// Returns the gradient before the activation for elements of the channels from `column` on.
  template <int n>
  RT_DEVICE rt::Vec<float, n> before_activation(const Loaded<n>& loaded, int column) const {
    rt::Vec<float, n> before;
    RT_UNROLL
    for (int c = 0; c < n; ++c) {
      float g = rt::to_float(loaded.dy.at[c]);
      if ((loaded.bits >> c & 1) == 0 || (y != nullptr && !(rt::to_float(loaded.y.at[c]) > 0))) g = 0.0F;
      if (silu.bias != nullptr) {
        const int channel = column + c;
        const float scale = silu.rstd[channel] * silu.weight[channel];
        const float deviation = rt::to_float(loaded.x.at[c]) - silu.mean[channel];
        g = SiluGrad()(g, deviation * scale + silu.bias[channel], 0.0F);
      }
      before.at[c] = g;
    }
    return before;
  }
};

template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads)
    add_cotangents(Cotangents<T> in, const float* means, GradientSums* parts, Rows rows) {
  const int column = first_column<n>();
  GradientSums local[n] = {};
  if (column < rows.width) {
    float mean[n];
    RT_UNROLL
    for (int c = 0; c < n; ++c) mean[c] = means[column + c];
    const auto load = [&](int64_t r) { return in.template load<n>(r * rows.width + column, true); };
    for_each_row(rows.count, load, [&](int64_t, const auto& loaded) {
      const rt::Vec<float, n> g = in.before_activation(loaded, column);
      RT_UNROLL
      for (int c = 0; c < n; ++c)
        local[c].join({g.at[c], g.at[c] * (rt::to_float(loaded.x.at[c]) - mean[c])});
    });
  }
  join_lanes(local, rows.width, [&](int at, const GradientSums& joined) {
    parts[static_cast<int64_t>(blockIdx.y) * rows.width + at] = joined;
  });
}

/// Per-channel inputs and outputs of the gradient.
struct GradientChannels {
  Statistic statistic;
  const float* weight;
  const float* mean;  ///< read unless is_frozen and dweight is null
  float* dweight;     ///< null if weight and bias need no gradient
  float* dbias;
  bool is_frozen;  ///< true in batch_norm_infer_grad, where the statistics are constants
};

__global__ void __launch_bounds__(kBlockThreads)
    keep_gradients(const GradientSums* parts, int num_parts, GradientChannels channels, int width) {
  const GradientSums local[] = {merge_parts(parts, num_parts, first_column<1>(), width)};
  join_lanes(local, width, [&](int column, const GradientSums& all) {
    channels.dweight[column] = all.by_deviation * channels.statistic.rstd(column);
    channels.dbias[column] = all.plain;
  });
}

/// Computes dx = weight rstd (g - dbias / n - xhat dweight / n), or weight rstd g if the statistics are
/// frozen, and dresidual = g unless it is null. g is the gradient before the activation.
template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads)
    spread(Cotangents<T> in, GradientChannels channels, T* dx, T* dresidual, Rows rows) {
  const int column = first_column<n>();
  if (column >= rows.width) return;
  float mean[n] = {}, of_dy[n], of_x[n] = {}, constant[n] = {};
  RT_UNROLL
  for (int c = 0; c < n; ++c) {
    const float rstd = channels.statistic.rstd(column + c);
    of_dy[c] = rstd * channels.weight[column + c];
    if (channels.is_frozen) continue;
    mean[c] = channels.mean[column + c];
    const float of_all = -of_dy[c] / static_cast<float>(rows.count);
    of_x[c] = of_all * rstd * channels.dweight[column + c];
    constant[c] = of_all * channels.dbias[column + c];
  }
  const auto load = [&](int64_t r) {
    return in.template load<n>(r * rows.width + column, !channels.is_frozen);
  };
  for_each_row(rows.count, load, [&](int64_t r, const auto& loaded) {
    const int64_t i = r * rows.width + column;
    const rt::Vec<float, n> g = in.before_activation(loaded, column);
    rt::Vec<T, n> made, masked;
    RT_UNROLL
    for (int c = 0; c < n; ++c) {
      float value = of_dy[c] * g.at[c];
      if (!channels.is_frozen) value += of_x[c] * (rt::to_float(loaded.x.at[c]) - mean[c]) + constant[c];
      made.at[c] = rt::from_float<T>(value);
      masked.at[c] = rt::from_float<T>(g.at[c]);
    }
    rt::store(dx + i, made);
    if (dresidual != nullptr) rt::store(dresidual + i, masked);
  });
}

/// Launches the gradients of weight and bias (unless channels.dweight is null), then of x, and of the
/// residual unless dresidual is null.
template <typename T, int n>
void launch_gradient(const KernelArgs& args, const Cotangents<T>& in, const GradientChannels& channels,
                     T* dresidual, const Rows& rows) {
  const ColumnBlocks blocks(rows.count, rows.width, n);
  if (channels.dweight != nullptr) {
    auto* parts = reinterpret_cast<GradientSums*>(args.workspace);
    rt::launch(add_cotangents<T, n>, blocks.for_parts(), args.stream->handle(), in, channels.mean, parts,
               rows);
    rt::launch(keep_gradients, ColumnBlocks::for_columns(rows.width), args.stream->handle(), parts,
               static_cast<int>(blocks.num_parts()), channels, rows.width);
  }
  rt::launch(spread<T, n>, blocks.for_rows(), args.stream->handle(), in, channels, output_of<T>(args, 0),
             dresidual, rows);
}
int64_t gradient_bytes(const Rows& rows, int local) {
  return ColumnBlocks(rows.count, rows.width, local).num_parts() * rows.width * int64_t{sizeof(GradientSums)};
}

template <typename T, int n>
ir::Kernel make_grad(const NodeView& node) {
  const Rows rows = rows_of(node);
  const auto run = [rows, residual = node.out.size() > 3, has_y = node.has_input(5),
                    masked = node.has_input(kNormGradMask)](const KernelArgs& args) {
    const bool silu = rows.activation == NormActivation::silu;
    const Cotangents<T> in{.x = input_of<T>(args, 0),
                           .dy = input_of<T>(args, 4),
                           .y = has_y ? input_of<T>(args, 5) : nullptr,
                           .mask = masked ? input_of<uint8_t>(args, kNormGradMask) : nullptr,
                           .silu = {.mean = input_of<float>(args, 2),
                                    .rstd = input_of<float>(args, 3),
                                    .weight = input_of<float>(args, 1),
                                    .bias = silu ? input_of<float>(args, 6) : nullptr}};
    launch_gradient<T, n>(args, in,
                          {.statistic = {input_of<float>(args, 3), rows.eps, false},
                           .weight = input_of<float>(args, 1),
                           .mean = input_of<float>(args, 2),
                           .dweight = output_of<float>(args, 1),
                           .dbias = output_of<float>(args, 2),
                           .is_frozen = false},
                          residual ? output_of<T>(args, 3) : nullptr, rows);
  };
  return {.run = run, .workspace_bytes = gradient_bytes(rows, n)};
}

template <typename T, int n>
ir::Kernel make_infer_grad(const NodeView& node) {
  const Rows rows = rows_of(node);
  const bool measures = node.has_input(4), is_variance = has_variance(node);
  const auto run = [=, residual = node.attrs.integer_or("residual", 0) != 0](const KernelArgs& args) {
    const bool relu = rows.activation == NormActivation::relu;
    const Cotangents<T> in{.x = measures ? input_of<T>(args, 4) : nullptr,
                           .dy = input_of<T>(args, 0),
                           .y = relu ? input_of<T>(args, 3) : nullptr,
                           .mask = nullptr,
                           .silu = {}};
    launch_gradient<T, n>(args, in,
                          {.statistic = {input_of<float>(args, 2), rows.eps, is_variance},
                           .weight = input_of<float>(args, 1),
                           .mean = measures ? input_of<float>(args, 5) : nullptr,
                           .dweight = measures ? output_of<float>(args, 1) : nullptr,
                           .dbias = measures ? output_of<float>(args, 2) : nullptr,
                           .is_frozen = true},
                          residual ? output_of<T>(args, measures ? 3 : 1) : nullptr, rows);
  };
  return {.run = run, .workspace_bytes = measures ? gradient_bytes(rows, n) : 0};
}

ir::Kernel batch_norm_gpu(const NodeView& node) {
  return with_columns(node.in_type(0), [&](auto x, auto n) { return make_train<decltype(x), n>(node); });
}
ir::Kernel batch_norm_infer_gpu(const NodeView& node) {
  return with_columns(node.in_type(0), [&](auto x, auto n) { return make_infer<decltype(x), n>(node); });
}
ir::Kernel batch_norm_infer_grad_gpu(const NodeView& node) {
  return with_columns(node.in_type(0), [&](auto x, auto n) { return make_infer_grad<decltype(x), n>(node); });
}
ir::Kernel batch_norm_grad_gpu(const NodeView& node) {
  return with_columns(node.in_type(0), [&](auto x, auto n) { return make_grad<decltype(x), n>(node); });
}

const GpuKernels kKernels = {{.op = "batch_norm", .one = batch_norm_gpu},
                             {.op = "batch_norm_infer", .one = batch_norm_infer_gpu},
                             {.op = "batch_norm_infer_grad", .one = batch_norm_infer_grad_gpu},
                             {.op = "batch_norm_grad", .one = batch_norm_grad_gpu}};

}  // namespace
}  // namespace hearth::ops
