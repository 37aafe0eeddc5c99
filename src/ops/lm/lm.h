#pragma once

#include <algorithm>
#include <vector>

#include "ir/op_def.h"

namespace hearth::ops {

/// Parts of a transformer. Activations are [N, D] with one token per row, N = batch * time; the heads of a
/// token are adjacent columns.

/// Looks up rows of a table by i32 ids. An id outside of the table gives a row of NaN and receives no
/// gradient.
extern const ir::OpDef embedding;
extern const ir::OpDef embedding_grad;

/// Tables of rotary position embeddings (RoPE, arXiv 2104.09864) in Hugging Face's layout, where element i is
/// rotated with element i + len. Each row holds scale * cos, then scale * sin, of positions * inv_freq; the
/// product is rounded to f32. With long_inv_freq there are two sets of frequencies: the largest of all
/// positions selects one (LongRoPE).
extern const ir::OpDef rope_table;
/// RoPE table for tokens with several coordinates. Axis a has axes[a] / 2 pairs with frequencies theta^(-2i /
/// axes[a]). In each sample the text tokens come first, then the patches row by row. The coordinates of a
/// patch are (row, column) for two axes, (0, row, column) for three, (0, row, column, 0) for four. Text
/// tokens are at (0, 0, 0), or the l-th one at (0, 0, 0, l); with two axes there is no text.
extern const ir::OpDef axes_rope_table;
/// Applies RoPE: rotates the first 2 * len elements of each head and copies the rest; inverse=1 rotates
/// backward. With interleaved=1, element 2i is rotated with element 2i + 1.
extern const ir::OpDef rope;

/// Attention: softmax(scale q k^T) v per head, tiled so that the time x time scores are never stored
/// (FlashAttention-2, arXiv 2307.08691). Query head h reads key head h * kv_heads / heads. Soft cap and
/// window as in Gemma 2 (arXiv 2408.00118); 0: none. With `starts`, a token sees only tokens of its own
/// document; starts[i] is the document's first token, counted within the sequence. `bias`, f32 [heads, T, T],
/// is added to the scaled scores of every sample; it requires causal=0 and gets no gradient.
extern const ir::OpDef attention;
extern const ir::OpDef attention_grad;
/// Attention of new tokens [T, D] with a KV cache: writes their keys and values in place to slot positions[t]
/// of caches [slots, D]; token t sees the slots up to its own (with a window: the last `window` slots). All
/// f32. A token whose position is outside of the cache is not stored and outputs zeros.
extern const ir::OpDef cached_attention;

/// Gated linear unit: activation(gate) * up (arXiv 2002.05202).
extern const ir::OpDef glu;
extern const ir::OpDef glu_grad;

/// Parts of a mixture-of-experts router. top_k_mask keeps the first of equal scores and has no gradient.
extern const ir::OpDef top_k_mask;
extern const ir::OpDef scale_rows;
extern const ir::OpDef row_dot;

/// The RoPE frequencies of a rope_table.
struct RopeFrequencies {
  explicit RopeFrequencies(const ir::NodeView& node);

  /// True if there is a second set, for contexts of more than `original` positions (long_inv_freq).
  bool has_two() const { return !long_frequencies.empty(); }
  /// Returns the frequencies to use if the largest position is in `reach`.
  const std::vector<double>& chosen(const auto& reach) const {
    const auto is_beyond = [&](auto position) { return static_cast<int64_t>(position) >= original; };
    return has_two() && std::ranges::any_of(reach, is_beyond) ? long_frequencies : short_frequencies;
  }

  std::vector<double> short_frequencies, long_frequencies;
  int64_t original = 0;  ///< context length up to which `within` applies
  double scale;
};

/// Indices of the inputs of the attention ops.
struct AttentionIn {
  enum : size_t { q, k, v, starts, bias };
};
struct AttentionGradIn {
  enum : size_t { q, k, v, out, lse, dout, starts, bias };
};
struct CachedAttentionIn {
  enum : size_t { q, k, v, keys, values, positions };
};

}  // namespace hearth::ops
