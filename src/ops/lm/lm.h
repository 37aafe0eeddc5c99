#pragma once

#include <algorithm>
#include <vector>

#include "ir/op_def.h"

namespace hearth::ops {

/// Ops of transformers. Activations are [N, D] with one token per row, N = batch * time; each head of a token
/// is a range of adjacent columns.

/// Looks up rows of a table by i32 ids. An id outside of the table yields a row of NaN and contributes no
/// gradient.
extern const ir::OpDef embedding;
extern const ir::OpDef embedding_grad;

/// Table of rotary position embeddings (RoPE, arXiv 2104.09864). Row i holds `len` values scale * cos, then
/// `len` values scale * sin, of the angles position[i] * inv_freq, which are rounded to f32. If there are two
/// sets of frequencies (LongRoPE), long_inv_freq is used if any position is beyond the original context
/// length.
extern const ir::OpDef rope_table;
/// RoPE table for tokens with several coordinates. Coordinate axis a has axes[a] / 2 pairs of elements, with
/// frequencies theta^(-2i / axes[a]). Each sample has its text tokens first, then its image patches row by
/// row. The coordinates of a patch are (row, column) with two axes, (0, row, column) with three, (0, row,
/// column, 0) with four. Text token l has the coordinates (0, 0, 0) with three axes, (0, 0, 0, l) with four;
/// with two axes there is no text.
extern const ir::OpDef axes_rope_table;
/// Applies RoPE: rotates the first 2 * len elements of each head in pairs and copies the other elements. A
/// pair is elements i and i + len (as in Hugging Face) or, with interleaved=1, elements 2i and 2i + 1.
/// inverse=1 negates the angles.
extern const ir::OpDef rope;

/// Attention: softmax(scale q k^T) v per head, tiled so that the time x time scores are never stored
/// (FlashAttention-2, arXiv 2307.08691). Query head h attends to key head h * kv_heads / heads. Soft cap and
/// sliding window are as in Gemma 2 (arXiv 2408.00118); 0: none. With `starts`, i32 [N], a token attends only
/// to tokens of its document; starts[i] is the position in the sequence of the first token of token i's
/// document. `bias`, f32 [heads, T, T], is added to the scaled scores of every sample; it requires causal=0
/// and gets no gradient.
extern const ir::OpDef attention;
extern const ir::OpDef attention_grad;
/// Attention of new tokens [T, D] with a KV cache: writes the keys and values of token t in place to slot
/// positions[t] of the caches [slots, D]; the token attends to the slots up to its own (with a window: to the
/// last `window` of them). All arrays are f32. A token whose position is outside of the cache is not stored
/// and outputs zeros.
extern const ir::OpDef cached_attention;

/// Gated linear unit: activation(gate) * up (arXiv 2002.05202).
extern const ir::OpDef glu;
extern const ir::OpDef glu_grad;

/// Ops of a mixture-of-experts router. top_k_mask is 1 for the `count` largest elements of each row (of equal
/// elements, the first ones), otherwise 0; it has no gradient. scale_rows multiplies row i of x by s[i].
/// row_dot computes the dot product of row i of a and row i of b.
extern const ir::OpDef top_k_mask;
extern const ir::OpDef scale_rows;
extern const ir::OpDef row_dot;

/// The RoPE frequencies of a rope_table.
struct RopeFrequencies {
  explicit RopeFrequencies(const ir::NodeView& node);

  /// True if there is a second set of frequencies (long_inv_freq), for positions of `original` or more.
  bool has_two() const { return !long_frequencies.empty(); }
  /// Returns the frequencies to use for positions `reach`: the long ones if any position is `original` or
  /// more.
  const std::vector<double>& chosen(const auto& reach) const {
    const auto is_beyond = [&](auto position) { return static_cast<int64_t>(position) >= original; };
    return has_two() && std::ranges::any_of(reach, is_beyond) ? long_frequencies : short_frequencies;
  }

  std::vector<double> short_frequencies, long_frequencies;
  int64_t original = 0;  ///< context length up to which short_frequencies apply
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
  enum : size_t { q, k, v, keys, values, positions, sequences };
};

}  // namespace hearth::ops
