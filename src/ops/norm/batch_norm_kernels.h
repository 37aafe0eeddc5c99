#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "ir/op_def.h"
#include "ops/norm/norm.h"

namespace hearth::ops {

/// Shape and dtype of the input of a batch normalization, [rows, width]: `width` is the number of channels,
/// `rows` the product of the other axes.
struct NormShape {
  DType dtype = DType::f32;
  int64_t rows = 0;
  int64_t width = 0;
  /// Number of parts of the rows with separate partial results, which are merged in order.
  int parts = 1;
};
/// Returns the shape of x as [rows, channels]. The number of parts depends only on the shape.
NormShape norm_shape(const ir::Type& x);

/// Maximum number of floats per tile: a tile and its result stay in the L2 cache.
inline constexpr int64_t kNormTile = 8192;

/// Splits rows [begin, end) into tiles and calls body(row, num_rows, channel, num_channels) for each. A tile
/// is contiguous in memory: several full rows, or a part of one row if rows are longer than a tile.
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
  float* a;        ///< [width]; b and c have the same size
  float* b;
  float* c;
};
NormWorkspace norm_workspace(const NormShape& shape, std::byte* workspace);

/// Computes each channel's mean and sum of squared deviations over all rows, into part 0 of work.first and
/// work.second.
void moments(const NormShape& shape, const void* x, const NormWorkspace& work, ThreadPool& threads);
/// Computes the results of moments() from the moments of groups of kMomentRows rows, an array of
/// moments_type().
void join_groups(const NormShape& shape, const float* groups, const NormWorkspace& work);
/// Computes the moments of each group of kMomentRows rows of x into `groups`, an array of moments_type().
void measure_groups(const NormShape& shape, const void* x, const NormWorkspace& work, float* groups,
                    ThreadPool& threads);

/// Per-channel arrays and activation of a normalization: y = activation((x - mean) scale + bias [+
/// residual]).
struct Normalize {
  const float* mean;
  const float* scale;
  const float* bias;
  NormActivation activation = NormActivation::none;
};
/// Computes the normalization `how` of x. x, y and residual, which may be null, have shape.dtype.
void normalize(const NormShape& shape, const Normalize& how, const void* x, const void* residual, void* y,
               ThreadPool& threads);

/// Inputs of the gradient of a normalization, which define g, the gradient before the activation. If y is set
/// (relu), g is dy where y > 0, otherwise 0. If scale and bias are set (silu), g = dy silu'((x - mean) scale
/// + bias). Otherwise g = dy.
struct NormCotangents {
  const void* x;
  const void* dy;
  const void* y;
  const float* mean;
  const float* scale = nullptr;
  const float* bias = nullptr;
  /// f32 array to which gradient_sums() writes g with silu, so that the caller can use it as dy afterwards;
  /// or null.
  float* made = nullptr;
};
/// Computes each channel's sums of g and of g (x - mean), into part 0 of work.first and work.second.
void gradient_sums(const NormShape& shape, const NormCotangents& in, const NormWorkspace& work,
                   ThreadPool& threads);
/// Computes dx = a g + b (x - mean) + c with the workspace's arrays a, b and c, or dx = a g if in.x is null;
/// and dresidual = g, unless that is null.
void spread_gradient(const NormShape& shape, const NormCotangents& in, const NormWorkspace& work, void* dx,
                     void* dresidual, ThreadPool& threads);

/// Computes dx = dy where the mask is 1, otherwise 0; dx may be dy. Both are 16-bit arrays of the given type.
void apply_mask(const ir::Type& type, const void* dy, const uint8_t* mask, void* dx, ThreadPool& threads);

/// Returns an error message unless input 0 is a valid x and inputs 1 to `last` are f32 [channels]; empty if
/// valid.
std::string check_norm_inputs(const ir::NodeView& node, const ir::OpDef& op, size_t last);

}  // namespace hearth::ops
