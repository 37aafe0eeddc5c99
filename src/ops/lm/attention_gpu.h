#pragma once

#include "backend/gpu/rt_panel.h"
#include "ops/gpu_support.h"

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
/// Rows of one head of one sample: element (r, c) at r * stride + c.
template <typename T>
struct HeadRows {
  const T* at;
  int64_t stride;
  int num_rows, num_columns;

  /// Returns the rows from `row` on.
  RT_DEVICE HeadRows from_row(int row) const {
    return {at + row * stride, stride, num_rows - row, num_columns};
  }
  /// Returns rt::kWide<T> adjacent elements of a row; zeros outside of the array. `row` must be below 128, so
  /// that the byte offset fits in 32 bits.
  RT_DEVICE rt::Word16 read(int row, int column) const {
    constexpr int kWide = rt::kWide<T>;
    // A 32-bit offset is added to `at`, which is uniform across the warp, to save registers and 64-bit
    // arithmetic.
    const uint32_t offset =
        static_cast<uint32_t>(row) * static_cast<uint32_t>(stride) + static_cast<uint32_t>(column);
    const T* from = reinterpret_cast<const T*>(reinterpret_cast<const std::byte*>(at) +
                                               offset * static_cast<uint32_t>(sizeof(T)));
    if (num_columns % kWide == 0) {
      rt::Word16 word = {};
      if (row < num_rows && column < num_columns) word = *reinterpret_cast<const rt::Word16*>(from);
      return word;
    }
    // Rare case of unaligned rows: shifts elements into `words` one by one, from last to first, to save
    // registers.
    rt::Vec<uint32_t, 4> words = {};
    RT_NO_UNROLL
    for (int e = kWide - 1; e >= 0; --e) {
      const T element = row < num_rows && column + e < num_columns ? from[e] : rt::from_float<T>(0.0F);
      push(words, element);
    }
    return rt::bits_as<rt::Word16>(words);
  }
  /// Copies 16 bytes to a slot of shared memory, asynchronously where the GPU supports it; zeros outside of
  /// the array.
  RT_DEVICE void copy_async(std::byte* slot, int row, int column) const {
    if (num_columns % rt::kWide<T> != 0) {
      *reinterpret_cast<rt::Word16*>(slot) = read(row, column);
      return;
    }
    const bool there = row < num_rows && column < num_columns;
    rt::copy_beside(slot, there ? at + row * stride + column : at, there);
  }

 private:
  RT_DEVICE static void push(rt::Vec<uint32_t, 4>& words, T element) {
    constexpr int kBits = 8 * static_cast<int>(sizeof(T));
    RT_UNROLL
    for (int w = 3; w > 0; --w)
      words.at[w] =
          kBits == 32 ? words.at[w - 1] : words.at[w] << kBits % 32 | words.at[w - 1] >> (32 - kBits);
    if constexpr (kBits == 32) {
      words.at[0] = rt::bits_as<uint32_t>(element);
    } else {
      words.at[0] = words.at[0] << kBits | uint32_t{element.bits};
    }
  }
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

/// Thread and lane index, reloaded at the start of each tile so that the compiler does not keep values
/// derived from them in registers.
struct ThreadIndex {
  int thread = rt::opaque_value(static_cast<int>(threadIdx.x)), lane = rt::opaque_value(rt::lane());
};

/// A thread's move of a copy of a tile [rows, columns] of a head into shared memory: the constructor loads it
/// into registers, put() stores it.
template <typename T, int rows, int columns>
struct TileCopy {
  using Move = rt::AcrossMove<T, columns>;
  static constexpr int kRows = Move::kTerms, kMoves = rows / kRows * Move::kGroups;

  rt::Word16 held[kRows];
  int row, column;

  RT_DEVICE TileCopy(const HeadRows<T>& from, int first_row, int first_column, int number) {
    const Move move(number);
    const HeadRows<T> near = from.from_row(first_row);
    column = move.line;
    row = move.term;
    RT_UNROLL
    for (int r = 0; r < kRows; ++r) held[r] = near.read(row + r, first_column + column);
  }
  RT_DEVICE void put(rt::Panels<T, rows, columns>& to) const {
    const uint32_t offset = to.offset(row, column);
    RT_UNROLL
    for (int r = 0; r < kRows; ++r)
      *reinterpret_cast<rt::Word16*>(to.at + (offset ^ rt::Swizzle::of_next(r))) = held[r];
  }
  /// Stores the transposed elements, to a tile with one line per column.
  RT_DEVICE void put_across(rt::Panels<T, columns, rows>& to) const {
    rt::put_across<T>(to.at, to.offset(column, row), held[0], held[kRows - 1]);
  }
};

/// Copy of tiles with at most one move per thread: offsets are computed once and used for all tiles of rows
/// with the same stride.
template <typename T, int rows, int columns>
struct TileMove {
  using Copy = TileCopy<T, rows, columns>;
  using Held = rt::Word16[Copy::kRows];
  static constexpr int kNone = 1 << 30;  ///< value of `row` in threads without a move

  int row;
  uint32_t from, to, across;  ///< byte offsets: in the source rows, in the tile, in the transposed tile

  RT_DEVICE TileMove(const HeadRows<T>& of, int thread) {
    const typename Copy::Move move(thread);
    row = thread < Copy::kMoves && move.line < of.num_columns ? move.term : kNone;
    from = static_cast<uint32_t>((move.term * of.stride + move.line) * static_cast<int>(sizeof(T)));
    to = rt::Panels<T, rows, columns>::offset(move.term, move.line);
    across = rt::Panels<T, columns, rows>::offset(move.line, move.term);
  }
  RT_DEVICE void read(Held& held, const HeadRows<T>& of, int first_row, int thread) const {
    const HeadRows<T> near = of.from_row(first_row);
    if (of.num_columns % rt::kWide<T> != 0) {
      const typename Copy::Move move(thread);
      RT_UNROLL
      for (int r = 0; r < Copy::kRows; ++r)
        held[r] = near.read(row == kNone ? row : move.term + r, move.line);
      return;
    }
    const uint32_t step = static_cast<uint32_t>(of.stride) * static_cast<uint32_t>(sizeof(T));
    RT_UNROLL
    for (int r = 0; r < Copy::kRows; ++r) {
      held[r] = rt::Word16{};
      const std::byte* at =
          reinterpret_cast<const std::byte*>(near.at) + (from + static_cast<uint32_t>(r) * step);
      if (row + r < near.num_rows) held[r] = *reinterpret_cast<const rt::Word16*>(at);
    }
  }
  RT_DEVICE void put(rt::Panels<T, rows, columns>& panels, const Held& held) const {
    RT_UNROLL
    for (int r = 0; r < Copy::kRows; ++r)
      *reinterpret_cast<rt::Word16*>(panels.at + (to ^ rt::Swizzle::of_next(r))) = held[r];
  }
  RT_DEVICE void put_across(rt::Panels<T, columns, rows>& panels, const Held& held) const {
    rt::put_across<T>(panels.at, across, held[0], held[Copy::kRows - 1]);
  }
};

/// Calls body(TileCopy) for each of this thread's moves of a tile copy.
template <typename T, int rows, int columns, int threads, typename Body>
RT_DEVICE void copy_tile(const HeadRows<T>& from, int first_row, int first_column, int thread, Body body) {
  using Copy = TileCopy<T, rows, columns>;
  RT_UNROLL
  for (int first = 0; first < Copy::kMoves; first += threads) {
    const int move = first + thread;
    if (Copy::kMoves % threads != 0 && move >= Copy::kMoves) continue;
    body(Copy(from, first_row, first_column, move));
  }
}
/// Copies a tile of rows to shared memory. The loop is not unrolled, to save registers; used outside of the
/// main loop.
template <int threads, typename T, int rows, int columns>
RT_DEVICE void copy_rows(rt::Panels<T, rows, columns>& to, const HeadRows<T>& from, int first_row,
                         int first_column, int thread) {
  using Copy = TileCopy<T, rows, columns>;
  RT_NO_UNROLL
  for (int move = thread; move < Copy::kMoves; move += threads)
    Copy(from, first_row, first_column, move).put(to);
}

/// Starts an asynchronous copy of a tile of rows to shared memory. `to` may be read after rt::wait_copies()
/// and a barrier.
template <int threads, typename T, int rows, int columns>
RT_DEVICE void copy_tile_async(rt::Panels<T, rows, columns>& to, const HeadRows<T>& from, int first_row,
                               int thread) {
  constexpr int kWide = rt::kWide<T>, kSlots = columns / kWide;
  const HeadRows<T> near = from.from_row(first_row);
  RT_UNROLL
  for (int first = 0; first < rows * kSlots; first += threads) {
    const int slot = first + thread, row = slot / kSlots, column = slot % kSlots * kWide;
    if (rows * kSlots % threads != 0 && slot >= rows * kSlots) continue;
    near.copy_async(to.at + to.offset(row, column), row, column);
  }
}

/// Adds to sums[t] the product of tile `fixed_tile` of the stationary lines and tile t of the streamed lines
/// (transposed), over all terms.
template <typename T, int fixed_lines, int taken_lines, int terms, int tiles>
RT_DEVICE void add_products(rt::StationaryAcc<T> (&sums)[tiles],
                            const rt::Panels<T, fixed_lines, terms>& stationary, int fixed_tile,
                            const rt::Panels<T, taken_lines, terms>& streamed, int lane) {
  static_assert(tiles * rt::kTile == taken_lines);
  constexpr int kPath = rt::kPathOf<T>;
  RT_UNROLL
  for (int c = 0; c < terms; c += rt::kTile) {
    const auto lines = stationary.template load<rt::kStationarySide<kPath>>(fixed_tile, c, lane);
    RT_UNROLL
    for (int t = 0; t < tiles; ++t)
      rt::multiply_add(sums[t], lines, streamed.template load<rt::kStreamedSide<kPath>>(t, c, lane));
    RT_UNROLL
    for (int t = 0; t < tiles; ++t) rt::keep_order(sums[t].at[0]);
  }
}
/// Adds to sums[c] the product of `factors` [stationary lines, streamed lines] and tile c of the columns of
/// the streamed lines. `columns` holds one line per column; if `transposed`, it holds one line per streamed
/// row and is transposed while it is loaded.
template <bool transposed, typename T, typename Columns, int tiles, int taken_tiles>
RT_DEVICE void add_streamed(rt::StationaryAcc<T> (&sums)[tiles],
                            const rt::StationaryAcc<T> (&factors)[taken_tiles], const Columns& columns,
                            int lane) {
  constexpr rt::Side kSide = rt::kStreamedSide<rt::kPathOf<T>>;
  RT_UNROLL
  for (int t = 0; t < taken_tiles; ++t) {
    const auto local = rt::stationary_of(factors[t]);
    RT_UNROLL
    for (int c = 0; c < tiles; ++c) {
      if constexpr (transposed) {
        rt::multiply_add(sums[c], local, columns.template load_across<kSide>(c, t * rt::kTile, lane));
      } else {
        rt::multiply_add(sums[c], local, columns.template load<kSide>(c, t * rt::kTile, lane));
      }
      rt::keep_order(sums[c].at[0]);
    }
  }
}

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
/// Returns the range of document starts of up to 64 queries; equal in every lane of the warp.
RT_DEVICE Starts starts_of(const int32_t* starts, int first_query, int num_queries, int time) {
  if (starts == nullptr) return {0, 0};
  const int last = (first_query + num_queries < time ? first_query + num_queries : time) - 1;
  const int one = first_query + rt::lane(), two = one + rt::kWarp;
  int minimum = starts[one < last ? one : last], maximum = minimum;
  const int other = starts[two < last ? two : last];
  minimum = other < minimum ? other : minimum;
  maximum = other > maximum ? other : maximum;
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
