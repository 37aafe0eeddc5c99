#pragma once

#include "ir/op_def.h"
#include "ops/loss/distill_formula.h"

namespace hearth::ops {

/// Cross-entropy of each row of logits [N, K] with i32 labels [N]; the losses are f32 [N]. Rows with the
/// label in the attribute `ignore` have loss and gradient 0; any other label outside of [0, K) yields NaN.
/// Optional class weights, f32 [K], multiply the loss (including label smoothing) of rows with that label;
/// they get no gradient.
extern const ir::OpDef softmax_cross_entropy;
extern const ir::OpDef softmax_cross_entropy_grad;
extern const ir::OpDef softmax;
extern const ir::OpDef softmax_grad;
extern const ir::OpDef count_correct;
extern const ir::OpDef argmax;
extern const ir::OpDef one_hot;

/// LM head fused with cross-entropy, x [N, D] and weight [V, D]: memory holds the logits of only `rows`
/// tokens at a time (on GPUs, four times as many). Outputs losses and lse (logsumexp of the logits), f32 [N].
/// Tokens with a negative label are ignored: loss, lse and gradient are 0; a label >= V yields NaN. With
/// frozen=1 there is no dweight. Gradients of logits are rounded to x's dtype on GPUs, and on CPUs with
/// instructions that multiply pairs of bf16.
/// With teacher_ids i32 [N, K] (ascending in each row, below V) and teacher_logps f32 [N, K], the losses are
/// those of DistillFormula, with the attributes divergence (forward, reverse, jsd), distill_weight,
/// temperature and beta; the teacher gets no gradient.
extern const ir::OpDef head_cross_entropy;
/// Default of the attribute `rows`.
inline constexpr int64_t kHeadRows = 256;
extern const ir::OpDef head_cross_entropy_grad;
/// Losses and gradients in one op, which computes the logits only once. The gradient of the loss must be
/// equal for all tokens (dloss, f32 []).
extern const ir::OpDef head_cross_entropy_train;

/// Returns attributes of a head op with half as many rows; nullopt if chunks are small already.
std::optional<ir::Attrs> half_the_head_rows(const ir::NodeView& node);

/// The `k` most likely tokens among the first `vocab` for each token with a label, by the logits x weight^T:
/// ids i32 [N, k], ascending, and f32 log-probabilities [N, k], normalized over these `vocab` tokens. If
/// logits are equal, lower ids are listed. Tokens without a label get the ids 0 to k - 1 with log-probability
/// 0.
extern const ir::OpDef head_top_k;

/// Indices of the inputs of the three head ops: head_cross_entropy_grad has lse and dlosses,
/// head_cross_entropy_train has dloss. The teacher's inputs, if any, are the last two.
struct HeadIn {
  enum : size_t { x, weight, labels, lse, dlosses, dloss = lse };
};

/// Teacher of a node of a head op: its inputs and the formula of the loss. top_k 0: no teacher.
struct HeadTeacher {
  size_t ids = 0, logps = 0;  ///< indices of the inputs
  int64_t top_k = 0;
  DistillFormula formula;

  /// `num_required`: number of inputs of the op without a teacher.
  HeadTeacher(const ir::NodeView& node, size_t num_required);
};

/// Divergence of a student's logits from a teacher's, both f32 [N, K]: temperature^2 times the divergence of
/// DistillFormula over the K classes of each row, f32 [N]. With sigmoid=1 each logit has two classes (z and
/// 0), and a row's loss is the sum over its logits. Attributes: divergence, temperature, beta, sigmoid. Rows
/// whose label, i32 [N], is the attribute `ignore` have loss and gradient 0. The teacher gets no gradient.
extern const ir::OpDef distill_loss;
extern const ir::OpDef distill_loss_grad;

/// Indices of the inputs of distill_loss and distill_loss_grad; only the latter has dlosses, before the
/// optional labels.
struct DistillIn {
  enum : size_t { logits, teacher, labels, dlosses = labels, grad_labels };
};

/// Attributes of a node of distill_loss or distill_loss_grad.
struct DistillAttrs {
  DistillFormula formula;
  bool sigmoid = false, ignores = false;
  int ignore = 0;
  explicit DistillAttrs(const ir::NodeView& node);
  /// Returns the row r of logits [N, width].
  HEARTH_FORMULA DistillRow row(const float* logits, const float* teacher, int64_t r, int64_t width) const {
    return {.logits = logits + r * width,
            .teacher = teacher + r * width,
            .width = static_cast<int>(width),
            .sigmoid = sigmoid};
  }
  /// True if row r is excluded from the loss. `labels` may be null.
  HEARTH_FORMULA bool skips(const int32_t* labels, int64_t r) const {
    return ignores && labels != nullptr && labels[r] == ignore;
  }
};

/// Returns the formula of a node's attributes divergence, temperature and beta, with weight 1.
DistillFormula distill_formula(const ir::Attrs& attrs);

/// Direct preference optimization (Rafailov et al. 2023, arXiv 2305.18290, equation 7): loss -log sigmoid(x)
/// per pair, with x = beta ((chosen - rejected) - (reference chosen - reference rejected)); label smoothing
/// as in Mitchell's conservative DPO. The inputs are log-probabilities of policy and reference model in pairs
/// {chosen, rejected}. The reference gets no gradient.
extern const ir::OpDef dpo_loss;
extern const ir::OpDef dpo_loss_grad;

/// Weighted mean squared error per sample, f32 [B]: weight[b] times the mean of (prediction - target)^2 over
/// sample b. Predictions and targets are [B * T, F]; the T rows of a sample are adjacent. Targets and weights
/// get no gradient.
extern const ir::OpDef squared_error;
extern const ir::OpDef squared_error_grad;

/// Indices of the inputs of squared_error and squared_error_grad; only the latter has dlosses.
struct SquaredErrorIn {
  enum : size_t { prediction, target, weight, dlosses };
};

}  // namespace hearth::ops
