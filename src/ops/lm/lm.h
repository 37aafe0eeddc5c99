#pragma once

#include <algorithm>
#include <vector>

#include "ir/op_def.h"

namespace hearth::ops {

/// The parts of a decoder. Tokens are rows: N = batch * time; activations are [N, D], heads side by side.

/// Rows of a table by i32 ids; an id outside the table gives a row of NaN and takes no gradient.
extern const ir::OpDef embedding;
extern const ir::OpDef embedding_grad;

/// Rotary position embedding (arXiv 2104.09864) in Hugging Face's layout, where element i turns with element
/// i + len: the table holds scale * cos then scale * sin of positions * inv_freq, which is rounded to f32.
/// With long_inv_freq there are two sets of frequencies, of which the largest of all positions chooses.
extern const ir::OpDef rope_table;
/// The same for tokens with several coordinates, each with its own run of pairs: axes[a] / 2 of them, with
/// frequencies theta^(-2i / axes[a]). Of each sample the text's tokens come first, then its patches row by
/// row. (row, column) are all coordinates of two, (0, row, column) of three, (0, row, column, 0) of four;
/// text is at (0, 0, 0) or, the l-th token, at (0, 0, 0, l), and there is none with two.
extern const ir::OpDef axes_rope_table;
/// The first 2 * len elements of each head are turned, the rest is copied; inverse=1 turns back. With
/// interleaved=1, element 2i turns with element 2i + 1.
extern const ir::OpDef rope;

/// softmax(scale q k^T) v per head, tiled so that time x time is never stored (arXiv 2307.08691). Query head
/// h reads key head h * kv_heads / heads. Soft cap and window as in Gemma 2 (arXiv 2408.00118); 0: none. With
/// `starts`, a token sees only what follows the first token of its document, starts[i] within its row.
/// `bias`, f32 [heads, T, T], is added to the scaled scores of queries and keys of every sample; it comes
/// with causal=0 alone and gets no gradient.
extern const ir::OpDef attention;
extern const ir::OpDef attention_grad;
/// Attention of new tokens [T, D] to all that came before: their keys and values go into slot positions[t] of
/// caches [slots, D] in place, and token t sees the slots up to its own (with a window: the last so many).
/// All f32. A position outside of the cache is not stored and gives zeros.
extern const ir::OpDef cached_attention;

/// activation(gate) * up (arXiv 2002.05202).
extern const ir::OpDef glu;
extern const ir::OpDef glu_grad;

/// The parts of a router of experts. top_k_mask takes the first of equal ones, and no gradient passes it.
extern const ir::OpDef top_k_mask;
extern const ir::OpDef scale_rows;
extern const ir::OpDef row_dot;

/// The frequencies of a rope_table.
struct RopeFrequencies {
  explicit RopeFrequencies(const ir::NodeView& node);

  bool has_two() const { return !beyond.empty(); }
  /// Those for positions of which the largest is in `reach`.
  const std::vector<double>& chosen(const auto& reach) const {
    const auto is_beyond = [&](auto position) { return static_cast<int64_t>(position) >= original; };
    return has_two() && std::ranges::any_of(reach, is_beyond) ? beyond : within;
  }

  std::vector<double> within, beyond;
  int64_t original = 0;  ///< positions of a short context
  double scale;
};

/// The inputs of the records of attention, in their order.
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
