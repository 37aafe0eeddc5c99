#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "ir/op_def.h"
#include "ops/norm/norm.h"

namespace hearth::ops {

/// Shape and dtype of a batch normalization: `rows` runs of `width` channels.
struct NormShape {
  DType dtype = DType::f32;
  int64_t rows = 0;
  int64_t width = 0;
  /// Number of partial results, which are combined in order.
  int parts = 1;
};
/// Returns the shape of x as rows of channels, with parts that depend only on the shape.
NormShape norm_shape(const ir::Type& x);

/// Floats per tile: a tile and its result stay in the L2 cache.
inline constexpr int64_t kNormTile = 8192;

/// Calls body(row, num_rows, channel, num_channels) for contiguous tiles of rows [begin, end): full rows, or
/// parts of one row if rows are longer than a tile.
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

/// Returns the bytes of a NormWorkspace: two double arrays per part and three float arrays of `width`.
int64_t norm_workspace_bytes(const NormShape& shape);
/// Workspace of a normalization: two double arrays per part, then three float arrays.
struct NormWorkspace {
  double* first;   ///< [parts, width]
  double* second;  ///< [parts, width]
  float* a;        ///< [width], as b and c
  float* b;
  float* c;
};
NormWorkspace norm_workspace(const NormShape& shape, std::byte* workspace);

/// Computes the mean and the sum of squared deviations over all rows, into part 0 of the workspace.
void moments(const NormShape& shape, const void* x, const NormWorkspace& work, ThreadPool& threads);
/// Computes the same moments from moments of groups, laid out as in moments_type().
void join_groups(const NormShape& shape, const float* groups, const NormWorkspace& work);
/// Computes the moments of groups of rows of x.
void measure_groups(const NormShape& shape, const void* x, const NormWorkspace& work, float* groups,
                    ThreadPool& threads);

/// Per channel, y = activation((x - mean) scale + bias [+ residual]) over all rows.
struct Normalize {
  const float* mean;
  const float* scale;
  const float* bias;
  NormActivation activation = NormActivation::none;
};
/// Computes y; x, residual and y have shape.dtype.
void normalize(const NormShape& shape, const Normalize& how, const void* x, const void* residual, void* y,
               ThreadPool& threads);

/// Inputs of the gradient of a normalization. With relu, y is set, and g is dy where y > 0, otherwise 0. With
/// silu, scale and bias are set, and g = dy silu'((x - mean) scale + bias). Otherwise g = dy.
struct NormCotangents {
  const void* x;
  const void* dy;
  const void* y;
  const float* mean;
  const float* scale = nullptr;
  const float* bias = nullptr;
  /// Destination of g with silu, in f32, written by gradient_sums and used as dy afterwards; or null.
  float* made = nullptr;
};
/// Computes each channel's sums of g and of g (x - mean), into part 0 of the workspace.
void gradient_sums(const NormShape& shape, const NormCotangents& in, const NormWorkspace& work,
                   ThreadPool& threads);
/// Per channel, dx = a g + b (x - mean) + c with the workspace's arrays, or a g if x is null; dresidual = g,
/// unless it is null.
void spread_gradient(const NormShape& shape, const NormCotangents& in, const NormWorkspace& work, void* dx,
                     void* dresidual, ThreadPool& threads);

/// Returns an error unless x and the f32 [channels] inputs 1 to `last` are valid; empty if they are.
std::string check_norm_inputs(const ir::NodeView& node, const ir::OpDef& op, size_t last);

}  // namespace hearth::ops
