#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Cross-entropy per sample over the last axis of logits [N, K]; labels are i32 [N]. The attribute `ignore`
/// is a label with loss and gradient 0; any other label outside of [0, K) yields NaN. Class weights, f32 [K],
/// multiply the loss and gradient of a label, including the smoothed part; they get no gradient.
extern const ir::OpDef softmax_cross_entropy;
extern const ir::OpDef softmax_cross_entropy_grad;
extern const ir::OpDef softmax;
extern const ir::OpDef softmax_grad;
extern const ir::OpDef count_correct;
extern const ir::OpDef argmax;
extern const ir::OpDef one_hot;

/// LM head fused with cross-entropy, x [N, D] and weight [V, D]: logits exist only for `rows` tokens at a
/// time (GPUs: four times as many). Tokens with a negative label are ignored: loss, lse and gradient are 0; a
/// label past V yields NaN. With frozen=1 there is no dweight. Gradients of logits are rounded to x's dtype
/// on GPUs, and on CPUs that multiply pairs of bf16.
extern const ir::OpDef head_cross_entropy;
/// Default of the attribute `rows`.
inline constexpr int64_t kHeadRows = 256;
extern const ir::OpDef head_cross_entropy_grad;
/// Losses and gradients in one op, for equal weights of all tokens' losses; computes the logits once.
extern const ir::OpDef head_cross_entropy_train;

/// Indices of the inputs of the three head ops: head_cross_entropy_grad has lse and dlosses,
/// head_cross_entropy_train has dloss.
struct HeadIn {
  enum : size_t { x, weight, labels, lse, dlosses, dloss = lse };
};

/// Direct preference optimization (Rafailov et al. 2023, arXiv 2305.18290, equation 7; `smoothing` as in
/// Mitchell's conservative DPO): -log sigmoid(x) with x = beta ((chosen - rejected) - (reference chosen -
/// reference rejected)). Log-probabilities are in pairs {chosen, rejected}. The reference gets no gradient.
extern const ir::OpDef dpo_loss;
extern const ir::OpDef dpo_loss_grad;

/// Weighted mean squared error per sample, f32 [B]: weight[b] times the mean of (prediction - target)^2 over
/// sample b, whose tokens are adjacent rows of predictions [B * T, F]. Targets and weights get no gradient.
extern const ir::OpDef squared_error;
extern const ir::OpDef squared_error_grad;

/// Indices of the inputs of both ops; squared_error_grad also has dlosses.
struct SquaredErrorIn {
  enum : size_t { prediction, target, weight, dlosses };
};

}  // namespace hearth::ops
