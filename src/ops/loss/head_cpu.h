#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/threads.h"
#include "ops/loss/distill_formula.h"

namespace hearth::cpu {

/// Shapes and options of an LM head: logits = x weight^T, x [tokens, width], weight [vocab, width], and their
/// cross-entropy with labels. Logits are f32. If x and weight are bf16 and the CPU has instructions that
/// multiply pairs of bf16, gradients of logits are rounded to bf16 for the matmuls with x and weight, as in
/// torch.autocast.
struct HeadSpec {
  /// Outputs of a run. losses: losses and lse. gradients: dx and dweight, with the softmax recomputed from
  /// lse. both: losses, dx and dweight. top_k: the most likely tokens.
  enum class Task : uint8_t { losses, gradients, both, top_k };
  Task task = Task::losses;
  int64_t tokens = 0;
  int64_t width = 0;
  int64_t vocab = 0;
  int64_t chunk = 256;  ///< maximum number of tokens whose logits are in memory at a time
  float softcap = 0;    ///< logits = softcap * tanh(x weight^T / softcap); 0: no cap
  DType x = DType::f32;
  DType weight = DType::f32;
  bool frozen = false;     ///< true if dweight is not needed
  int64_t top_k = 0;       ///< tokens that a teacher lists, or that the task top_k lists, for each token
  int64_t num_listed = 0;  ///< task top_k: number of first tokens of the vocabulary to list from
  ops::DistillFormula distill;
  int num_threads = 1;
};

/// LM head fused with its cross-entropy: memory holds only the logits of a chunk of tokens (task both), or of
/// a chunk of tokens and a tile of the vocabulary (other tasks). Tokens with a negative label are ignored:
/// their loss, lse and dx are 0. A label >= vocab yields NaN. With a teacher, losses have the form of
/// DistillFormula, and the task gradients recomputes lse and holds the logits of a chunk. Results are bitwise
/// reproducible for a given number of threads.
class Head {
 public:
  explicit Head(const HeadSpec& spec);

  /// Arrays of a run; arrays that the task does not use are null.
  struct Arrays {
    const void* x = nullptr;
    const void* weight = nullptr;
    const int32_t* labels = nullptr;
    const int32_t* teacher_ids = nullptr;  ///< [tokens, top_k], ascending in each row
    const float* teacher_logps = nullptr;  ///< [tokens, top_k], log-probabilities
    float* losses = nullptr;               ///< [tokens]; tasks losses and both
    float* lse = nullptr;                  ///< [tokens]; written by losses, read by gradients
    const float* dlosses = nullptr;        ///< [tokens]; task gradients
    float dloss = 0;                       ///< gradient of each token's loss, equal for all tokens; task both
    int32_t* top_ids = nullptr;            ///< [tokens, top_k]; task top_k, as top_logps
    float* top_logps = nullptr;
    void* dx = nullptr;        ///< [tokens, width], in the dtype of x
    float* dweight = nullptr;  ///< [vocab, width]; null when frozen
  };

  int64_t workspace_bytes() const;
  void run(const Arrays& arrays, std::byte* workspace, ThreadPool& threads) const;

 private:
  HeadSpec spec_;
};

}  // namespace hearth::cpu
