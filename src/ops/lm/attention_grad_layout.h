#pragma once

#include "ops/lm/attention_gpu.h"
#include "ops/lm/score_plan.h"

/// Arrays, column slices and shared memory of the attention backward kernels.
namespace hearth::ops {

/// Column slices of the backward pass. One kernel (of_keys) computes dk and dv: each block holds rows of k
/// and v (stationary) and streams tiles of q and dout. It also stores the gradients of scores (dS), with
/// which another kernel computes dq = dS k, unless they are too large (ScorePlan). Then a third kernel
/// computes dq: each block holds rows of q and dout and streams tiles of k and v. Per tile a block computes q
/// k^T and dout v^T, converts them to factors (probabilities and gradients of scores), and adds factors *
/// streamed rows to its sums. Slices of of_keys are narrower for large heads: two sums of 128
/// columns each, plus the scores, exceed the register file.
template <typename T, int head_size, bool of_keys>
using BackwardSlices = Slices<T, head_size, sizeof(T) == 4 || (of_keys && head_size > 128) ? 64 : 128>;

/// Values of the streamed queries that a block of keys needs, in the order of a lane's elements: for each
/// tile the elements of the lower half of the warp, then those of the upper half.
template <int count>
struct StreamedQueries {
  alignas(16) float lse[count];
  alignas(16) float delta[count];
  alignas(16) int32_t starts[count];
};

/// Values per query and head: logsumexp of the scores in base 2 (lse), and the dot product of out and dout
/// times Attention::scale (delta).
struct QuerySums {
  float lse, delta;
};

/// Sums and document starts of a tile of streamed queries, in their order.
template <int count>
struct TileSums {
  QuerySums sums[count];
  int32_t starts[count];
};
struct NoSums {};

template <typename T, int head_size, bool of_keys>
struct Backward : BackwardSlices<T, head_size, of_keys> {
  using BackwardSlices<T, head_size, of_keys>::kSlice;
  /// True if shared memory holds all columns of a tile at once; the copy of a tile then starts one step
  /// before its use.
  static constexpr bool kSingleSlice = sizeof(T) == 2 && BackwardSlices<T, head_size, of_keys>::kCount == 1;
  /// True if a tile is copied asynchronously while another is processed (double buffering). No transposed
  /// copies are stored then; tiles are transposed while they are loaded from shared memory.
  static constexpr bool kDoubleBuffered = rt::kLoadsSlots<T> && kSingleSlice;
  /// True if two warps (a pair) share the same stationary rows, with q or k in registers. Each warp computes
  /// the factors of half of the streamed rows, exchanges them through shared memory, and accumulates half of
  /// the columns.
  static constexpr bool kPairs = kSingleSlice && !kDoubleBuffered;
  static constexpr int kSharing = kPairs ? 2 : 1;

  static constexpr bool kNarrow = kSlice <= 64 && sizeof(T) == 2;
  static constexpr int kWarps = kPairs ? 8 : kNarrow || rt::kSharedBytes >= 64 * 1024 ? 4 : 2;
  static constexpr int kThreads = kWarps * rt::kWarp;
  static constexpr int kStationary = kWarps / kSharing * rt::kTile;
  static constexpr int kStreamed = rt::kPanelTerms<T>;
  static constexpr int kStreamedTiles = kStreamed / rt::kTile, kTilesPerWarp = kStreamedTiles / kSharing;
  static constexpr int kSliceTiles = kSlice / rt::kTile, kOutTiles = kSliceTiles / kSharing;

  /// True if the QuerySums of streamed queries are copied with their rows. For wider heads shared memory is
  /// too small, and each lane keeps the sums of one query in registers.
  static constexpr bool kCopiesSums = kDoubleBuffered && of_keys && kSlice <= 96;

  struct Tile : std::conditional_t<kCopiesSums, TileSums<kStreamed>, NoSums> {
    rt::Panels<T, kStreamed, kSlice> a, b;
  };
  struct NoneAcross {};
  struct OneAcross {
    rt::Panels<T, kSlice, kStreamed> across_a;
  };
  struct BothAcross : OneAcross {
    rt::Panels<T, kSlice, kStreamed> across_b;
  };
  using Across = std::conditional_t<of_keys, BothAcross, OneAcross>;
  struct FixedB {
    rt::Panels<T, kStationary, kSlice> fixed_b;
  };
  struct Fixed : FixedB {
    rt::Panels<T, kStationary, kSlice> fixed_a;
  };
  /// Shared memory for the factors that the two warps of a pair exchange.
  struct FactorA : FixedB {
    rt::Panels<T, kStationary, kStreamed> factors_a;
  };
  struct Factors : FactorA {
    rt::Panels<T, kStationary, kStreamed> factors_b;
    StreamedQueries<kStreamed> queries;
  };
  using OfPairs = std::conditional_t<of_keys, Factors, FactorA>;
  struct Shared : std::conditional_t<kDoubleBuffered, NoneAcross, Across>,
                  std::conditional_t<kPairs, OfPairs, Fixed> {
    Tile streamed[kDoubleBuffered ? 2 : 1];
  };
  static_assert(sizeof(Shared) <= rt::kSharedBytes);
};

/// Gradients of the scores (dS) of one query head and a range of queries, in T: [tiles of rt::kWide<T>
/// queries] [keys][queries of the tile].
template <typename T>
struct HeadScores {
  T* at = nullptr;  ///< null: dS is not stored
  int num_keys = 0, first_query = 0;

  RT_DEVICE T* of(int query, int key) const {
    const auto local = static_cast<uint32_t>(query - first_query);
    return at + (static_cast<int64_t>(local / rt::kWide<T>) * num_keys + key) * rt::kWide<T> +
           local % rt::kWide<T>;
  }
};

/// Samples, key heads and queries that one launch processes, and where it stores dS and the partial sums of
/// dk and dv.
template <typename T>
struct ScoreRange {
  int first_sample, first_key_head, first_query, end_query;
  int num_keys;           ///< number of keys, rounded up to kScoreRows
  int64_t head_elements;  ///< number of elements of dS of a query head
  T* scores;              ///< dS of each query head (HeadScores); null: dS is not stored
  float* sums;            ///< partial sums of each block of keys

  /// Returns dS of a query head, by its number within the launch.
  RT_DEVICE HeadScores<T> of_head(int head) const {
    if (scores == nullptr) return {};
    return {scores + head * head_elements, num_keys, first_query};
  }
  /// True if no query of this range sees these keys.
  RT_DEVICE bool is_hidden(const Attention& spec, int first_key, int last_key) const {
    return (spec.causal && first_key >= end_query) ||
           (spec.window > 0 && last_key + spec.window <= first_query);
  }
  /// True if no query of an earlier range sees these keys.
  RT_DEVICE bool is_first(const Attention& spec, int first_key) const {
    return first_query == 0 || (spec.causal && first_key >= first_query);
  }
  /// True if no query of a later range sees these keys.
  RT_DEVICE bool is_last(const Attention& spec, int last_key) const {
    return end_query >= spec.time || (spec.window > 0 && last_key + spec.window <= end_query);
  }
};

template <typename T>
struct BackwardArrays {
  const T* q;
  const T* k;
  const T* v;
  const T* dout;
  const QuerySums* sums;  ///< [heads, batch * time]
  const int32_t* starts;
  const float* bias;
  T* dq;
  T* dk;
  T* dv;
};

/// Views of the arrays for the sample, query head and key head that a block processes.
template <typename T>
struct BackwardHead {
  HeadRows<T> q, k, v, dout;
  const QuerySums* sums;
  const int32_t* starts;
  Bias bias;
  HeadScores<T> scores;

  RT_DEVICE BackwardHead(const BackwardArrays<T>& arrays, const Attention& spec, int sample, int head,
                         const HeadScores<T>& of_scores = {})
      : bias(arrays.bias, spec, head), scores(of_scores) {
    const HeadOffsets offset(spec, sample, head);
    q = offset.queries(arrays.q, spec);
    dout = offset.queries(arrays.dout, spec);
    k = offset.keys(arrays.k, spec);
    v = offset.keys(arrays.v, spec);
    sums = arrays.sums + static_cast<int64_t>(head) * spec.batch * spec.time + offset.first_token;
    starts = offset.starts(arrays.starts);
  }
};

template <typename T>
inline constexpr rt::Side kStationarySide = rt::kStationarySide<rt::kPathOf<T>>;
template <typename T>
inline constexpr rt::Side kStreamedSide = rt::kStreamedSide<rt::kPathOf<T>>;

}  // namespace hearth::ops
