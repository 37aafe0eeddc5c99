#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/threads.h"

namespace hearth::cpu {

/// Attention over rows of `time` tokens: q and out are [batch * time, heads * head_size], k and v
/// [batch * time, kv_heads * head_size]. Query head h reads key head h * kv_heads / heads.
struct AttentionSpec {
  int64_t batch = 0;
  int64_t time = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;
  float scale = 1;
  float softcap = 0;   ///< 0: none
  int64_t window = 0;  ///< keys that a query sees, its own among them; 0: all
  bool causal = true;  ///< without it there is neither a window nor are there documents
  DType dtype = DType::f32;
  int num_threads = 1;
};

/// Scaled dot-product attention in tiles (FlashAttention-2, arXiv 2307.08691): never more than a tile of
/// scores exists. Sums in f32, in an order that the number of threads does not change; allocates nothing.
class Attention {
 public:
  explicit Attention(const AttentionSpec& spec);

  struct Forward {
    const void* q = nullptr;
    const void* k = nullptr;
    const void* v = nullptr;
    const int32_t* starts = nullptr;  ///< first token of each token's document within its row, or null
    const float* bias = nullptr;      ///< [heads, time, time], added to scores, or null
    void* out = nullptr;
    float* lse = nullptr;  ///< [batch * time, heads]: log of the sum of exponentials
  };
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

  int64_t forward_bytes() const;
  int64_t backward_bytes() const;
  void forward(const Forward& arrays, std::byte* workspace, ThreadPool& threads) const;
  void backward(const Backward& arrays, std::byte* workspace, ThreadPool& threads) const;

 private:
  AttentionSpec spec_;
};

}  // namespace hearth::cpu
