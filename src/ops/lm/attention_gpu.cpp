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
  /// True if keys and values are copied asynchronously: values while the scores of their keys are computed,
  /// the next keys while weights are multiplied by values.
  static constexpr bool kAsync = rt::kLoadsSlots<T> && Slices<T, head_size>::kCount == 1;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * rt::kWarp;
  /// Tiles of queries per warp, which share the fragments of keys and values that the warp loads.
  static constexpr int kRowTiles = kAsync ? 2 : 1;
  static constexpr int kWarpQueries = kRowTiles * rt::kTile, kQueries = kWarps * kWarpQueries;
  static constexpr int kKeys = kSlice <= 64 && sizeof(T) == 2 ? 64 : 32;
  static constexpr int kKeyTiles = kKeys / rt::kTile, kOutTiles = kSlice / rt::kTile;

  struct Shared {
    rt::Panels<T, kQueries, kSlice> queries;
    rt::Panels<T, kKeys, kSlice> keys;
    std::conditional_t<kAsync, rt::Panels<T, kKeys, kSlice>, rt::Panels<T, kSlice, kKeys>> values;
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

/// Online softmax state of a tile of queries: the largest score so far, and this lane's part of the sum of
/// exponentials of the scores minus that maximum (arXiv 2307.08691, algorithm 1).
template <typename T>
struct RunningRows {
  rt::PerStationary<T> running_max, sum;

  RT_DEVICE RunningRows() {
    for (int i = 0; i < rt::PerStationary<T>::kCount; ++i) {
      running_max.at[i] = kMaskedScore;
      sum.at[i] = 0;
    }
  }
  /// Updates the running maximum with the scores of a tile of keys, rescales earlier sums and outputs to it,
  /// and replaces the scores by exponentials of their difference from it. `factor` is
  /// Attention::exponent_factor.
  template <int tiles, int out_tiles>
  RT_DEVICE void take(rt::StationaryAcc<T> (&scores)[tiles], rt::StationaryAcc<T> (&out)[out_tiles],
                      float factor) {
    rt::PerStationary<T> largest = running_max, shrink, base;
    RT_UNROLL
    for (int t = 0; t < tiles; ++t) {
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
    for (int t = 0; t < out_tiles; ++t) {
      RT_UNROLL
      for (int e = 0; e < rt::kLaneElements; ++e) out[t].at[e] *= shrink[e];
    }
    RT_UNROLL
    for (int t = 0; t < tiles; ++t) {
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

template <typename T, int tiles>
RT_DEVICE void mask(rt::StationaryAcc<T> (&scores)[tiles], const Attention& spec,
                    const rt::PerStationary<T, int>& starts, int own_query, int first_key, int lane) {
  RT_UNROLL
  for (int t = 0; t < tiles; ++t) {
    RT_UNROLL
    for (int e = 0; e < rt::kLaneElements; ++e) {
      const int query = own_query + scores[t].stationary(e, lane);
      const int key = first_key + t * rt::kTile + scores[t].streamed(e, lane);
      if (!spec.sees(query, key, starts[e])) scores[t].at[e] = kMaskedScore;
    }
    // Prevents the compiler from computing the masks of all tiles at once, which would need more registers.
    RT_UNROLL
    for (int e = 0; e < rt::kLaneElements; ++e) rt::keep_order(scores[t].at[e]);
  }
}

/// The queries of a warp, and the sums of values weighted by their exponentials.
template <typename T, typename F, bool special>
struct WarpRows {
  using Scores = rt::StationaryAcc<T>[F::kRowTiles][F::kKeyTiles];
  const Attention& spec;
  Bias bias;
  int first_query;
  rt::PerStationary<T, int> starts[F::kRowTiles];
  RunningRows<T> running[F::kRowTiles];
  rt::StationaryAcc<T> out[F::kRowTiles][F::kOutTiles];

  RT_DEVICE WarpRows(const Attention& of, const Bias& of_head, const int32_t* of_sample, int query)
      : spec(of), bias(of_head), first_query(query) {
    RT_UNROLL
    for (int r = 0; r < F::kRowTiles; ++r)
      starts[r] = starts_of_stationary<T>(of_sample, first_query + r * rt::kTile, spec.time);
  }
  /// Returns the warp's part of a tile.
  RT_DEVICE ScoreTile part_of(const ScoreTile& tile) const {
    return tile.of_queries(first_query, F::kWarpQueries);
  }
  /// Converts products of queries and keys to exponentials of masked scores, in place.
  RT_DEVICE void take(Scores& scores, const ScoreTile& tile, int lane) {
    if constexpr (special) {
      RT_UNROLL
      for (int r = 0; r < F::kRowTiles; ++r) make_special(scores[r], tile, first_query + r * rt::kTile, lane);
    }
    if (!tile.is_seen(spec)) {
      RT_UNROLL
      for (int r = 0; r < F::kRowTiles; ++r)
        mask(scores[r], spec, starts[r], first_query + r * rt::kTile, tile.first_key, lane);
    }
    RT_UNROLL
    for (int r = 0; r < F::kRowTiles; ++r) running[r].take(scores[r], out[r], spec.exponent_factor);
  }
  /// Writes outputs from column `part` on and, for the first columns, lse [tokens, heads] of a head.
  RT_DEVICE void write(const ForwardArrays<T>& arrays, const HeadOffsets& offset, int head, int part) {
    RT_UNROLL
    for (int r = 0; r < F::kRowTiles; ++r) {
      RunningRows<T>& rows = running[r];
      const int own_query = first_query + r * rt::kTile;
      rows.sum.join_lanes(rt::Add());
      RT_UNROLL
      for (int t = 0; t < F::kOutTiles; ++t) {
        RT_UNROLL
        for (int e = 0; e < rt::kLaneElements; ++e) out[r][t].at[e] /= rows.sum[e];
      }
      write_rows(out[r], arrays.out + offset.q, spec.q_row(), spec, own_query, part);
      RT_UNROLL
      for (int i = 0; i < rt::PerStationary<T>::kCount; ++i) {
        const int e = rt::PerStationary<T>::element(i), query = own_query + out[r][0].stationary(e);
        if (part == 0 && out[r][0].streamed(e) == 0 && query < spec.time)
          arrays.lse[(offset.first_token + query) * spec.heads + head] =
              (rows.running_max[e] * spec.exponent_factor + log2f(rows.sum[e])) * kLogOf2;
      }
    }
  }

 private:
  RT_DEVICE void make_special(rt::StationaryAcc<T> (&products)[F::kKeyTiles], const ScoreTile& tile,
                              int own_query, int lane) const {
    const ScoreKind score_kind = special_kind_of(spec, bias);
    if (score_kind == ScoreKind::bias) {
      make_scores(products, spec, Constant<ScoreKind::bias>(), bias, own_query, tile.first_key, lane);
    } else {
      make_scores(products, spec, score_kind, bias, own_query, tile.first_key, lane);
    }
  }
};

/// Rows of one head that a block reads.
template <typename T>
struct ForwardHead {
  HeadRows<T> queries, keys, values;
};

/// Streams all tiles of keys and values from `tile` on, asynchronously.
template <typename T, typename F, bool special>
RT_DEVICE void stream_async(typename F::Shared& block, WarpRows<T, F, special>& rows,
                            const ForwardHead<T>& head, ScoreTile tile, const Attention& spec) {
  const int thread = static_cast<int>(threadIdx.x), lane = rt::lane();
  const AsyncCopy<T, F::kKeys, F::kSlice, F::kThreads> keys(head.keys, thread), values(head.values, thread);
  keys.start(block.keys, tile.first_key);
  rt::end_copy_group();
  copy_rows<F::kThreads>(block.queries, head.queries, tile.first_query, 0, thread);
  rt::sync_block();
  const StationaryReader<T, F::kQueries, F::kSlice> reader(block.queries, rt::warp() * F::kRowTiles, lane);
  // Wider heads load their queries again for each tile, because sums need the registers.
  constexpr bool kHoldsQueries = F::kSlice <= 64;
  rt::StationaryFragment<T> held[F::kRowTiles][kHoldsQueries ? F::kOutTiles : 1];
  for_each_tile<F::kRowTiles, kHoldsQueries ? F::kOutTiles : 0>(
      [&](int r, int c) { held[r][c] = reader.load(r, c * rt::kTile); });
  const auto query = [&](int r, int c) {
    if constexpr (kHoldsQueries) return held[r][c];
    return reader.load(r, c * rt::kTile);
  };
  while (tile.first_key < spec.time) {
    const ScoreTile next = tile.next(spec);
    typename WarpRows<T, F, special>::Scores scores = {};
    rt::wait_copies<0>();
    rt::sync_block();
    values.start(block.values, tile.first_key);
    rt::end_copy_group();
    add_products(scores, query, block.keys, lane);
    rt::wait_copies<0>();
    rt::sync_block();
    keys.start(block.keys, next.first_key);
    rt::end_copy_group();
    rows.take(scores, rows.part_of(tile), lane);
    add_streamed(rows.out, scores, block.values, lane);
    tile = next;
  }
}

/// Streams all tiles of keys and values from `tile` on, a slice of columns at a time. `part` is the first
/// column of the outputs.
template <typename T, typename F, bool special>
RT_DEVICE void stream_slices(typename F::Shared& block, WarpRows<T, F, special>& rows,
                             const ForwardHead<T>& head, ScoreTile tile, const Attention& spec, int part) {
  constexpr int kThreads = F::kThreads;
  if (F::kCount == 1)
    copy_rows<kThreads>(block.queries, head.queries, tile.first_query, 0, static_cast<int>(threadIdx.x));
  for (; tile.first_key < spec.time; tile = tile.next(spec)) {
    typename WarpRows<T, F, special>::Scores scores = {};
    for (int slice = 0; slice < F::kSize; slice += F::kSlice) {
      const ThreadIndex indices;
      rt::sync_block();
      if (F::kCount > 1)
        copy_rows<kThreads>(block.queries, head.queries, tile.first_query, slice, indices.thread);
      copy_tile<T, F::kKeys, F::kSlice, kThreads>(head.keys, tile.first_key, slice, indices.thread,
                                                  [&](const auto& copy) { copy.put(block.keys); });
      if (slice == 0)
        copy_tile<T, F::kKeys, F::kSlice, kThreads>(head.values, tile.first_key, part, indices.thread,
                                                    [&](const auto& copy) { copy.put_across(block.values); });
      rt::sync_block();
      add_products(scores[0], block.queries, rt::warp(), block.keys, indices.lane);
    }
    const ThreadIndex indices;
    rows.take(scores, rows.part_of(tile), indices.lane);
    add_streamed(rows.out[0], scores[0], block.values, indices.lane);
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
  const HeadOffsets offset(spec, static_cast<int>(blockIdx.z) / F::kCount, head);
  const int part = static_cast<int>(blockIdx.z) % F::kCount * F::kSlice;
  const int first_query = static_cast<int>(gridDim.x - 1 - blockIdx.x) * F::kQueries;
  const ForwardHead<T> rows_of_head = {offset.queries(arrays.q, spec), offset.keys(arrays.k, spec),
                                       offset.keys(arrays.v, spec)};
  const int32_t* starts = offset.starts(arrays.starts);
  ScoreTile tile{.first_query = first_query,
                 .num_queries = F::kQueries,
                 .first_key = 0,
                 .num_keys = F::kKeys,
                 .starts = starts_of(starts, first_query, F::kQueries, spec.time)};
  if (!tile.may_be_seen(spec)) tile = tile.next(spec);
  WarpRows<T, F, special> rows(spec, Bias(arrays.bias, spec, head), starts,
                               first_query + rt::warp() * F::kWarpQueries);
  if constexpr (F::kAsync) {
    stream_async(block, rows, rows_of_head, tile, spec);
  } else {
    stream_slices(block, rows, rows_of_head, tile, spec, part);
  }
  rows.write(arrays, offset, head, part);
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
