#include "ops/op_list.h"

#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "ops/collective/collective.h"
#include "ops/conv/conv.h"
#include "ops/denoise/denoise.h"
#include "ops/detect/detect.h"
#include "ops/elementwise/elementwise.h"
#include "ops/lm/lm.h"
#include "ops/loss/loss.h"
#include "ops/matmul/fake_quantize.h"
#include "ops/matmul/low_rank.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/round_e4m3.h"
#include "ops/norm/norm.h"
#include "ops/pool/pool.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape.h"
#include "ops/transfer/transfer.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

/// All ops except those of elementwise_ops().
constexpr const ir::OpDef* kOps[] = {
    // elementwise, shape, reduce, random
    &bias_add,
    &scale_by,
    &cast,
    &broadcast_scalar,
    &fused_elementwise,
    &reshape,
    &transpose,
    &slice_last,
    &pad_last,
    &concat_last,
    &stack_rows,
    &unstack_rows,
    &sum_leading,
    &sum_all,
    &sum_trailing,
    &broadcast_trailing,
    &sum_squares,
    &dropout,
    // matmul, conv
    &matmul,
    &matmul_accumulate,
    &orthogonalize,
    &quantized_linear,
    &fake_quantize,
    &fake_quantize_groups,
    &fake_quantize_groups_grad,
    &round_e4m3,
    &low_rank_up,
    &low_rank_grad,
    &conv2d,
    &conv2d_grad_input,
    &conv2d_grad_weight,
    &conv2d_pool,
    &conv2d_pool_grad_weight,
    &conv2d_moments,
    &conv2d_norm,
    // norm
    &batch_norm,
    &batch_norm_infer,
    &batch_norm_grad,
    &batch_norm_infer_grad,
    &group_norm,
    &group_norm_grad,
    &rms_norm,
    &rms_norm_grad,
    &layer_norm,
    &layer_norm_grad,
    // lm
    &embedding,
    &embedding_grad,
    &rope_table,
    &axes_rope_table,
    &rope,
    &attention,
    &attention_grad,
    &cached_attention,
    &glu,
    &glu_grad,
    &top_k_mask,
    &scale_rows,
    &row_dot,
    // pool
    &max_pool2d,
    &max_pool2d_grad,
    &global_avg_pool,
    &global_avg_pool_grad,
    &scale_channels,
    &channel_dot,
    &resize,
    &resize_grad,
    // loss
    &softmax_cross_entropy,
    &softmax_cross_entropy_grad,
    &softmax,
    &softmax_grad,
    &count_correct,
    &argmax,
    &one_hot,
    &head_cross_entropy,
    &head_cross_entropy_grad,
    &head_cross_entropy_train,
    &head_top_k,
    &distill_loss,
    &distill_loss_grad,
    &dpo_loss,
    &dpo_loss_grad,
    &squared_error,
    &squared_error_grad,
    // denoise
    &timestep_embedding,
    &modulated_norm,
    &modulated_norm_grad,
    &gated_add,
    &gated_add_grad,
    // detect
    &simota,
    &yolox_decode,
    // update
    &zero,
    &accumulate,
    &bf16_feedback,
    &fp8_feedback,
    &fp8_restore,
    &sgd_update,
    &adamw_update,
    &adamw8bit_update,
    &lion_update,
    &adafactor_update,
    &muon_update,
    &ema_update,
    &mask_gradient,
    &apply_mask,
    &prune_score,
    &prune_threshold,
    &prune_mask,
    &prune_groups,
    &grow_score,
    &increment,
    &clip_factor,
    &loss_scale_update,
    &loss_scale_read,
    // transfer
    &fetch,
    &store,
    &stash,
    &load,
    &encode_fp8,
    &decode_fp8,
    // collective
    &all_reduce,
    &reduce,
    &broadcast,
    &send_broadcast,
    &receive_broadcast,
    &send,
    &receive,
};

std::vector<const ir::OpDef*> make_list() {
  std::vector<const ir::OpDef*> list;
  for (const ir::OpDef& def : elementwise_ops()) list.push_back(&def);
  list.insert(list.end(), std::begin(kOps), std::end(kOps));
  return list;
}

}  // namespace

std::span<const ir::OpDef* const> op_list() {
  static const std::vector<const ir::OpDef*> list = make_list();
  return list;
}

const ir::OpDef* find_op(std::string_view name) {
  static const std::unordered_map<std::string_view, const ir::OpDef*> by_name = [] {
    std::unordered_map<std::string_view, const ir::OpDef*> made;
    for (const ir::OpDef* op : op_list()) made.emplace(op->name, op);
    return made;
  }();
  const auto found = by_name.find(name);
  return found == by_name.end() ? nullptr : found->second;
}

const ir::OpDef& op(std::string_view name) {
  const ir::OpDef* found = find_op(name);
  if (found == nullptr) internal_error("there is no op '{}'", name);
  return *found;
}

}  // namespace hearth::ops
