// FlashAttention-2 on the CPU (Dao 2023, arXiv 2307.08691). Queries of a head are processed in tiles of 56. A
// strip is the tile's scores against up to 256 keys, which fits in a core's L2 cache. Each strip is computed
// by one matmul, converted to softmax weights, and multiplied by the values before the next strip, so that
// the time x time scores are never stored. A running maximum and a running sum per query keep the softmax
// exact: when a later strip has a larger score, earlier sums are scaled by the exponential of the difference.
// The backward pass recomputes the weights from lse, the logarithm of each query's sum of exponentials. Keys
// and values are packed once per head into the panels that the matmul reads. If the CPU multiplies pairs of
// bf16 (Products::pairs), weights and their gradients are rounded to bf16; sums stay f32.
#include "ops/lm/attention_cpu.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/convert.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd/simd.h"
#include "ops/lm/attention_rows_cpu.h"

namespace hearth::cpu {
namespace {

/// Number of queries per tile: four times 14, the rows of the largest register tile of the matmul.
constexpr int64_t kQueries = 56;
/// Number of queries per matmul of weights and values; the matmul covers the keys that any of them sees.
constexpr int64_t kHalf = 28;
/// Maximum number of keys per strip of scores, and the row stride in floats. A strip has 60 KB; the padded
/// stride avoids conflicts between cache sets.
constexpr int64_t kKeys = 256;
constexpr int64_t kStrip = kKeys + 16;

Products products_of(const AttentionSpec& s) { return Products::of(s.dtype, s.head_size); }

/// A tile of queries and the range [low, high) of keys that each one sees.
struct Tile {
  int64_t first;
  int64_t rows;
  int64_t low[kQueries];
  int64_t high[kQueries];

  Tile(const AttentionSpec& spec, int64_t begin, const int32_t* starts) : first(begin) {
    rows = std::min(kQueries, spec.time - begin);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t t = begin + r;
      high[r] = spec.causal ? t + 1 : spec.time;
      low[r] = starts == nullptr ? 0 : std::clamp<int64_t>(starts[t], 0, t);
      if (spec.window > 0) low[r] = std::max(low[r], t - spec.window + 1);
    }
  }
  Range keys(int64_t begin, int64_t end) const {
    return {*std::min_element(low + begin, low + end), *std::max_element(high + begin, high + end)};
  }
  /// Returns the smallest range of rows that contains all rows that see a key of [begin, end).
  Range rows_that_see(int64_t begin, int64_t end) const {
    const auto sees = [&](int64_t r) { return low[r] < end && high[r] > begin; };
    Range found{0, rows};
    while (found.begin < found.end && !sees(found.begin)) ++found.begin;
    while (found.end > found.begin && !sees(found.end - 1)) --found.end;
    return found;
  }
};

/// Splits a range of keys into strips of at most kKeys keys, which begin at multiples of kPanel and have
/// about equal lengths. Calls body(keys of the strip).
template <typename Body>
void for_strips(Range keys, Body body) {
  const int64_t begin = keys.begin / kPanel * kPanel;
  const int64_t panels = (keys.end - begin + kPanel - 1) / kPanel;
  const auto strips = static_cast<int>((panels * kPanel + kKeys - 1) / kKeys);
  for (int s = 0; s < strips; ++s) {
    const Range part = split_range(panels, strips, s);
    body(Range{begin + part.begin * kPanel, std::min(begin + part.end * kPanel, keys.end)});
  }
}

/// Calls body(first key, number of keys, rows) for each panel of kPanel keys of a strip; `rows` is the range
/// of queries that see any of them. Skips panels that no query sees.
template <typename Body>
void for_panels(const Tile& tile, Range keys, Body body) {
  for (int64_t j = keys.begin; j < keys.end; j += kPanel) {
    const int64_t end = std::min(j + kPanel, keys.end);
    const Range rows = tile.rows_that_see(j, end);
    if (rows.size() > 0) body(j, end - j, rows);
  }
}

/// Computes the unscaled scores strip[r][key] = queries[r] . key for the keys that query r may see.
void scores(Products products, const Tile& tile, Range keys, const float* queries, int64_t query_row,
            const float* panels, int64_t size, float* strip) {
  const int64_t words = products.words(size);
  for_panels(tile, keys, [&](int64_t j, int64_t count, Range rows) {
    products.multiply()(rows.size(), count, words, queries + rows.begin * query_row, query_row, 1,
                        panels + j * words, kPanel, strip + rows.begin * kStrip + j - keys.begin, kStrip,
                        false);
  });
}

/// A strip of weights as an operand of the matmuls, in the word format of Products. If words are pairs of
/// bf16, the strip is rounded and zero-padded to an even number of keys and rows.
struct Weights {
  const float* by_keys;  ///< [rows][key_row]; in bf16 a 32-bit word holds the weights of two adjacent keys
  int64_t key_row;
  const float* by_rows;  ///< [rows][kStrip]; in bf16 a 32-bit word holds the weights of two adjacent rows
};
struct RoundedStrip {
  float* by_keys;
  float* by_rows;
};
Weights weights_of(Products products, const float* strip, int64_t rows, int64_t keys, RoundedStrip rounded,
                   bool by_rows) {
  if (!products.pairs) return {strip, kStrip, strip};
  auto* to = reinterpret_cast<uint16_t*>(rounded.by_keys);
  for (int64_t r = 0; r < rows; ++r) {
    store_f32(DType::bf16, strip + r * kStrip, to, r * kStrip, keys);
    to[r * kStrip + keys] = 0;
  }
  if (by_rows) join_tokens(to, kStrip, rows, keys, rounded.by_rows, kStrip);
  return {rounded.by_keys, kStrip / 2, rounded.by_rows};
}

/// Adds the sum over keys of strip[r][key] * values[key][c] to out[r][c]; `columns` are the values packed by
/// pack_columns().
void weigh_values(Products products, const Tile& tile, Range keys, const Weights& weights,
                  const float* columns, int64_t time, int64_t size, float* out, int64_t out_row) {
  const int64_t first = products.words(keys.begin), column_words = products.words(time);
  for (int64_t r = 0; r < tile.rows; r += kHalf) {
    const int64_t end = std::min(r + kHalf, tile.rows);
    const Range seen = tile.keys(r, end);
    // With pairs, the first word may include a key that no query sees; its weight is 0.
    const int64_t low = std::max(seen.begin, keys.begin) / (products.pairs ? 2 : 1);
    const int64_t depth = products.words(std::min(seen.end, keys.end)) - low;
    if (depth <= 0) continue;
    for (int64_t c = 0; c < size; c += kPanel) {
      products.multiply()(end - r, std::min(kPanel, size - c), depth,
                          weights.by_keys + r * weights.key_row + low - first, weights.key_row, 1,
                          columns + c * column_words + low * kPanel, kPanel, out + r * out_row + c, out_row,
                          true);
    }
  }
}

/// Adds the sum over queries r of strip[r][key] * rows_of[r][c] to out[key][c]; with pairs, a word of rows_of
/// holds two adjacent rows.
void weigh_rows(Products products, const Tile& tile, Range keys, const Weights& weights, const float* rows_of,
                int64_t row, int64_t size, float* out) {
  for_panels(tile, keys, [&](int64_t j, int64_t count, Range rows) {
    const int64_t low = rows.begin / (products.pairs ? 2 : 1);
    products.multiply()(count, size, products.words(rows.end) - low,
                        weights.by_rows + low * kStrip + j - keys.begin, 1, kStrip, rows_of + low * row, row,
                        out + j * size, size, true);
  });
}

/// Zeroes the elements of a strip's row whose keys query r does not see. Returns the range of the other
/// elements.
Range visible(const Tile& tile, int64_t r, Range keys, float* row) {
  const int64_t low = std::clamp(tile.low[r], keys.begin, keys.end) - keys.begin;
  const int64_t high = std::clamp(tile.high[r], keys.begin + low, keys.end) - keys.begin;
  std::fill_n(row, low, 0.0F);
  std::fill(row + high, row + keys.size(), 0.0F);
  return {low, high};
}

/// Applies scale and bias to the scores of a strip, or only returns the scale if that suffices. Returns the
/// factor that the caller must still apply.
float scale_scores(const AttentionSpec& spec, const Tile& tile, Range keys, const float* bias, float* strip) {
  if (bias == nullptr && spec.softcap == 0 && spec.scale > 0) return spec.scale;
  for (int64_t r = 0; r < tile.rows; ++r) {
    float* row = strip + r * kStrip;
    scale_row(row, spec.scale, row, keys.size());
    if (bias != nullptr) add_row(bias + (tile.first + r) * spec.time + keys.begin, row, keys.size());
  }
  return 1;
}

int64_t query_row(int64_t size) { return round_up(size, 16) + 16; }

/// Assigns parts of a thread's workspace (sizes in floats). With a null base, only computes the total size.
class Pieces {
 public:
  float* take(int64_t count) {
    float* at = base_ == nullptr ? nullptr : base_ + next_;
    next_ += round_up(count, 16);
    return at;
  }
  int64_t count() const { return next_; }
  explicit Pieces(float* base) : base_(base) {}

 private:
  float* base_;
  int64_t next_ = 0;
};

RoundedStrip rounded_strip(Products products, Pieces& pieces, bool by_rows) {
  if (!products.pairs) return {};
  return {pieces.take(kQueries * kStrip / 2), by_rows ? pieces.take(kQueries / 2 * kStrip) : nullptr};
}

struct ForwardSpace {
  float *rows, *keys, *values, *q, *out, *strip;
  RoundedStrip rounded;
  int64_t total;
  ForwardSpace(const AttentionSpec& s, float* base) {
    Pieces pieces(base);
    const Products products = products_of(s);
    const int64_t words = products.words(s.time), columns = round_up(s.head_size, kPanel);
    rows = pieces.take(words * s.head_size);
    keys = pieces.take(round_up(s.time, kPanel) * products.words(s.head_size));
    values = pieces.take(words * columns);
    q = pieces.take(kQueries * query_row(s.head_size));
    out = pieces.take(kQueries * query_row(s.head_size));
    strip = pieces.take(kQueries * kStrip);
    rounded = rounded_strip(products, pieces, false);
    total = pieces.count();
  }
};

/// Rows of a tile of q or dout in the two word formats of Products: a word of pairs holds adjacent elements
/// of a row (words), or elements of two adjacent rows (joined).
struct TileRows {
  float* words = nullptr;
  float* joined = nullptr;
};
struct BackwardSpace {
  float *rows, *keys, *values, *key_columns, *dk, *dv, *dq, *p, *ds;
  TileRows q, dout;
  RoundedStrip rounded;
  int64_t total;
  BackwardSpace(const AttentionSpec& s, float* base) {
    Pieces pieces(base);
    const Products products = products_of(s);
    const int64_t tile = kQueries * query_row(s.head_size), words = products.words(s.time);
    const int64_t panels = round_up(s.time, kPanel) * products.words(s.head_size);
    rows = pieces.take(words * s.head_size);
    keys = pieces.take(panels);
    values = pieces.take(panels);
    key_columns = pieces.take(words * round_up(s.head_size, kPanel));
    dk = pieces.take(s.time * s.head_size);
    dv = pieces.take(s.time * s.head_size);
    for (TileRows* rows_of : {&q, &dout}) {
      rows_of->words = pieces.take(tile);
      rows_of->joined = products.pairs ? pieces.take(tile / 2) : rows_of->words;
    }
    dq = pieces.take(tile);
    p = pieces.take(kQueries * kStrip);
    ds = pieces.take(kQueries * kStrip);
    rounded = rounded_strip(products, pieces, true);
    total = pieces.count();
  }
};

HeadRows query_head(const AttentionSpec& s, int64_t sample, int64_t head) {
  return {s.dtype, s.heads * s.head_size, head * s.head_size, s.head_size, sample * s.time};
}
HeadRows key_head(const AttentionSpec& s, int64_t sample, int64_t head) {
  return {s.dtype, s.kv_heads * s.head_size, head * s.head_size, s.head_size, sample * s.time};
}
/// Calls body(tile) for every tile of queries of a sample.
template <typename Body>
void for_tiles(const AttentionSpec& s, const int32_t* starts, int64_t sample, Body body) {
  const int32_t* local = starts == nullptr ? nullptr : starts + sample * s.time;
  for (int64_t i = 0; i < s.time; i += kQueries) body(Tile(s, i, local));
}

/// Computes the forward pass of one query head of a sample, with an online softmax over strips.
struct ForwardHead {
  const AttentionSpec& spec;
  const Attention::Forward& arrays;
  const ForwardSpace& space;
  int64_t sample;
  int64_t head;
  Products products = products_of(spec);

  void run() const {
    const HeadRows keys = key_head(spec, sample, head * spec.kv_heads / spec.heads);
    keys.prefetch(arrays.k, spec.time);
    pack_keys(keys.view(arrays.k, spec.time, products, space.rows), spec.time, products.words(spec.head_size),
              space.keys);
    keys.prefetch(arrays.v, spec.time);
    pack_columns(keys.joined(arrays.v, spec.time, products, space.rows), products.words(spec.time),
                 spec.head_size, space.values);
    for_tiles(spec, arrays.starts, sample, [&](const Tile& tile) { run_tile(tile); });
  }

 private:
  void run_tile(const Tile& tile) const {
    const HeadRows queries = query_head(spec, sample, head);
    const int64_t row = query_row(spec.head_size);
    const float* bias = arrays.bias == nullptr ? nullptr : arrays.bias + head * spec.time * spec.time;
    float running_max[kQueries], sum[kQueries];
    std::fill_n(running_max, kQueries, -std::numeric_limits<float>::infinity());
    std::fill_n(sum, kQueries, 0.0F);
    std::fill_n(space.out, tile.rows * row, 0.0F);
    queries.load_words(arrays.q, tile.first, tile.rows, products, space.q, row);
    for_strips(tile.keys(0, tile.rows), [&](Range keys) {
      scores(products, tile, keys, space.q, row, space.keys, spec.head_size, space.strip);
      const float remaining_scale = scale_scores(spec, tile, keys, bias, space.strip);
      for (int64_t r = 0; r < tile.rows; ++r) add_row(tile, r, keys, remaining_scale, running_max[r], sum[r]);
      const Weights weights = weights_of(products, space.strip, tile.rows, keys.size(), space.rounded, false);
      weigh_values(products, tile, keys, weights, space.values, spec.time, spec.head_size, space.out, row);
    });
    for (int64_t r = 0; r < tile.rows; ++r) {
      float* out = space.out + r * row;
      scale_row(out, 1 / sum[r], out, spec.head_size);
      arrays.lse[(sample * spec.time + tile.first + r) * spec.heads + head] =
          running_max[r] + std::log(sum[r]);
    }
    queries.store(space.out, row, tile.first, tile.rows, arrays.out);
  }

  /// Replaces row r of the strip by exponentials of the scores minus the new running maximum, and rescales
  /// earlier sums to that maximum.
  void add_row(const Tile& tile, int64_t r, Range keys, float factor, float& running_max, float& sum) const {
    float* row = space.strip + r * kStrip;
    const Range seen = visible(tile, r, keys, row);
    if (seen.size() == 0) return;
    const float now =
        std::max(running_max, factor * simd().cap_max(row + seen.begin, seen.size(), spec.softcap));
    const float total = simd().exp_sum(row + seen.begin, factor, now, row + seen.begin, seen.size());
    if (sum != 0 && now != running_max) {
      const float before = std::exp(running_max - now);
      sum *= before;
      float* out = space.out + r * query_row(spec.head_size);
      scale_row(out, before, out, spec.head_size);
    }
    running_max = now;
    sum += total;
  }
};

/// Computes the backward pass of one key head of a sample, over all query heads that read it.
struct BackwardHead {
  const AttentionSpec& spec;
  const Attention::Backward& arrays;
  const BackwardSpace& space;
  int64_t sample;
  int64_t kv_head;
  Products products = products_of(spec);

  void run() const {
    const HeadRows keys = key_head(spec, sample, kv_head);
    const int64_t time = spec.time, size = spec.head_size, words = products.words(size);
    keys.prefetch(arrays.v, time);
    pack_keys(keys.view(arrays.v, time, products, space.rows), time, words, space.values);
    keys.prefetch(arrays.k, time);
    pack_keys(keys.view(arrays.k, time, products, space.rows), time, words, space.keys);
    pack_columns(keys.joined(arrays.k, time, products, space.rows), products.words(time), size,
                 space.key_columns);
    std::fill_n(space.dk, time * size, 0.0F);
    std::fill_n(space.dv, time * size, 0.0F);
    const int64_t group = spec.heads / spec.kv_heads;
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
      for_tiles(spec, arrays.starts, sample, [&](const Tile& tile) { run_tile(tile, head); });
    scale_row(space.dk, spec.scale, space.dk, time * size);
    keys.store(space.dk, size, 0, time, arrays.dk);
    keys.store(space.dv, size, 0, time, arrays.dv);
  }

 private:
  void load_tile(const HeadRows& rows, const void* data, const Tile& tile, TileRows to) const {
    const int64_t row = query_row(spec.head_size);
    rows.load_words(data, tile.first, tile.rows, products, to.words, row);
    if (products.pairs) rows.load_joined(data, tile.first, tile.rows, to.joined, row);
  }

  /// Computes delta[r] = dout[r] . out[r].
  void dot_outputs(const HeadRows& queries, const Tile& tile, float* delta) const {
    const int64_t size = spec.head_size, row = query_row(size);
    queries.load(arrays.out, tile.first, tile.rows, space.dq, row);
    for (int64_t r = 0; r < tile.rows; ++r) {
      const float* dout = space.dout.words + r * row;
      if (products.pairs) {
        queries.load(arrays.dout, tile.first + r, 1, space.p, row);
        dout = space.p;
      }
      simd().dot(1, 1, size, dout, row, space.dq + r * row, row, delta + r, 1, 1);
    }
  }

  void run_tile(const Tile& tile, int64_t head) const {
    const HeadRows queries = query_head(spec, sample, head);
    const int64_t size = spec.head_size, row = query_row(size);
    const float* bias = arrays.bias == nullptr ? nullptr : arrays.bias + head * spec.time * spec.time;
    load_tile(queries, arrays.q, tile, space.q);
    load_tile(queries, arrays.dout, tile, space.dout);
    float delta[kQueries];
    dot_outputs(queries, tile, delta);
    std::fill_n(space.dq, tile.rows * row, 0.0F);
    for_strips(tile.keys(0, tile.rows), [&](Range keys) {
      scores(products, tile, keys, space.q.words, row, space.keys, size, space.p);
      const float remaining_scale = scale_scores(spec, tile, keys, bias, space.p);
      scores(products, tile, keys, space.dout.words, row, space.values, size, space.ds);
      for (int64_t r = 0; r < tile.rows; ++r)
        softmax_backward_row(tile, r, keys, head, remaining_scale, delta[r]);
      const Weights p = weights_of(products, space.p, tile.rows, keys.size(), space.rounded, true);
      weigh_rows(products, tile, keys, p, space.dout.joined, row, size, space.dv);
      const Weights ds = weights_of(products, space.ds, tile.rows, keys.size(), space.rounded, true);
      weigh_rows(products, tile, keys, ds, space.q.joined, row, size, space.dk);
      weigh_values(products, tile, keys, ds, space.key_columns, spec.time, size, space.dq, row);
    });
    for (int64_t r = 0; r < tile.rows; ++r)
      scale_row(space.dq + r * row, spec.scale, space.dq + r * row, size);
    queries.store(space.dq, row, tile.first, tile.rows, arrays.dq);
  }

  /// Replaces row r of p (scores) by probabilities, and row r of ds (gradients of probabilities) by gradients
  /// of scores.
  void softmax_backward_row(const Tile& tile, int64_t r, Range keys, int64_t head, float factor,
                            float delta) const {
    float* p = space.p + r * kStrip;
    float* ds = space.ds + r * kStrip;
    visible(tile, r, keys, ds);
    const Range seen = visible(tile, r, keys, p);
    const float lse = arrays.lse[(sample * spec.time + tile.first + r) * spec.heads + head];
    simd().softmax_back(p + seen.begin, ds + seen.begin, seen.size(), factor, lse, delta, spec.softcap);
  }
};

int64_t bytes(int64_t floats, int num_threads) {
  return floats * num_threads * static_cast<int64_t>(sizeof(float));
}

}  // namespace

Attention::Attention(const AttentionSpec& spec) : spec_(spec) {}

int64_t Attention::forward_bytes() const {
  return bytes(ForwardSpace(spec_, nullptr).total, spec_.num_threads);
}
int64_t Attention::backward_bytes() const {
  return bytes(BackwardSpace(spec_, nullptr).total, spec_.num_threads);
}

void Attention::forward(const Forward& arrays, std::byte* workspace, ThreadPool& threads) const {
  const int64_t floats = ForwardSpace(spec_, nullptr).total;
  threads.run_tasks(spec_.batch * spec_.heads, spec_.num_threads, [&](int64_t task, int thread) {
    const ForwardSpace space(spec_, reinterpret_cast<float*>(workspace) + thread * floats);
    ForwardHead{spec_, arrays, space, task / spec_.heads, task % spec_.heads}.run();
  });
}

void Attention::backward(const Backward& arrays, std::byte* workspace, ThreadPool& threads) const {
  const int64_t floats = BackwardSpace(spec_, nullptr).total;
  threads.run_tasks(spec_.batch * spec_.kv_heads, spec_.num_threads, [&](int64_t task, int thread) {
    const BackwardSpace space(spec_, reinterpret_cast<float*>(workspace) + thread * floats);
    BackwardHead{spec_, arrays, space, task / spec_.kv_heads, task % spec_.kv_heads}.run();
  });
}

}  // namespace hearth::cpu
