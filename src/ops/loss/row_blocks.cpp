#include "ops/loss/row_blocks.h"

#include "backend/cpu/clones.h"

namespace hearth::ops {
namespace {

HEARTH_CLONES void raise(const float* x, float* row_max, int64_t count) {
  for (int64_t i = 0; i < count; ++i) row_max[i] = x[i] > row_max[i] ? x[i] : row_max[i];
}

}  // namespace

std::string logits_fault(const NodeView& node) {
  const Type& logits = node.in_type(0);
  if (logits.shape.rank() != 2 || !is_storage_float(logits.dtype) || logits.shape[1] < 1)
    return fmt::format("expected logits to be floating [N, K], got {}", to_string(logits));
  if (node.in_type(1) != Type{.dtype = DType::i32, .shape = {logits.shape[0]}})
    return fmt::format("expected labels to be i32[{}], got {}", logits.shape[0], to_string(node.in_type(1)));
  return "";
}

void add_up_exponentials(const RowBlocks::Block& block) {
  std::copy_n(block.columns, block.rows, block.row_max);
  std::fill_n(block.sum, block.rows, 0.0F);
  for (int64_t k = 1; k < block.width; ++k)
    raise(block.columns + k * block.stride, block.row_max, block.rows);
  for (int64_t k = 0; k < block.width; ++k)
    cpu::simd().add_exp(block.columns + k * block.stride, block.row_max, block.sum, block.rows);
}

}  // namespace hearth::ops
