// Fused LM head and cross-entropy. The logits (tokens x vocabulary) would be the largest array of a step, so
// they are computed for one chunk of tokens at a time, in memory that the next chunk reuses: logits, softmax,
// loss, and the gradient of the logits, from which two matmuls compute the gradients of the hidden states x
// and of the weight. If losses and gradients are computed separately, the softmax is recomputed tile by tile
// from lse, the logarithm of each token's sum of exponentials. With a teacher, logits of its
// listed tokens are excluded from the sum of exponentials, which is then the tail's.
#include "ops/loss/head_cpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "backend/cpu/blocks.h"
#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd/simd.h"

namespace hearth::cpu {
namespace {

using Task = HeadSpec::Task;

HEARTH_CLONES void max_with(const float* row, float* row_max, int64_t count) {
  for (int64_t i = 0; i < count; ++i) row_max[i] = row[i] > row_max[i] ? row[i] : row_max[i];
}

/// State of a call of Head::run(), which processes all chunks of tokens.
class HeadRun {
 public:
  HeadRun(const HeadSpec& spec, const Head::Arrays& arrays, std::byte* workspace, ThreadPool& threads)
      : s_(spec),
        layout_(spec),
        arrays_(arrays),
        base_(reinterpret_cast<float*>(workspace)),
        threads_(threads) {
    tokens_ = reinterpret_cast<int32_t*>(base_ + layout_.tokens);
  }

  void run() {
    list_tokens();
    if (num_tokens_ == 0 && has_gradients(s_) && !s_.frozen)
      std::fill_n(arrays_.dweight, s_.vocab * s_.width, 0.0F);
    for (first_ = 0; first_ < num_tokens_; first_ += layout_.chunk) {
      rows_ = std::min(layout_.chunk, num_tokens_ - first_);
      gather();
      if (s_.task == Task::top_k) {
        list_top();
        continue;
      }
      if (measures()) measure();
      if (has_gradients(s_)) differentiate();
    }
  }

 private:
  /// Lists the tokens that have a label (>= 0), and zeroes the outputs of the other tokens.
  void list_tokens() {
    for (int64_t t = 0; t < s_.tokens; ++t) {
      if (arrays_.labels[t] >= 0) {
        tokens_[num_tokens_++] = static_cast<int32_t>(t);
        continue;
      }
      if (s_.task == Task::top_k) {
        std::iota(arrays_.top_ids + t * s_.top_k, arrays_.top_ids + (t + 1) * s_.top_k, 0);
        std::fill_n(arrays_.top_logps + t * s_.top_k, s_.top_k, 0.0F);
        continue;
      }
      if (s_.task != Task::gradients) arrays_.losses[t] = 0;
      if (s_.task == Task::losses) arrays_.lse[t] = 0;
      if (s_.task != Task::losses)
        std::memset(static_cast<std::byte*>(arrays_.dx) + static_cast<size_t>(t) * row_bytes(), 0,
                    row_bytes());
    }
  }

  /// True if measure() runs: for losses, or with a teacher, whose gradients need all logits of the chunk.
  bool measures() const { return s_.task != Task::gradients || s_.top_k > 0; }

  /// Returns the token index of row r of the current chunk.
  int64_t token(int64_t r) const { return tokens_[first_ + r]; }

  /// Copies the rows of x of the chunk's tokens to adjacent rows, and packs them into panels for the matmuls.
  void gather() {
    float* x = base_ + layout_.x;
    const int64_t width = layout_.pairs ? s_.width / 2 : s_.width;
    threads_.parallel_for(rows_, std::max<int64_t>(1, 16384 / s_.width), [&](Range range) {
      for (int64_t r = range.begin; r < range.end; ++r) {
        if (layout_.pairs) {
          std::memcpy(x + r * width, static_cast<const float*>(arrays_.x) + token(r) * width, row_bytes());
        } else {
          load_f32(s_.x, arrays_.x, token(r) * s_.width, s_.width, x + r * s_.width);
        }
      }
    });
    pack_panels(DType::f32, x, width, rows_, true, base_ + layout_.x_panels, nullptr, threads_);
    if (!has_gradients(s_)) return;
    if (!s_.frozen) pack_columns(x);
    for (int64_t r = 0; r < rows_; ++r) {
      const bool known = arrays_.labels[token(r)] < s_.vocab;
      const float dloss = s_.task == Task::both ? arrays_.dloss : arrays_.dlosses[token(r)];
      base_[layout_.factor + r] = known ? dloss : std::numeric_limits<float>::quiet_NaN();
      if (s_.task == Task::gradients) base_[layout_.lse + r] = arrays_.lse[token(r)];
    }
  }

  size_t row_bytes() const { return static_cast<size_t>(s_.width * dtype_bytes(s_.x)); }

  /// Returns the number of 32-bit words on the reduction axis of a matmul over the chunk's tokens: a word
  /// holds one token or, with pairs, two.
  int64_t num_terms() const { return layout_.pairs ? (rows_ + 1) / 2 : rows_; }

  /// Packs the chunk's x as the right operand of the weight gradient. With pairs, an odd last token is paired
  /// with zeros.
  void pack_columns(float* x) {
    float* columns = base_ + layout_.x_columns;
    if (!layout_.pairs) return pack_panels(DType::f32, x, rows_, s_.width, false, columns, nullptr, threads_);
    std::memset(x + rows_ * s_.width / 2, 0, row_bytes());
    float* joined = base_ + layout_.x_rows;
    join_rows(x, num_terms(), s_.width, joined, threads_);
    pack_panels(DType::f32, joined, num_terms(), s_.width, false, columns, nullptr, threads_);
  }

  float* local(int thread, int64_t at) const {
    return base_ + layout_.threads + thread * layout_.thread_floats + at;
  }
  float* of_part(int64_t part, int64_t at) const {
    return base_ + layout_.parts + part * layout_.part_floats + at;
  }

  /// Vocabulary rows [first, first + count), and their logits [count][logit_row] for the chunk's tokens.
  struct Tile {
    int64_t first;
    int64_t count;
    float* logits;
    const float* weight;  ///< f32, or pairs of bf16
  };

  /// Calls body(tile) for each tile of a part of the vocabulary.
  template <typename Body>
  void for_tiles(int64_t part, int thread, Body body) const {
    const Range rows = split_range(s_.vocab, static_cast<int>(layout_.num_parts), static_cast<int>(part));
    for (int64_t v = rows.begin; v < rows.end; v += kHeadTileRows) {
      Tile tile{
          .first = v, .count = std::min(kHeadTileRows, rows.end - v), .logits = nullptr, .weight = nullptr};
      tile.logits =
          layout_.keeps_logits ? base_ + layout_.logits + v * layout_.logit_row : local(thread, layout_.tile);
      tile.weight = layout_.pairs ? static_cast<const float*>(arrays_.weight) + v * s_.width / 2
                                  : as_f32(s_.weight, arrays_.weight, v * s_.width, tile.count * s_.width,
                                           local(thread, layout_.weight));
      body(tile);
    }
  }

  void compute_logits(int thread, const Tile& tile) const {
    const float* panels = base_ + layout_.x_panels;
    const int64_t width = layout_.pairs ? s_.width / 2 : s_.width;
    const BlockProduct product{.m = tile.count,
                               .n = rows_,
                               .k = width,
                               .a = tile.weight,
                               .a_row = width,
                               .a_k = 1,
                               .c = tile.logits,
                               .c_row = layout_.logit_row,
                               .packed_a = packs_a(rows_) ? local(thread, layout_.packed) : nullptr,
                               .pairs = layout_.pairs};
    multiply_blocks(product, panels);
    if (s_.softcap == 0) return;
    for (int64_t v = 0; v < tile.count; ++v)
      simd().cap_max(tile.logits + v * layout_.logit_row, rows_, s_.softcap);
  }

  /// Calls body(r, logit of the label) for each row r of the chunk whose label is in the tile.
  template <typename Body>
  void for_labels(const Tile& tile, Body body) const {
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t v = arrays_.labels[token(r)] - tile.first;
      if (v >= 0 && v < tile.count) body(r, tile.logits[v * layout_.logit_row + r]);
    }
  }

  /// Computes the losses and lse of the chunk's tokens.
  void measure() {
    float* of_label = base_ + layout_.of_label;
    std::fill_n(of_label, rows_, std::numeric_limits<float>::quiet_NaN());
    threads_.run_tasks(layout_.num_parts, s_.num_threads, [&](int64_t part, int thread) {
      std::fill_n(of_part(part, layout_.row_max), rows_, -std::numeric_limits<float>::infinity());
      std::fill_n(of_part(part, layout_.sum), rows_, 0.0F);
      for_tiles(part, thread, [&](const Tile& tile) {
        compute_logits(thread, tile);
        for_labels(tile, [&](int64_t r, float& logit) { of_label[r] = logit; });
        if (s_.top_k > 0) take_listed(tile);
        add_to_sums(part, thread, tile);
      });
    });
    if (s_.top_k > 0) return compare_with_teacher();
    for (int64_t r = 0; r < rows_; ++r) {
      const float lse = log_of_sums(r);
      base_[layout_.lse + r] = lse;
      write_loss(r, lse - of_label[r], lse);
    }
  }

  void write_loss(int64_t r, float loss, float lse) const {
    if (s_.task != Task::gradients) arrays_.losses[token(r)] = loss;
    if (s_.task == Task::losses) arrays_.lse[token(r)] = lse;
  }

  /// Calls body(r, k, logit) for each token k that the teacher lists for row r of the chunk and that is in
  /// the tile.
  template <typename Body>
  void for_listed(const Tile& tile, Body body) const {
    for (int64_t r = 0; r < rows_; ++r) {
      const int32_t* ids = arrays_.teacher_ids + token(r) * s_.top_k;
      for (int64_t k = std::lower_bound(ids, ids + s_.top_k, tile.first) - ids;
           k < s_.top_k && ids[k] < tile.first + tile.count; ++k)
        body(r, k, tile.logits[(ids[k] - tile.first) * layout_.logit_row + r]);
    }
  }

  /// Moves the logits of the teacher's tokens out of a tile, so that its sums contain only the tail.
  void take_listed(const Tile& tile) const {
    for_listed(tile, [&](int64_t r, int64_t k, float& logit) {
      base_[layout_.listed + r * s_.top_k + k] = logit;
      logit = ops::kListedLogit;
    });
  }

  /// Computes the losses of the chunk's tokens, and replaces the logits of the teacher's tokens by the
  /// gradients of the losses, without the term of the label. Sets lse to the logsumexp of the tail.
  void compare_with_teacher() {
    threads_.parallel_for(rows_, std::max<int64_t>(1, 4096 / s_.top_k), [&](Range range) {
      for (int64_t r = range.begin; r < range.end; ++r) {
        float* listed = base_ + layout_.listed + r * s_.top_k;
        const float tail = log_of_sums(r);
        const ops::DistillToken compared(s_.distill,
                                         {.logits = listed,
                                          .logps = arrays_.teacher_logps + token(r) * s_.top_k,
                                          .k = static_cast<int>(s_.top_k),
                                          .tail = tail,
                                          .has_tail = s_.top_k < s_.vocab},
                                         ops::DistillThread());
        write_loss(r, compared.loss(compared.lse() - base_[layout_.of_label + r]), compared.lse());
        if (s_.task == Task::losses) continue;
        base_[layout_.lse + r] = tail;
        base_[layout_.tail_gradient + r] = base_[layout_.factor + r] * compared.tail_slope();
        for (int64_t k = 0; k < s_.top_k; ++k)
          listed[k] = base_[layout_.factor + r] * compared.slope(static_cast<int>(k)) *
                      ops::cap_slope(listed[k], s_.softcap);
      }
    });
  }

  /// Updates a part's running maxima with a tile of logits, rescales its sums to them, then adds the tile's
  /// exponentials (online softmax).
  void add_to_sums(int64_t part, int thread, const Tile& tile) const {
    float* row_max = of_part(part, layout_.row_max);
    float* sum = of_part(part, layout_.sum);
    float* now = local(thread, layout_.next_max);
    std::copy_n(row_max, rows_, now);
    for (int64_t v = 0; v < tile.count; ++v) max_with(tile.logits + v * layout_.logit_row, now, rows_);
    simd().scaled_exp(row_max, now, sum, rows_, 0);
    std::copy_n(row_max, rows_, sum);
    std::copy_n(now, rows_, row_max);
    for (int64_t v = 0; v < tile.count; ++v)
      simd().add_exp(tile.logits + v * layout_.logit_row, row_max, sum, rows_);
  }

  float log_of_sums(int64_t r) const {
    float row_max = -std::numeric_limits<float>::infinity();
    for (int64_t p = 0; p < layout_.num_parts; ++p)
      row_max = std::max(row_max, of_part(p, layout_.row_max)[r]);
    double sum = 0;
    for (int64_t p = 0; p < layout_.num_parts; ++p) {
      const double part = static_cast<double>(of_part(p, layout_.sum)[r]);
      sum += part * std::exp(static_cast<double>(of_part(p, layout_.row_max)[r] - row_max));
    }
    return static_cast<float>(static_cast<double>(row_max) + std::log(sum));
  }

  /// Lists the most likely tokens of the chunk's tokens.
  void list_top() const {
    threads_.run_tasks(layout_.num_parts, s_.num_threads, [&](int64_t part, int thread) {
      for_tiles(part, thread, [&](const Tile& tile) { compute_logits(thread, tile); });
    });
    threads_.parallel_for(rows_, std::max<int64_t>(1, 4096 / s_.num_listed), [&](Range range) {
      for (int64_t r = range.begin; r < range.end; ++r) {
        list_top(base_ + layout_.logits + r, arrays_.top_ids + token(r) * s_.top_k,
                 arrays_.top_logps + token(r) * s_.top_k);
      }
    });
  }

  /// Lists the most likely tokens of a column of logits: keeps them sorted by logit, then sorts them by id.
  void list_top(const float* column, int32_t* ids, float* logps) const {
    const auto logit = [&](int64_t v) { return column[v * layout_.logit_row]; };
    float largest = logit(0);
    int64_t count = 0;
    for (int64_t v = 0; v < s_.num_listed; ++v) {
      largest = std::max(largest, logit(v));
      if (count == s_.top_k && !(logit(v) > logit(ids[count - 1]))) continue;
      int64_t at = count < s_.top_k ? count++ : count - 1;
      for (; at > 0 && logit(v) > logit(ids[at - 1]); --at) ids[at] = ids[at - 1];
      ids[at] = static_cast<int32_t>(v);
    }
    double sum = 0;
    for (int64_t v = 0; v < s_.num_listed; ++v) sum += std::exp(static_cast<double>(logit(v) - largest));
    const float lse = largest + static_cast<float>(std::log(sum));
    std::sort(ids, ids + s_.top_k);
    for (int64_t k = 0; k < s_.top_k; ++k) logps[k] = logit(ids[k]) - lse;
  }

  /// Adds the chunk's contribution to dweight and writes the chunk's rows of dx.
  void differentiate() {
    threads_.run_tasks(layout_.num_parts, s_.num_threads, [&](int64_t part, int thread) {
      std::fill_n(of_part(part, layout_.dx), rows_ * s_.width, 0.0F);
      for_tiles(part, thread, [&](const Tile& tile) {
        if (!layout_.keeps_logits) compute_logits(thread, tile);
        logits_to_cotangents(tile);
        if (layout_.pairs) round_cotangents(thread, tile);
        if (!s_.frozen) add_weight_gradient(thread, tile);
        add_input_gradient(part, thread, tile);
      });
    });
    threads_.parallel_for(rows_, std::max<int64_t>(1, 16384 / s_.width), [&](Range range) {
      for (int64_t r = range.begin; r < range.end; ++r) {
        float* sum = of_part(0, layout_.dx) + r * s_.width;
        for (int64_t p = 1; p < layout_.num_parts; ++p)
          add_row(of_part(p, layout_.dx) + r * s_.width, sum, s_.width);
        store_f32(s_.x, sum, arrays_.dx, token(r) * s_.width, s_.width);
      }
    });
  }

  /// Replaces a tile's logits by their gradients: factor * (softmax - one-hot label), times the derivative of
  /// the soft cap. With a teacher, the softmax is that of the tail, and the gradients of listed tokens
  /// are copied from compare_with_teacher().
  void logits_to_cotangents(const Tile& tile) const {
    const float* factor = base_ + layout_.factor;
    float* of_label = base_ + layout_.of_label;
    const float share = s_.top_k > 0 ? 1 - s_.distill.weight : 1;
    for_labels(tile, [&](int64_t r, float& logit) {
      of_label[r] = share * factor[r] * ops::cap_slope(s_.top_k > 0 ? of_label[r] : logit, s_.softcap);
    });
    const float* factors = s_.top_k > 0 ? base_ + layout_.tail_gradient : factor;
    for (int64_t v = 0; v < tile.count; ++v) {
      prefetch_gradient(tile.first + v);
      simd().scaled_exp(tile.logits + v * layout_.logit_row, base_ + layout_.lse, factors, rows_, s_.softcap);
    }
    if (s_.top_k > 0) {
      for_listed(tile, [&](int64_t r, int64_t k, float& gradient) {
        gradient = base_[layout_.listed + r * s_.top_k + k];
      });
    }
    for_labels(tile, [&](int64_t r, float& logit) { logit -= of_label[r]; });
  }

  /// Prefetches row v of dweight, to which the next matmul adds; since the previous chunk it has been evicted
  /// from the caches.
  void prefetch_gradient(int64_t v) const {
    if (first_ == 0 || s_.frozen) return;
    const float* row = arrays_.dweight + v * s_.width;
    for (int64_t c = 0; c < s_.width; c += 16) __builtin_prefetch(row + c, 1);
  }

  /// Rounds a tile's gradients of logits to bf16, in two layouts: words with elements of two adjacent tokens
  /// (for dweight), and words with elements of two adjacent vocabulary rows (for dx). A missing second row
  /// counts as zero.
  void round_cotangents(int thread, const Tile& tile) const {
    const int64_t row = layout_.logit_row;
    auto* rounded = reinterpret_cast<uint16_t*>(local(thread, layout_.rounded));
    for (int64_t v = 0; v < tile.count; ++v) {
      store_f32(DType::bf16, tile.logits + v * row, rounded, v * row, rows_);
      rounded[v * row + rows_] = 0;
    }
    if (tile.count % 2 != 0) std::fill_n(rounded + tile.count * row, rows_, uint16_t{0});
    join_rows(rounded, (tile.count + 1) / 2, row, local(thread, layout_.rounded_pairs));
  }

  void add_weight_gradient(int thread, const Tile& tile) const {
    const float* panels = base_ + layout_.x_columns;
    const int64_t terms = num_terms();
    const BlockProduct product{.m = tile.count,
                               .n = s_.width,
                               .k = terms,
                               .a = layout_.pairs ? local(thread, layout_.rounded) : tile.logits,
                               .a_row = layout_.pairs ? layout_.logit_row / 2 : layout_.logit_row,
                               .a_k = 1,
                               .c = arrays_.dweight + tile.first * s_.width,
                               .c_row = s_.width,
                               .packed_a = packs_a(s_.width) ? local(thread, layout_.packed) : nullptr,
                               .accumulate = first_ > 0,
                               .pairs = layout_.pairs};
    multiply_blocks(product, panels);
  }

  void add_input_gradient(int64_t part, int thread, const Tile& tile) const {
    float* panel = local(thread, layout_.panel);
    const BlockProduct product{.m = rows_,
                               .n = s_.width,
                               .k = layout_.pairs ? (tile.count + 1) / 2 : tile.count,
                               .a = layout_.pairs ? local(thread, layout_.rounded_pairs) : tile.logits,
                               .a_row = 1,
                               .a_k = layout_.logit_row,
                               .c = of_part(part, layout_.dx),
                               .c_row = s_.width,
                               .packed_a = packs_a(s_.width) ? local(thread, layout_.packed) : nullptr,
                               .accumulate = true,
                               .pairs = layout_.pairs};
    multiply_blocks(product, kPanel, [&](int64_t p, int64_t depth, int64_t j, int64_t columns) {
      for (int64_t v = 0; v < depth; ++v) {
        if (layout_.pairs) {
          join_weights(tile, 2 * (p + v), j, columns, panel + v * kPanel);
        } else {
          std::copy_n(tile.weight + (p + v) * s_.width + j, columns, panel + v * kPanel);
        }
      }
      return panel;
    });
  }

  /// Joins columns [j, j + count) of rows v and v + 1 of a tile's weight into pairs. A last row without
  /// successor is paired with itself, which adds nothing, because the second gradient of the logits is zero.
  void join_weights(const Tile& tile, int64_t v, int64_t j, int64_t count, float* words) const {
    const auto* first = reinterpret_cast<const uint16_t*>(tile.weight) + v * s_.width + j;
    join_row(first, v + 1 < tile.count ? first + s_.width : first, count, words);
  }

  const HeadSpec& s_;
  const HeadLayout layout_;
  const Head::Arrays& arrays_;
  float* base_;
  ThreadPool& threads_;
  int32_t* tokens_;
  int64_t num_tokens_ = 0;
  int64_t first_ = 0;  ///< index in tokens_ of the chunk's first token
  int64_t rows_ = 0;   ///< number of tokens in the chunk
};

}  // namespace

Head::Head(const HeadSpec& spec) : spec_(spec) {}

int64_t Head::workspace_bytes() const {
  return HeadLayout(spec_).total * static_cast<int64_t>(sizeof(float));
}

void Head::run(const Arrays& arrays, std::byte* workspace, ThreadPool& threads) const {
  HeadRun(spec_, arrays, workspace, threads).run();
}

}  // namespace hearth::cpu
