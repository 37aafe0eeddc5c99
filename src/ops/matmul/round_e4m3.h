#pragma once

#include "base/e4m3.h"
#include "ir/op_def.h"

namespace hearth::ops {

/// Rounds the elements of a matrix to the nearest E4M3 value times the scale of their block, a power of two
/// computed from the block's largest magnitude (base/e4m3.h): torchao's row-wise recipe. A block with an
/// infinity or NaN becomes NaN. E4M3 values times a power of two are exact in bf16, and their products in
/// f32, so that matmuls of the result compute the products of 8-bit matrix instructions on any device.
extern const ir::OpDef round_e4m3;

/// Returns x rounded to an E4M3 value times a scale, given 1 / scale; NaN for a NaN scale.
HEARTH_FORMULA inline float round_to_e4m3(float x, float inverse, float scale) {
  return nearest_e4m3(x * inverse) * scale;
}

/// Shape of the blocks that share a scale; 0: all rows or all columns. Supported are parts of rows (1, any),
/// columns (0, 1), the full matrix (0, 0) and tiles (above 1, above 1).
struct ScaleBlock {
  int64_t rows = 1, columns = 0;
};
/// Returns the attributes block_rows and block_columns of round_e4m3.
ScaleBlock scale_block(const ir::Attrs& attrs);

}  // namespace hearth::ops
