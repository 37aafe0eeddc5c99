// A head's queries are taken 56 at a time. Their scores against 256 keys fit a core's second-level cache, so
// each strip of scores is made by one matmul, turned into weights, and multiplied by its values before the
// next strip is made: no more than a strip exists, whatever the length of the text (FlashAttention-2, Dao
// 2023, arXiv 2307.08691). A running maximum and a running sum per query make the softmax exact: when a later
// strip has a larger score, what was summed so far is scaled down by the exponential of the difference. The
// backward pass makes the weights again from the logarithm of that sum. Keys and values are packed once per
// head into the panels that the matmul reads.
#include "ops/lm/attention_cpu.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd/simd.h"

namespace hearth::cpu {
namespace {

/// Queries of a tile: four blocks of 14 rows, the rows of the widest register tile.
constexpr int64_t kQueries = 56;
/// Queries whose keys are cut off together in products over keys.
constexpr int64_t kHalf = 28;
/// Keys of a strip of scores: a strip is 60 KB, and its rows do not compete for cache sets.
constexpr int64_t kKeys = 256;
constexpr int64_t kStrip = kKeys + 16;

/// Short rows far apart are not foreseen by the processor: they are fetched so many rows ahead.
constexpr int64_t kAhead = 12;

HEARTH_CLONES void copy_rows(const float* in, int64_t in_row, float factor, float* out, int64_t out_row,
                             int64_t rows, int64_t size) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = in + r * in_row;
    float* to = out + r * out_row;
    for (int64_t c = 0; c < size; c += 16) __builtin_prefetch(from + kAhead * in_row + c);
    for (int64_t c = 0; c < size; ++c) to[c] = factor * from[c];
  }
}

/// The same for rows of a panel, whose width the compiler knows.
HEARTH_CLONES void copy_panel(const float* in, int64_t in_row, float* out, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < kPanel; ++c) out[r * kPanel + c] = in[r * in_row + c];
  }
}

/// A head's part of an array [tokens, num_heads * head_size].
struct HeadRows {
  DType dtype;
  int64_t width;   ///< of a token
  int64_t column;  ///< where the head begins
  int64_t size;
  int64_t first;  ///< token 0 of the row

  /// All rows, as they lie when they are f32, else copied to `scratch`.
  struct View {
    const float* data;
    int64_t row;
  };
  View view(const void* data, int64_t count, float* scratch) const {
    if (dtype == DType::f32) return {static_cast<const float*>(data) + first * width + column, width};
    load(data, 0, count, 1, scratch, size);
    return {scratch, size};
  }
  void load(const void* data, int64_t row, int64_t count, float factor, float* out, int64_t out_row) const {
    const int64_t at = (first + row) * width + column;
    if (dtype == DType::f32) {
      return copy_rows(static_cast<const float*>(data) + at, width, factor, out, out_row, count, size);
    }
    for (int64_t r = 0; r < count; ++r) {
      load_f32(dtype, data, at + r * width, size, out + r * out_row);
      if (factor != 1) scale_row(out + r * out_row, factor, out + r * out_row, size);
    }
  }
  void prefetch(const void* data, int64_t count) const {
    const int64_t bytes = dtype_bytes(dtype);
    const auto* from = static_cast<const char*>(data) + (first * width + column) * bytes;
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t b = 0; b < size * bytes; b += 64) __builtin_prefetch(from + r * width * bytes + b);
    }
  }
  void store(const float* in, int64_t in_row, int64_t row, int64_t count, void* data) const {
    for (int64_t r = 0; r < count; ++r)
      store_f32(dtype, in + r * in_row, data, (first + row + r) * width + column, size);
  }
};

/// Panels [time / 32][head_size][32] of the transpose of rows [time][head_size].
void pack_keys(HeadRows::View rows, int64_t time, int64_t size, float* panels) {
  for (int64_t j = 0; j < time; j += kPanel) {
    simd().transpose(rows.data + j * rows.row, rows.row, std::min(kPanel, time - j), size, panels + j * size,
                     kPanel);
  }
}
/// Panels [head_size / 32][time][32] of rows [time][head_size].
void pack_columns(HeadRows::View rows, int64_t time, int64_t size, float* panels) {
  for (int64_t c = 0; c < size; c += kPanel) {
    const int64_t columns = std::min(kPanel, size - c);
    if (columns == kPanel) {
      copy_panel(rows.data + c, rows.row, panels + c * time, time);
    } else {
      copy_rows(rows.data + c, rows.row, 1, panels + c * time, kPanel, time, columns);
    }
  }
}

/// The queries of a tile and the keys that each sees: [low, high).
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
  /// The rows between which all that see a key of [begin, end) lie.
  Range rows_that_see(int64_t begin, int64_t end) const {
    const auto sees = [&](int64_t r) { return low[r] < end && high[r] > begin; };
    Range found{0, rows};
    while (found.begin < found.end && !sees(found.begin)) ++found.begin;
    while (found.end > found.begin && !sees(found.end - 1)) --found.end;
    return found;
  }
};

/// Calls body(keys) for strips of at most kKeys keys that begin at panels and are about equally long.
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

/// Calls body(first key, keys, rows) for the panels of a strip.
template <typename Body>
void for_panels(const Tile& tile, Range keys, Body body) {
  for (int64_t j = keys.begin; j < keys.end; j += kPanel) {
    const int64_t end = std::min(j + kPanel, keys.end);
    const Range rows = tile.rows_that_see(j, end);
    if (rows.size() > 0) body(j, end - j, rows);
  }
}

/// strip[r][key] = queries[r] . key.
void scores(const Tile& tile, Range keys, const float* queries, int64_t query_row, const float* panels,
            int64_t size, float* strip) {
  for_panels(tile, keys, [&](int64_t j, int64_t count, Range rows) {
    simd().gemm(rows.size(), count, size, queries + rows.begin * query_row, query_row, 1, panels + j * size,
                kPanel, strip + rows.begin * kStrip + j - keys.begin, kStrip, false);
  });
}

/// out[r][c] += sum over keys of strip[r][key] values[key][c].
void weigh_values(const Tile& tile, Range keys, const float* strip, const float* columns, int64_t time,
                  int64_t size, float* out, int64_t out_row) {
  for (int64_t r = 0; r < tile.rows; r += kHalf) {
    const int64_t end = std::min(r + kHalf, tile.rows);
    const Range seen = tile.keys(r, end);
    const int64_t low = std::max(seen.begin, keys.begin);
    const int64_t depth = std::min(seen.end, keys.end) - low;
    if (depth <= 0) continue;
    for (int64_t c = 0; c < size; c += kPanel) {
      simd().gemm(end - r, std::min(kPanel, size - c), depth, strip + r * kStrip + low - keys.begin, kStrip,
                  1, columns + c * time + low * kPanel, kPanel, out + r * out_row + c, out_row, true);
    }
  }
}

/// out[key][c] += sum over rows of strip[r][key] rows[r][c].
void weigh_rows(const Tile& tile, Range keys, const float* strip, const float* rows_of, int64_t row,
                int64_t size, float* out) {
  for_panels(tile, keys, [&](int64_t j, int64_t count, Range rows) {
    simd().gemm(count, size, rows.size(), strip + rows.begin * kStrip + j - keys.begin, 1, kStrip,
                rows_of + rows.begin * row, row, out + j * size, size, true);
  });
}

/// The keys of a strip that row r sees, counted from the strip's first; what it does not see is set to 0.
Range visible(const Tile& tile, int64_t r, Range keys, float* row) {
  const int64_t low = std::clamp(tile.low[r], keys.begin, keys.end) - keys.begin;
  const int64_t high = std::clamp(tile.high[r], keys.begin + low, keys.end) - keys.begin;
  std::fill_n(row, low, 0.0F);
  std::fill(row + high, row + keys.size(), 0.0F);
  return {low, high};
}

/// strip[r][key] += bias[query][key] of one head.
void add_bias(const Tile& tile, Range keys, const float* bias, int64_t time, float* strip) {
  for (int64_t r = 0; r < tile.rows; ++r)
    add_row(bias + (tile.first + r) * time + keys.begin, strip + r * kStrip, keys.size());
}

int64_t query_row(int64_t size) { return round_up(size, 16) + 16; }

/// A thread's pieces of the workspace, in floats.
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

struct ForwardSpace {
  float *rows, *keys, *values, *q, *out, *strip;
  int64_t total;
  ForwardSpace(const AttentionSpec& s, float* base) {
    Pieces pieces(base);
    rows = pieces.take(s.time * s.head_size);
    keys = pieces.take(round_up(s.time, kPanel) * s.head_size);
    values = pieces.take(s.time * round_up(s.head_size, kPanel));
    q = pieces.take(kQueries * query_row(s.head_size));
    out = pieces.take(kQueries * query_row(s.head_size));
    strip = pieces.take(kQueries * kStrip);
    total = pieces.count();
  }
};

struct BackwardSpace {
  float *rows, *keys, *values, *key_columns, *dk, *dv, *q, *dout, *dq, *p, *ds;
  int64_t total;
  BackwardSpace(const AttentionSpec& s, float* base) {
    Pieces pieces(base);
    const int64_t tile = kQueries * query_row(s.head_size);
    rows = pieces.take(s.time * s.head_size);
    keys = pieces.take(round_up(s.time, kPanel) * s.head_size);
    values = pieces.take(round_up(s.time, kPanel) * s.head_size);
    key_columns = pieces.take(s.time * round_up(s.head_size, kPanel));
    dk = pieces.take(s.time * s.head_size);
    dv = pieces.take(s.time * s.head_size);
    q = pieces.take(tile);
    dout = pieces.take(tile);
    dq = pieces.take(tile);
    p = pieces.take(kQueries * kStrip);
    ds = pieces.take(kQueries * kStrip);
    total = pieces.count();
  }
};

HeadRows query_head(const AttentionSpec& s, int64_t sample, int64_t head) {
  return {s.dtype, s.heads * s.head_size, head * s.head_size, s.head_size, sample * s.time};
}
HeadRows key_head(const AttentionSpec& s, int64_t sample, int64_t head) {
  return {s.dtype, s.kv_heads * s.head_size, head * s.head_size, s.head_size, sample * s.time};
}
/// Calls body(tile) for every tile of a sample's queries.
template <typename Body>
void for_tiles(const AttentionSpec& s, const int32_t* starts, int64_t sample, Body body) {
  const int32_t* own = starts == nullptr ? nullptr : starts + sample * s.time;
  for (int64_t i = 0; i < s.time; i += kQueries) body(Tile(s, i, own));
}

/// One query head on the way forth: the running maximum and sum of each row are corrected strip by strip.
struct ForwardHead {
  const AttentionSpec& spec;
  const Attention::Forward& arrays;
  const ForwardSpace& space;
  int64_t sample;
  int64_t head;

  void run() const {
    const HeadRows keys = key_head(spec, sample, head * spec.kv_heads / spec.heads);
    keys.prefetch(arrays.k, spec.time);
    pack_keys(keys.view(arrays.k, spec.time, space.rows), spec.time, spec.head_size, space.keys);
    keys.prefetch(arrays.v, spec.time);
    pack_columns(keys.view(arrays.v, spec.time, space.rows), spec.time, spec.head_size, space.values);
    for_tiles(spec, arrays.starts, sample, [&](const Tile& tile) { run_tile(tile); });
  }

 private:
  void run_tile(const Tile& tile) const {
    const HeadRows queries = query_head(spec, sample, head);
    const int64_t row = query_row(spec.head_size);
    float most[kQueries], sum[kQueries];
    std::fill_n(most, kQueries, -std::numeric_limits<float>::infinity());
    std::fill_n(sum, kQueries, 0.0F);
    std::fill_n(space.out, tile.rows * row, 0.0F);
    queries.load(arrays.q, tile.first, tile.rows, spec.scale, space.q, row);
    for_strips(tile.keys(0, tile.rows), [&](Range keys) {
      scores(tile, keys, space.q, row, space.keys, spec.head_size, space.strip);
      if (arrays.bias != nullptr)
        add_bias(tile, keys, arrays.bias + head * spec.time * spec.time, spec.time, space.strip);
      for (int64_t r = 0; r < tile.rows; ++r) add_row(tile, r, keys, most[r], sum[r]);
      weigh_values(tile, keys, space.strip, space.values, spec.time, spec.head_size, space.out, row);
    });
    for (int64_t r = 0; r < tile.rows; ++r) {
      float* out = space.out + r * row;
      scale_row(out, 1 / sum[r], out, spec.head_size);
      arrays.lse[(sample * spec.time + tile.first + r) * spec.heads + head] = most[r] + std::log(sum[r]);
    }
    queries.store(space.out, row, tile.first, tile.rows, arrays.out);
  }

  /// Turns a row of scores into exponentials and brings what was summed before to the new maximum.
  void add_row(const Tile& tile, int64_t r, Range keys, float& most, float& sum) const {
    float* row = space.strip + r * kStrip;
    const Range seen = visible(tile, r, keys, row);
    if (seen.size() == 0) return;
    const float now = std::max(most, simd().cap_max(row + seen.begin, seen.size(), spec.softcap));
    const float total = simd().exp_sum(row + seen.begin, 1, now, row + seen.begin, seen.size());
    if (sum != 0 && now != most) {
      const float before = std::exp(most - now);
      sum *= before;
      float* out = space.out + r * query_row(spec.head_size);
      scale_row(out, before, out, spec.head_size);
    }
    most = now;
    sum += total;
  }
};

/// One key head on the way back, with every query head that reads it.
struct BackwardHead {
  const AttentionSpec& spec;
  const Attention::Backward& arrays;
  const BackwardSpace& space;
  int64_t sample;
  int64_t kv_head;

  void run() const {
    const HeadRows keys = key_head(spec, sample, kv_head);
    const int64_t time = spec.time, size = spec.head_size;
    keys.prefetch(arrays.v, time);
    pack_keys(keys.view(arrays.v, time, space.rows), time, size, space.values);
    keys.prefetch(arrays.k, time);
    const HeadRows::View rows = keys.view(arrays.k, time, space.rows);
    pack_keys(rows, time, size, space.keys);
    pack_columns(rows, time, size, space.key_columns);
    std::fill_n(space.dk, time * size, 0.0F);
    std::fill_n(space.dv, time * size, 0.0F);
    const int64_t group = spec.heads / spec.kv_heads;
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
      for_tiles(spec, arrays.starts, sample, [&](const Tile& tile) { run_tile(tile, head); });
    keys.store(space.dk, size, 0, time, arrays.dk);
    keys.store(space.dv, size, 0, time, arrays.dv);
  }

 private:
  void run_tile(const Tile& tile, int64_t head) const {
    const HeadRows queries = query_head(spec, sample, head);
    const int64_t size = spec.head_size, row = query_row(size);
    queries.load(arrays.q, tile.first, tile.rows, spec.scale, space.q, row);
    queries.load(arrays.dout, tile.first, tile.rows, 1, space.dout, row);
    float delta[kQueries];
    queries.load(arrays.out, tile.first, tile.rows, 1, space.dq, row);
    for (int64_t r = 0; r < tile.rows; ++r)
      simd().dot(1, 1, size, space.dout + r * row, row, space.dq + r * row, row, delta + r, 1, 1);
    std::fill_n(space.dq, tile.rows * row, 0.0F);
    for_strips(tile.keys(0, tile.rows), [&](Range keys) {
      scores(tile, keys, space.q, row, space.keys, size, space.p);
      if (arrays.bias != nullptr)
        add_bias(tile, keys, arrays.bias + head * spec.time * spec.time, spec.time, space.p);
      scores(tile, keys, space.dout, row, space.values, size, space.ds);
      for (int64_t r = 0; r < tile.rows; ++r) turn_row(tile, r, keys, head, delta[r]);
      weigh_rows(tile, keys, space.p, space.dout, row, size, space.dv);
      weigh_rows(tile, keys, space.ds, space.q, row, size, space.dk);
      weigh_values(tile, keys, space.ds, space.key_columns, spec.time, size, space.dq, row);
    });
    for (int64_t r = 0; r < tile.rows; ++r)
      scale_row(space.dq + r * row, spec.scale, space.dq + r * row, size);
    queries.store(space.dq, row, tile.first, tile.rows, arrays.dq);
  }

  /// Scores become probabilities, and their cotangents those of the scores.
  void turn_row(const Tile& tile, int64_t r, Range keys, int64_t head, float delta) const {
    float* p = space.p + r * kStrip;
    float* ds = space.ds + r * kStrip;
    visible(tile, r, keys, ds);
    const Range seen = visible(tile, r, keys, p);
    const float lse = arrays.lse[(sample * spec.time + tile.first + r) * spec.heads + head];
    simd().softmax_back(p + seen.begin, ds + seen.begin, seen.size(), lse, delta, spec.softcap);
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
