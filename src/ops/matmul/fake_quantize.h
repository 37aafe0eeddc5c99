#pragma once

#include <cstddef>
#include <cstdint>

#include "base/group_format.h"
#include "ir/op_def.h"

namespace hearth::ops {

/// Rounds weights to the values that a format of base/block_format.h can store (quantization-aware training,
/// Jacob et al. 2017, arXiv 1712.05877). The gradient is passed on unchanged (straight-through estimator,
/// Bengio et al. 2013, arXiv 1308.3432): scales follow the largest magnitude, so that no weight is out of
/// range.
extern const ir::OpDef fake_quantize;

/// Rounds weights or activations to the values that a format of base/group_format.h can store. The gradient
/// is passed on where the code is in the range of the format, and is 0 elsewhere; no gradient flows through
/// scales.
extern const ir::OpDef fake_quantize_groups, fake_quantize_groups_grad;

/// Settings of a node of fake_quantize_groups or its gradient.
struct GroupRounding {
  GroupFormat format = GroupFormat::none;
  int64_t rows = 0, columns = 0;  ///< of x, whose leading axes are merged
  /// Number of adjacent elements of a row that share a scale; 0: all elements of a column do.
  int64_t group = 0;
  int64_t first_step = 0;

  explicit GroupRounding(const ir::NodeView& node);
  int64_t num_elements() const { return rows * columns; }
};
/// Index of the optional inputs `counter` and `range`; the gradient has dy before them.
constexpr size_t counter_index(bool is_gradient) { return is_gradient ? 2 : 1; }
constexpr size_t range_index(bool is_gradient) { return counter_index(is_gradient) + 1; }

}  // namespace hearth::ops
