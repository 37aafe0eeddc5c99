#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "ir/op_def.h"
#include "ops/norm/norm.h"

namespace hearth::ops {

/// Shape and storage of a batch normalization as its kernels see it: `rows` runs of `width` channels.
struct NormShape {
  DType dtype = DType::f32;
  int64_t rows = 0;
  int64_t width = 0;
  /// Partial results are kept per part and combined in the order of the parts.
  int parts = 1;
};
NormShape norm_shape(const ir::Type& x);

/// Floats per tile: a tile and its result stay in the second-level cache.
inline constexpr int64_t kNormTile = 8192;

/// Calls body(row, num_rows, channel, num_channels) for contiguous tiles of rows [begin, end): whole rows, or
/// parts of one row when rows are longer than a tile.
template <typename Body>
void for_each_tile(const NormShape& shape, int64_t begin, int64_t end, Body body) {
  const int64_t step = shape.width <= kNormTile ? kNormTile / shape.width : 1;
  for (int64_t row = begin; row < end; row += step) {
    const int64_t rows = row + step < end ? step : end - row;
    for (int64_t channel = 0; channel < shape.width; channel += kNormTile) {
      const int64_t rest = shape.width - channel;
      body(row, rows, channel, rest < kNormTile ? rest : kNormTile);
    }
  }
}

/// Bytes of two double arrays per part and three float arrays of `width`.
int64_t norm_workspace_bytes(const NormShape& shape);
struct NormWorkspace {
  double* first;   ///< [parts, width]
  double* second;  ///< [parts, width]
  float* a;        ///< [width] each
  float* b;
  float* c;
};
NormWorkspace norm_workspace(const NormShape& shape, std::byte* workspace);

/// Leaves mean and summed squared deviations of all rows in part 0 of the workspace.
void moments(const NormShape& shape, const void* x, const NormWorkspace& work, ThreadPool& threads);
/// The same of groups, as moments_type() has them.
void join_groups(const NormShape& shape, const float* groups, const NormWorkspace& work);
/// Makes such groups of x.
void measure_groups(const NormShape& shape, const void* x, const NormWorkspace& work, float* groups,
                    ThreadPool& threads);

/// Per channel, y = activation((x - mean) scale + bias [+ residual]) over all rows.
struct Normalize {
  const float* mean;
  const float* scale;
  const float* bias;
  NormActivation activation = NormActivation::none;
};
void normalize(const NormShape& shape, const Normalize& how, const void* x, const void* residual, void* y,
               ThreadPool& threads);

/// What the gradient of a normalization is made from. With relu, y is given, and g is dy where y > 0, else 0.
/// With silu, scale and bias are given, and g = dy silu'((x - mean) scale + bias). Otherwise g = dy.
struct NormCotangents {
  const void* x;
  const void* dy;
  const void* y;
  const float* mean;
  const float* scale = nullptr;
  const float* bias = nullptr;
  /// Where gradient_sums leaves the g of silu, in f32, as the dy of what follows; or null.
  float* made = nullptr;
};
/// Leaves in part 0 of the workspace each channel's sums of g and of g (x - mean).
void gradient_sums(const NormShape& shape, const NormCotangents& in, const NormWorkspace& work,
                   ThreadPool& threads);
/// Per channel, dx = a g + b (x - mean) + c by the workspace's arrays, or a g where x is null; dresidual = g,
/// unless it is null.
void spread_gradient(const NormShape& shape, const NormCotangents& in, const NormWorkspace& work, void* dx,
                     void* dresidual, ThreadPool& threads);

/// Shared checks of x and of the f32 [channels] inputs from index 1 to `last`.
std::string check_norm_inputs(const ir::NodeView& node, const ir::OpDef& op, size_t last);

}  // namespace hearth::ops
