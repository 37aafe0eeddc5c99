#pragma once

#include <cstdint>

#include "base/threads.h"
#include "ops/loss/head_layout.h"

namespace hearth::cpu {

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
