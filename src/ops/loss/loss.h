#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Losses per sample over the last axis of logits [N, K]; labels are i32 [N]. The attribute `ignore` is a
/// label whose loss and gradient are 0; any other label outside [0, K) gives NaN. Class weights, f32 [K],
/// multiply loss and gradient of a label, the smoothed part included; they get no gradient.
extern const ir::OpDef softmax_cross_entropy;
extern const ir::OpDef softmax_cross_entropy_grad;
extern const ir::OpDef softmax;
extern const ir::OpDef softmax_grad;
extern const ir::OpDef count_correct;
extern const ir::OpDef argmax;
extern const ir::OpDef one_hot;

/// A language model's head and its cross-entropy, x [N, D] by weight [V, D]: logits exist only for `rows`
/// tokens at a time, on GPUs for four times as many. A negative label is no label: loss, lse and gradient are
/// 0; one past V gives NaN. With frozen=1 the gradients have no dweight. Gradients of logits are rounded to
/// x's dtype on GPUs, and where the processor multiplies pairs of bf16.
extern const ir::OpDef head_cross_entropy;
/// `rows` unless an attribute says otherwise.
inline constexpr int64_t kHeadRows = 256;
extern const ir::OpDef head_cross_entropy_grad;
/// Both at once, where every token's loss has the same weight; logits are computed once.
extern const ir::OpDef head_cross_entropy_train;

/// The inputs of the three records: lse and dlosses of head_cross_entropy_grad, dloss of
/// head_cross_entropy_train.
struct HeadIn {
  enum : size_t { x, weight, labels, lse, dlosses, dloss = lse };
};

/// Direct preference optimization (Rafailov et al. 2023, arXiv 2305.18290, equation 7; `smoothing` as in
/// Mitchell's conservative DPO): -log sigmoid(x), x = beta ((chosen - rejected) - (the same of the
/// reference)), of log-probabilities in pairs {chosen, rejected}. The reference gets no gradient.
extern const ir::OpDef dpo_loss;
extern const ir::OpDef dpo_loss_grad;

/// weight[b] times the mean of (prediction - target)^2 over sample b, whose tokens are neighboring rows: f32
/// [B] of predictions [B * T, F]. Targets and weights get no gradient.
extern const ir::OpDef squared_error;
extern const ir::OpDef squared_error_grad;

/// The inputs of the two records; dlosses of squared_error_grad.
struct SquaredErrorIn {
  enum : size_t { prediction, target, weight, dlosses };
};

}  // namespace hearth::ops
