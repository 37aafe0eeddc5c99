#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/threads.h"

namespace hearth::cpu {

/// Shapes and options of an attention over `batch` sequences of `time` tokens: q and out are [batch * time,
/// heads * head_size], k and v [batch * time, kv_heads * head_size]. Query head h attends to key head h *
/// kv_heads / heads (grouped-query attention).
struct AttentionSpec {
  int64_t batch = 0;
  int64_t time = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;
  float scale = 1;
  float softcap = 0;   ///< soft cap of the scores: softcap * tanh(score / softcap); 0: none
  int64_t window = 0;  ///< sliding window: number of keys that a query sees, including its own; 0: no limit
  bool causal = true;  ///< if false, window and document starts are not allowed
  DType dtype = DType::f32;
  int num_threads = 1;
};

/// Scaled dot-product attention in tiles (FlashAttention-2, arXiv 2307.08691): each thread stores at most one
/// tile of scores at a time. Sums are f32, in an order that does not depend on the number of threads.
/// Allocates no memory.
class Attention {
 public:
  explicit Attention(const AttentionSpec& spec);

  /// Arrays of the forward pass; out and lse are results.
  struct Forward {
    const void* q = nullptr;
    const void* k = nullptr;
    const void* v = nullptr;
    const int32_t* starts = nullptr;  ///< first token of each token's document within its sequence, or null
    const float* bias = nullptr;      ///< [heads, time, time], added to scores, or null
    void* out = nullptr;
    float* lse = nullptr;  ///< [batch * time, heads]: logsumexp of each query's scores
  };
  /// Arrays of the backward pass; dq, dk and dv are results. `bias` gets no gradient.
  struct Backward {
    const void* q = nullptr;
    const void* k = nullptr;
    const void* v = nullptr;
    const void* out = nullptr;
    const float* lse = nullptr;
    const void* dout = nullptr;
    const int32_t* starts = nullptr;
    const float* bias = nullptr;
    void* dq = nullptr;
    void* dk = nullptr;
    void* dv = nullptr;
  };

  /// Workspace bytes of forward() and backward().
  int64_t forward_bytes() const;
  int64_t backward_bytes() const;
  void forward(const Forward& arrays, std::byte* workspace, ThreadPool& threads) const;
  void backward(const Backward& arrays, std::byte* workspace, ThreadPool& threads) const;

 private:
  AttentionSpec spec_;
};

}  // namespace hearth::cpu
