// A block of threads keeps a few rows of queries in registers and walks over tiles of keys and values, which
// it brings to shared memory: scores by matrix tiles, softmax with a running maximum and sum per row
// (FlashAttention-2, Dao 2023, arXiv 2307.08691), then weights by values into the block's own part of the
// result. Nothing of the size time x time is ever written; lse, the logarithm of each row's sum, is what the
// backward pass needs to make the weights again.
#include "ops/lm/attention_gpu.h"

#include "ops/lm/lm.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Below every score, without a NaN in differences.
constexpr float kLowest = -1e30F;

template <typename T, int size>
struct Forward : Slices<T, size> {
  using Slices<T, size>::kSlice;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * rt::kWarp;
  static constexpr int kQueries = kWarps * rt::kTile;
  static constexpr int kKeys = kSlice <= 64 && sizeof(T) == 2 ? 64 : 32;
  static constexpr int kKeyTiles = kKeys / rt::kTile;
  static constexpr int kOutTiles = kSlice / rt::kTile;
  static constexpr int kLine = kSlice + kPadding<T>, kKeyLine = kKeys + kPadding<T>;

  struct Shared {
    T queries[kQueries * kLine];
    T keys[kKeys * kLine];
    T values[kSlice * kKeyLine];
    T probabilities[kQueries * kKeyLine];
  };
  static_assert(sizeof(Shared) <= 48 * 1024);
};

template <typename T>
struct ForwardArrays {
  const T* q;
  const T* k;
  const T* v;
  const int32_t* starts;
  T* out;
  float* lse;
};

/// A warp's rows on their way through the keys: the largest score so far, the sum of exponentials over it
/// (this lane's part), and their mean of values (arXiv 2307.08691, algorithm 1).
template <typename T, typename F>
struct RunningRows {
  rt::Acc<T> most, sum;
  rt::Acc<T> out[F::kOutTiles];

  RT_DEVICE RunningRows() {
    for (int e = 0; e < rt::kOwn; ++e) most.at[e] = kLowest;
  }
  /// Turns scores into exponentials over the largest and scales what was summed down to it.
  RT_DEVICE void take(rt::Acc<T> (&scores)[F::kKeyTiles]) {
    rt::Acc<T> largest = most;
    RT_UNROLL
    for (int t = 0; t < F::kKeyTiles; ++t) {
      for (int e = 0; e < rt::kOwn; ++e) largest.at[e] = rt::Max()(largest.at[e], scores[t].at[e]);
    }
    rt::reduce_rows(largest, rt::Max());
    RT_UNROLL
    for (int e = 0; e < rt::kOwn; ++e) {
      const float shrink = exponential(most.at[e] - largest.at[e]);
      sum.at[e] *= shrink;
      for (int t = 0; t < F::kOutTiles; ++t) out[t].at[e] *= shrink;
    }
    most = largest;
    RT_UNROLL
    for (int t = 0; t < F::kKeyTiles; ++t) {
      for (int e = 0; e < rt::kOwn; ++e) {
        const float score = scores[t].at[e];
        scores[t].at[e] = score > kLowest ? exponential(score - most.at[e]) : 0.0F;
        sum.at[e] += scores[t].at[e];
      }
    }
  }
};

/// A block per kQueries queries of a head of a sample, and per slice of the output's columns.
template <typename T, int size, int threads>
__global__ void __launch_bounds__(threads) attend(ForwardArrays<T> arrays, Attention spec) {
  using F = Forward<T, size>;
  using Block = typename F::Shared;
  RT_SHARED(block, Block);
  const int head = static_cast<int>(blockIdx.y);
  const HeadPlace place(spec, static_cast<int>(blockIdx.z) / F::kCount, head);
  const int part = static_cast<int>(blockIdx.z) % F::kCount * F::kSlice;
  const int first_query = static_cast<int>(blockIdx.x) * F::kQueries;
  const int warp = static_cast<int>(threadIdx.x) / rt::kWarp;
  const HeadRows<T> queries = place.queries(arrays.q, spec);
  const HeadRows<T> keys = place.keys(arrays.k, spec), values = place.keys(arrays.v, spec);
  const int32_t* starts = place.starts(arrays.starts);
  T* probabilities = block.probabilities + warp * rt::kTile * F::kKeyLine;
  const int own_query = first_query + warp * rt::kTile;

  RunningRows<T, F> rows;
  if (F::kCount == 1) copy_lines<F::kQueries, F::kSlice>(block.queries, queries, first_query, 0);
  for (int first_key = 0; first_key < spec.time; first_key += F::kKeys) {
    if (!any_meet(spec, starts, first_query, F::kQueries, first_key, F::kKeys)) continue;
    rt::Acc<T> scores[F::kKeyTiles];
    for (int slice = 0; slice < F::kSize; slice += F::kSlice) {
      rt::sync_block();
      if (F::kCount > 1) copy_lines<F::kQueries, F::kSlice>(block.queries, queries, first_query, slice);
      copy_lines<F::kKeys, F::kSlice>(block.keys, keys, first_key, slice);
      if (slice == 0) copy_across<F::kKeys, F::kSlice>(block.values, values, first_key, part);
      rt::sync_block();
      add_products<F::kSlice>(scores, block.queries + warp * rt::kTile * F::kLine, block.keys);
    }
    RT_UNROLL
    for (int t = 0; t < F::kKeyTiles; ++t) {
      RT_UNROLL
      for (int e = 0; e < rt::kOwn; ++e) {
        const int query = own_query + scores[t].row(e);
        const int key = first_key + t * rt::kTile + scores[t].column(e);
        const int start = starts != nullptr && query < spec.time ? starts[query] : 0;
        scores[t].at[e] = spec.sees(query, key, start) ? score_of(spec, scores[t].at[e]).value : kLowest;
      }
    }
    rows.take(scores);
    RT_UNROLL
    for (int t = 0; t < F::kKeyTiles; ++t) {
      RT_UNROLL
      for (int e = 0; e < rt::kOwn; ++e)
        probabilities[scores[t].row(e) * F::kKeyLine + t * rt::kTile + scores[t].column(e)] =
            rt::from_float<T>(scores[t].at[e]);
    }
    rt::sync_warp();
    add_products<F::kKeys>(rows.out, probabilities, block.values);
  }
  rt::reduce_rows(rows.sum, rt::Add());
  RT_UNROLL
  for (int e = 0; e < rt::kOwn; ++e) {
    const int query = own_query + rows.sum.row(e);
    if (query >= spec.time) continue;
    RT_UNROLL
    for (int t = 0; t < F::kOutTiles; ++t) {
      const int column = part + t * rt::kTile + rows.sum.column(e);
      if (column < spec.size)
        arrays.out[place.q + query * spec.q_row() + column] =
            rt::from_float<T>(rows.out[t].at[e] / rows.sum.at[e]);
    }
    if (part == 0 && rows.sum.column(e) == 0)
      arrays.lse[(place.first_token + query) * spec.heads + head] = rows.most.at[e] + logf(rows.sum.at[e]);
  }
}

template <typename T, int size>
ir::Kernel make(const Attention& spec, bool documents) {
  using F = Forward<T, size>;
  const rt::Dim3 blocks{static_cast<unsigned>(divided_up(spec.time, F::kQueries)),
                        static_cast<unsigned>(spec.heads), static_cast<unsigned>(spec.batch * F::kCount)};
  const auto run = [=](const KernelArgs& args) {
    const ForwardArrays<T> arrays{
        .q = input_of<T>(args, AttentionIn::q),
        .k = input_of<T>(args, AttentionIn::k),
        .v = input_of<T>(args, AttentionIn::v),
        .starts = documents ? input_of<int32_t>(args, AttentionIn::starts) : nullptr,
        .out = output_of<T>(args, 0),
        .lse = output_of<float>(args, 1)};
    rt::launch(attend<T, size, F::kThreads>, {blocks, rt::Dim3{F::kThreads, 1, 1}}, args.stream->handle(),
               arrays, spec);
  };
  return {.run = run};
}

}  // namespace

ir::Kernel attention_gpu(const NodeView& node) {
  const Attention spec = attention_of(node);
  return with_storage_type(node.in_type(AttentionIn::q).dtype, [&](auto q) {
    return with_head_size(spec.size, [&](auto size) {
      return make<decltype(q), size()>(spec, node.has_input(AttentionIn::starts));
    });
  });
}

}  // namespace hearth::ops
