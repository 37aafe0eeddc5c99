#pragma once

#include "ops/gpu_support.h"
#include "ops/lm/attention_tiles.h"

/// Shared code of the attention kernels for GPUs. A block holds rows of one side (queries or keys, of one
/// head of one sample), called the stationary rows, and streams tiles of rows of the other side, called the
/// streamed rows, through shared memory.
namespace hearth::ops {

inline constexpr float kLog2OfE = 1.44269504F, kLogOf2 = 0.693147181F;

/// Shapes and options of an attention node, as in cpu::AttentionSpec.
struct Attention {
  int batch, time, heads, kv_heads, head_size;
  float scale, softcap;
  float exponent_factor;  ///< an exponential is 2^(exponent_factor * Score::value)
  int window;
  bool causal;

  /// True if scores need more than a product and a positive scale; sets exponent_factor accordingly.
  bool choose_special(bool biased) {
    const bool special = biased || softcap != 0 || scale <= 0;
    exponent_factor = special ? kLog2OfE : scale * kLog2OfE;
    return special;
  }
  RT_DEVICE int64_t q_row() const { return static_cast<int64_t>(heads) * head_size; }
  RT_DEVICE int64_t kv_row() const { return static_cast<int64_t>(kv_heads) * head_size; }
  /// True if the key is visible to the query by the causal, window and document masks. `start` is the first
  /// token of the query's document. Branch-free, because it is evaluated for every score.
  RT_DEVICE bool sees(int query, int key, int start) const {
    const int last_key = causal ? query : time - 1, first_key = window == 0 ? 0 : query - window + 1;
    const bool exist = unsigned{query < time} & unsigned{key < time};
    const bool near = unsigned{key <= last_key} & unsigned{key >= first_key};
    return unsigned{exist} & unsigned{near} & (unsigned{key >= start} | unsigned{key == query});
  }
};
inline Attention attention_of(const ir::NodeView& node) {
  const int64_t batch = node.attrs.integer("batch");
  return {.batch = static_cast<int>(batch),
          .time = static_cast<int>(node.in_type(0).shape[0] / batch),
          .heads = static_cast<int>(node.attrs.integer("heads")),
          .kv_heads = static_cast<int>(node.attrs.integer("kv_heads")),
          .head_size = static_cast<int>(node.attrs.integer("head_size")),
          .scale = static_cast<float>(node.attrs.real("scale")),
          .softcap = static_cast<float>(node.attrs.real_or("softcap", 0)),
          .exponent_factor = kLog2OfE,
          .window = static_cast<int>(node.attrs.integer_or("window", 0)),
          .causal = node.attrs.integer_or("causal", 1) != 0};
}

/// A compile-time constant that can be passed as a function argument.
template <auto value>
struct Constant {
  RT_DEVICE constexpr operator decltype(value)() const { return value; }
};

/// Additive bias [query, key] of the scores of one head; at == null: no bias.
struct Bias {
  const float* at;

  /// Selects the head's bias in an array [heads, time, time]; `all` may be null.
  RT_DEVICE Bias(const float* all, const Attention& spec, int head)
      : at(all == nullptr ? all : all + static_cast<int64_t>(head) * spec.time * spec.time) {}
  /// Returns the bias of a query and a key. Indices are clamped to the last row and column, so that all loads
  /// of a tile issue together without branches.
  RT_DEVICE float of(const Attention& spec, int query, int key) const {
    const int last = spec.time - 1;
    return at[static_cast<int64_t>(query < last ? query : last) * spec.time + (key < last ? key : last)];
  }
};

/// Computation of a score: the product itself (scaled in the exponent), the scaled product, plus a bias, or
/// with a soft cap. A node cannot have both bias and soft cap. Kernels for the first kind are separate,
/// because the code of the others costs registers.
enum class ScoreKind { plain, scaled, bias, softcap };
RT_DEVICE ScoreKind special_kind_of(const Attention& spec, const Bias& bias) {
  if (bias.at != nullptr) return ScoreKind::bias;
  return spec.softcap == 0 ? ScoreKind::scaled : ScoreKind::softcap;
}

/// The score of a query-key product in units of Attention::exponent_factor, and its derivative with respect
/// to the scaled product.
struct Score {
  float value, slope;
};
/// Returns the score of a product q . k. `score_kind` is a ScoreKind, or a Constant if known at compile time.
template <typename Kind>
RT_DEVICE Score score_of(const Attention& spec, float product, Kind score_kind, const Bias& bias, int query,
                         int key) {
  if (score_kind == ScoreKind::plain) return {product, 1};
  const float scaled = spec.scale * product;
  if (score_kind == ScoreKind::scaled) return {scaled, 1};
  if (score_kind == ScoreKind::bias) return {scaled + bias.of(spec, query, key), 1};
  // tanh(x) = 1 - 2 / (exp(2 x) + 1)
  const float t = 1 - 2 / (rt::fast_exp(2 * scaled / spec.softcap) + 1);
  return {spec.softcap * t, 1 - t * t};
}

/// Padded head size (kSize), and its split into slices of at most `maximum` columns, so that the rows of both
/// sides fit in shared memory.
template <typename T, int head_size, int maximum = sizeof(T) == 4 ? 64 : 128>
struct Slices {
  static constexpr int kSize = head_size;
  static constexpr int kCount = (head_size + maximum - 1) / maximum;
  static constexpr int kSlice = head_size / kCount;
  static_assert(kSlice % rt::kTile == 0);
};
/// Element offsets of one query head of a sample in q, and of the corresponding key head in k and v.
struct HeadOffsets {
  int64_t first_token, q, kv;

  RT_DEVICE HeadOffsets(const Attention& spec, int sample, int head)
      : first_token(static_cast<int64_t>(sample) * spec.time),
        q(first_token * spec.q_row() + static_cast<int64_t>(head) * spec.head_size),
        kv(first_token * spec.kv_row() +
           static_cast<int64_t>(head / (spec.heads / spec.kv_heads)) * spec.head_size) {}
  template <typename T>
  RT_DEVICE HeadRows<T> queries(const T* all, const Attention& spec) const {
    return {all + q, spec.q_row(), spec.time, spec.head_size};
  }
  template <typename T>
  RT_DEVICE HeadRows<T> keys(const T* all, const Attention& spec) const {
    return {all + kv, spec.kv_row(), spec.time, spec.head_size};
  }
  /// Returns the document starts of the sample's tokens; null if there are no documents.
  RT_DEVICE const int32_t* starts(const int32_t* all) const {
    return all == nullptr ? nullptr : all + first_token;
  }
};

/// Stores the first `count` elements of `from`. Rare case, so the code is short: each iteration shifts out
/// the lowest element.
template <typename T, int n>
RT_DEVICE void store_some(T* to, const rt::Vec<T, n>& from, int count) {
  constexpr int kWords = static_cast<int>(n * sizeof(T) / 4), kBits = 8 * static_cast<int>(sizeof(T));
  auto words = rt::bits_as<rt::Vec<uint32_t, kWords>>(from);
  RT_NO_UNROLL
  for (int e = 0; e < count && e < n; ++e) {
    if constexpr (kBits == 32) {
      to[e] = rt::bits_as<T>(words.at[0]);
    } else {
      to[e] = {static_cast<uint16_t>(words.at[0])};
    }
    RT_UNROLL
    for (int w = 0; w < kWords; ++w) {
      const uint32_t next = w + 1 < kWords ? words.at[w + 1 < kWords ? w + 1 : w] : 0U;
      words.at[w] = kBits == 32 ? next : words.at[w] >> kBits % 32 | next << kBits % 32;
    }
  }
}

/// Writes sums[t] to a head's array, at row first_row and column first_column + t * step * rt::kTile.
template <int step = 1, typename T, int tiles>
RT_DEVICE void write_rows(const rt::StationaryAcc<T> (&sums)[tiles], T* to, int64_t stride,
                          const Attention& spec, int first_row, int first_column) {
  RT_UNROLL
  for (int t = 0; t < tiles; ++t) {
    rt::for_each_run<T>(rt::stationary_of(sums[t]), [&](int line, int term, const auto& run) {
      constexpr int kRun = static_cast<int>(sizeof(run) / sizeof(T));
      const int row = first_row + line, column = first_column + t * step * rt::kTile + term;
      if (row >= spec.time || column >= spec.head_size) return;
      T* at = to + row * stride + column;
      if (spec.head_size % kRun == 0) return rt::store(at, run);
      store_some(at, run, spec.head_size - column);
    });
  }
}

/// Earliest and latest document start (token in the sequence) among some queries.
struct Starts {
  int minimum, maximum;
};
/// Returns the range of document starts of some queries; equal in every lane of the warp.
RT_DEVICE Starts starts_of(const int32_t* starts, int first_query, int num_queries, int time) {
  if (starts == nullptr) return {0, 0};
  const int last = (first_query + num_queries < time ? first_query + num_queries : time) - 1;
  const int own = first_query + rt::lane();
  int minimum = starts[own < last ? own : last], maximum = minimum;
  RT_UNROLL
  for (int more = rt::kWarp; more < num_queries; more += rt::kWarp) {
    const int other = starts[own + more < last ? own + more : last];
    minimum = other < minimum ? other : minimum;
    maximum = other > maximum ? other : maximum;
  }
  for (int mask = rt::kWarp / 2; mask > 0; mask /= 2) {
    const int low = rt::shuffle_xor(minimum, mask), high = rt::shuffle_xor(maximum, mask);
    minimum = low < minimum ? low : minimum;
    maximum = high > maximum ? high : maximum;
  }
  return {minimum, maximum};
}

/// Returns the document start of each of a warp's stationary queries, from `first_query` on.
template <typename T>
RT_DEVICE rt::PerStationary<T, int> starts_of_stationary(const int32_t* starts, int first_query, int time) {
  rt::PerStationary<T, int> result;
  RT_UNROLL
  for (int i = 0; i < result.kCount; ++i) {
    const int query = first_query + rt::StationaryAcc<T>::stationary(result.element(i));
    result.at[i] = starts != nullptr && query < time ? starts[query] : 0;
  }
  return result;
}

/// Ranges of queries and keys of a tile of scores [query, key].
struct ScoreTile {
  int first_query, num_queries, first_key, num_keys;
  Starts starts;  ///< range of document starts of the queries

  RT_DEVICE int last_query() const { return first_query + num_queries - 1; }
  RT_DEVICE int last_key() const { return first_key + num_keys - 1; }
  /// False if no query of the tile sees any key of the tile.
  RT_DEVICE bool may_be_seen(const Attention& spec) const {
    if (spec.causal && first_key > last_query()) return false;
    if (spec.window > 0 && first_query - last_key() >= spec.window) return false;
    return first_query <= last_key() || starts.minimum <= last_key();
  }
  /// Returns the part of this tile for some of its queries.
  RT_DEVICE ScoreTile of_queries(int first, int count) const {
    return {first, count, first_key, num_keys, starts};
  }
  /// Returns the next tile of keys, for the same queries, that may be seen; first_key >= spec.time if there
  /// is none.
  RT_DEVICE ScoreTile next(const Attention& spec) const {
    ScoreTile found = *this;
    do {
      found.first_key += num_keys;
    } while (found.first_key < spec.time && !found.may_be_seen(spec));
    return found;
  }
  /// True if every query exists and sees every key of the tile, so that no mask is needed.
  RT_DEVICE bool is_seen(const Attention& spec) const {
    return last_query() < spec.time && last_key() < spec.time &&
           (!spec.causal || last_key() <= first_query) &&
           (spec.window == 0 || last_query() - first_key < spec.window) && starts.maximum <= first_key;
  }
};

/// Returns body(true or false as a constant).
template <typename Body>
ir::Kernel with_constant(bool value, Body body) {
  return value ? body(std::true_type()) : body(std::false_type());
}
/// Returns body(std::integral_constant) with the smallest supported padded head size that is at least
/// head_size.
template <typename Body>
ir::Kernel with_head_size(int head_size, Body body) {
  if (head_size <= 32) return body(std::integral_constant<int, 32>());
  if (head_size <= 64) return body(std::integral_constant<int, 64>());
  if (head_size <= 96) return body(std::integral_constant<int, 96>());
  if (head_size <= 128) return body(std::integral_constant<int, 128>());
  if (head_size <= 256) return body(std::integral_constant<int, 256>());
  refuse_on_gpu("head_size", 256, head_size);
}

}  // namespace hearth::ops
