// FlashAttention-2 forward pass (Dao 2023, arXiv 2307.08691). A thread block holds a tile of queries and
// streams tiles of keys and values through shared memory. For each tile it computes scores with matrix
// instructions, converts them to softmax weights with a running maximum and sum per query, and adds weights *
// values to the block's output. The time x time scores are never stored; the backward pass recomputes the
// weights from lse, the logarithm of each query's sum of exponentials.
#include "ops/lm/attention_gpu.h"

#include "ops/lm/lm.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Score of masked keys: lower than every real score, and finite, so that differences are never NaN.
constexpr float kMaskedScore = -1e30F;

template <typename T, int head_size>
struct Forward : Slices<T, head_size> {
  using Slices<T, head_size>::kSlice;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * rt::kWarp;
  static constexpr int kQueries = kWarps * rt::kTile;
  static constexpr int kKeys = kSlice <= 64 && sizeof(T) == 2 ? 64 : 32;
  static constexpr int kKeyTiles = kKeys / rt::kTile;
  static constexpr int kOutTiles = kSlice / rt::kTile;

  /// True if the next tile is copied while the current one is processed (double buffering).
  static constexpr bool kDoubleBuffered = rt::kLoadsSlots<T> && Slices<T, head_size>::kCount == 1;

  struct Tile {
    rt::Panels<T, kKeys, kSlice> keys;
    std::conditional_t<kDoubleBuffered, rt::Panels<T, kKeys, kSlice>, rt::Panels<T, kSlice, kKeys>> values;
  };
  struct Shared {
    rt::Panels<T, kQueries, kSlice> queries;
    Tile tiles[kDoubleBuffered ? 2 : 1];
  };
  static_assert(sizeof(Shared) <= 48 * 1024);
};

template <typename T>
struct ForwardArrays {
  const T* q;
  const T* k;
  const T* v;
  const int32_t* starts;
  const float* bias;
  T* out;
  float* lse;
};

/// Online softmax state of a warp's queries: the largest score so far, this lane's part of the sum of
/// exponentials of the scores minus that maximum, and the sum of values weighted by these exponentials (arXiv
/// 2307.08691, algorithm 1).
template <typename T, typename F>
struct RunningRows {
  rt::PerStationary<T> running_max, sum;
  rt::StationaryAcc<T> out[F::kOutTiles];

  RT_DEVICE RunningRows() {
    for (int i = 0; i < rt::PerStationary<T>::kCount; ++i) {
      running_max.at[i] = kMaskedScore;
      sum.at[i] = 0;
    }
  }
  /// Updates the running maximum with the scores of a tile of keys, rescales earlier sums to it, and replaces
  /// the scores by exponentials of their difference from it.
  RT_DEVICE void take(rt::StationaryAcc<T> (&scores)[F::kKeyTiles], float factor) {
    rt::PerStationary<T> largest = running_max, shrink, base;
    RT_UNROLL
    for (int t = 0; t < F::kKeyTiles; ++t) {
      RT_UNROLL
      for (int e = 0; e < rt::kLaneElements; ++e) largest[e] = rt::Max()(largest[e], scores[t].at[e]);
    }
    largest.join_lanes(rt::Max());
    RT_UNROLL
    for (int i = 0; i < rt::PerStationary<T>::kCount; ++i) {
      shrink.at[i] = rt::fast_exp2((running_max.at[i] - largest.at[i]) * factor);
      // For a query whose keys were all masked so far, the exponentials of kMaskedScore must be 0, not 1.
      base.at[i] = largest.at[i] > kMaskedScore ? largest.at[i] * factor : 0.0F;
      sum.at[i] *= shrink.at[i];
    }
    running_max = largest;
    RT_UNROLL
    for (int t = 0; t < F::kOutTiles; ++t) {
      RT_UNROLL
      for (int e = 0; e < rt::kLaneElements; ++e) out[t].at[e] *= shrink[e];
    }
    RT_UNROLL
    for (int t = 0; t < F::kKeyTiles; ++t) {
      RT_UNROLL
      for (int e = 0; e < rt::kLaneElements; ++e) {
        scores[t].at[e] = rt::fast_exp2(scores[t].at[e] * factor - base[e]);
        sum[e] += scores[t].at[e];
      }
    }
  }
};

template <typename T, int tiles, typename Kind>
RT_DEVICE void make_scores(rt::StationaryAcc<T> (&products)[tiles], const Attention& spec, Kind score_kind,
                           const Bias& bias, int own_query, int first_key, int lane) {
  RT_UNROLL
  for (int t = 0; t < tiles; ++t) {
    RT_UNROLL
    for (int e = 0; e < rt::kLaneElements; ++e) {
      const int query = own_query + products[t].stationary(e, lane);
      const int key = first_key + t * rt::kTile + products[t].streamed(e, lane);
      products[t].at[e] = score_of(spec, products[t].at[e], score_kind, bias, query, key).value;
    }
  }
}

/// Converts a warp's products of queries (from `own_query` on) and keys to masked scores, in place.
template <bool special, typename T, int tiles>
RT_DEVICE void score(rt::StationaryAcc<T> (&products)[tiles], const Attention& spec, const Bias& bias,
                     const ScoreTile& tile, const rt::PerStationary<T, int>& starts, int own_query,
                     int lane) {
  if constexpr (special) {
    const ScoreKind score_kind = special_kind_of(spec, bias);
    if (score_kind == ScoreKind::bias) {
      make_scores(products, spec, Constant<ScoreKind::bias>(), bias, own_query, tile.first_key, lane);
    } else {
      make_scores(products, spec, score_kind, bias, own_query, tile.first_key, lane);
    }
  }
  if (tile.is_seen(spec)) return;
  RT_UNROLL
  for (int t = 0; t < tiles; ++t) {
    RT_UNROLL
    for (int e = 0; e < rt::kLaneElements; ++e) {
      const int query = own_query + products[t].stationary(e, lane);
      const int key = tile.first_key + t * rt::kTile + products[t].streamed(e, lane);
      if (!spec.sees(query, key, starts[e])) products[t].at[e] = kMaskedScore;
    }
    // Prevents the compiler from computing the masks of all tiles at once, which would need more registers.
    RT_UNROLL
    for (int e = 0; e < rt::kLaneElements; ++e) rt::keep_order(products[t].at[e]);
  }
}

/// Forward pass of attention. One block per kQueries queries of a head of a sample and per slice of output
/// columns. Blocks with the last queries start first, because with a causal mask those see the most keys.
template <typename T, int head_size, bool special, int threads>
__global__ void __launch_bounds__(threads) attend(ForwardArrays<T> arrays, Attention spec) {
  using F = Forward<T, head_size>;
  using Block = typename F::Shared;
  RT_SHARED(block, Block);
  const int head = static_cast<int>(blockIdx.y);
  const HeadOffsets place(spec, static_cast<int>(blockIdx.z) / F::kCount, head);
  const int part = static_cast<int>(blockIdx.z) % F::kCount * F::kSlice;
  const int first_query = static_cast<int>(gridDim.x - 1 - blockIdx.x) * F::kQueries;
  const int own_query = first_query + rt::warp() * rt::kTile;
  const HeadRows<T> queries = place.queries(arrays.q, spec);
  const HeadRows<T> keys = place.keys(arrays.k, spec), values = place.keys(arrays.v, spec);
  const int32_t* starts = place.starts(arrays.starts);
  const Bias bias(arrays.bias, spec, head);
  ScoreTile tile{.first_query = first_query,
                 .num_queries = F::kQueries,
                 .first_key = 0,
                 .num_keys = F::kKeys,
                 .starts = starts_of(starts, first_query, F::kQueries, spec.time)};

  RunningRows<T, F> rows;
  const rt::PerStationary<T, int> own_starts = starts_of_stationary<T>(starts, own_query, spec.time);
  if (F::kCount == 1)
    copy_rows<threads>(block.queries, queries, first_query, 0, static_cast<int>(threadIdx.x));
  const auto copy_async = [&](int first_key, int number) {
    typename F::Tile& to = block.tiles[number % 2];
    copy_tile_async<threads>(to.keys, keys, first_key, static_cast<int>(threadIdx.x));
    copy_tile_async<threads>(to.values, values, first_key, static_cast<int>(threadIdx.x));
    rt::end_copy_group();
  };
  if (!tile.may_be_seen(spec)) tile = tile.next(spec);
  if constexpr (F::kDoubleBuffered) copy_async(tile.first_key, 0);
  for (int number = 0; tile.first_key < spec.time; ++number) {
    typename F::Tile& local = block.tiles[F::kDoubleBuffered ? number % 2 : 0];
    rt::StationaryAcc<T> scores[F::kKeyTiles];
    for (int slice = 0; slice < F::kSize; slice += F::kSlice) {
      const ThreadIndex indices;
      rt::sync_block();
      if (F::kCount > 1) copy_rows<threads>(block.queries, queries, first_query, slice, indices.thread);
      if constexpr (F::kDoubleBuffered) {
        copy_async(tile.next(spec).first_key, number + 1);
        rt::wait_copies<1>();
      } else {
        copy_tile<T, F::kKeys, F::kSlice, threads>(keys, tile.first_key, slice, indices.thread,
                                                   [&](const auto& copy) { copy.put(local.keys); });
        if (slice == 0)
          copy_tile<T, F::kKeys, F::kSlice, threads>(
              values, tile.first_key, part, indices.thread,
              [&](const auto& copy) { copy.put_across(local.values); });
      }
      rt::sync_block();
      add_products(scores, block.queries, rt::warp(), local.keys, indices.lane);
    }
    const ThreadIndex indices;
    score<special>(scores, spec, bias, tile, own_starts, own_query, indices.lane);
    rows.take(scores, spec.exponent_factor);
    add_streamed<F::kDoubleBuffered>(rows.out, scores, local.values, indices.lane);
    tile = tile.next(spec);
  }
  rows.sum.join_lanes(rt::Add());
  RT_UNROLL
  for (int t = 0; t < F::kOutTiles; ++t) {
    RT_UNROLL
    for (int e = 0; e < rt::kLaneElements; ++e) rows.out[t].at[e] /= rows.sum[e];
  }
  write_rows(rows.out, arrays.out + place.q, spec.q_row(), spec, own_query, part);
  RT_UNROLL
  for (int i = 0; i < rt::PerStationary<T>::kCount; ++i) {
    const int e = rt::PerStationary<T>::element(i), query = own_query + rows.out[0].stationary(e);
    if (part == 0 && rows.out[0].streamed(e) == 0 && query < spec.time)
      arrays.lse[(place.first_token + query) * spec.heads + head] =
          (rows.running_max[e] * spec.exponent_factor + log2f(rows.sum[e])) * kLogOf2;
  }
}

template <typename T, int head_size, bool special>
ir::Kernel make(const Attention& spec, bool documents, bool biased) {
  using F = Forward<T, head_size>;
  const rt::Dim3 blocks{static_cast<unsigned>(ceil_div(spec.time, F::kQueries)),
                        static_cast<unsigned>(spec.heads), static_cast<unsigned>(spec.batch * F::kCount)};
  const auto run = [=](const KernelArgs& args) {
    const ForwardArrays<T> arrays{
        .q = input_of<T>(args, AttentionIn::q),
        .k = input_of<T>(args, AttentionIn::k),
        .v = input_of<T>(args, AttentionIn::v),
        .starts = documents ? input_of<int32_t>(args, AttentionIn::starts) : nullptr,
        .bias = biased ? input_of<float>(args, AttentionIn::bias) : nullptr,
        .out = output_of<T>(args, 0),
        .lse = output_of<float>(args, 1)};
    rt::launch(attend<T, head_size, special, F::kThreads>, {blocks, rt::Dim3{F::kThreads, 1, 1}},
               args.stream->handle(), arrays, spec);
  };
  return {.run = run};
}

ir::Kernel attention_gpu(const NodeView& node) {
  Attention spec = attention_of(node);
  const bool documents = node.has_input(AttentionIn::starts), biased = node.has_input(AttentionIn::bias);
  return with_constant(spec.choose_special(biased), [&](auto special) {
    return with_storage_type(node.in_type(AttentionIn::q).dtype, [&](auto q) {
      return with_head_size(spec.head_size, [&](auto head_size) {
        return make<decltype(q), head_size(), special()>(spec, documents, biased);
      });
    });
  });
}

const GpuKernels kKernels = {{.op = "attention", .one = attention_gpu}};

}  // namespace
}  // namespace hearth::ops
