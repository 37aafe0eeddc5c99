#include "ops/lm/attention_gpu.h"
#include "ops/lm/lm.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// One kernel makes dq, a block per rows of q that takes keys tile after tile; another dk and dv, a block per
/// rows of k that takes queries. Their own rows are `fixed`, the others `taken`: products of q and k, of dout
/// and v, then sums of what was taken.
template <typename T, int size>
struct Backward : Slices<T, size> {
  using Slices<T, size>::kSlice;
  static constexpr bool kNarrow = kSlice <= 64 && sizeof(T) == 2;
  static constexpr int kWarps = kNarrow ? 4 : 2;
  static constexpr int kThreads = kWarps * rt::kWarp;
  static constexpr int kFixed = kWarps * rt::kTile;
  static constexpr int kTaken = kNarrow ? 32 : 16;
  static constexpr int kTakenTiles = kTaken / rt::kTile;
  static constexpr int kOutTiles = kSlice / rt::kTile;
  static constexpr int kLine = kSlice + kPadding<T>, kTakenLine = kTaken + kPadding<T>;

  struct Shared {
    T fixed_a[kFixed * kLine], fixed_b[kFixed * kLine];
    T taken_a[kTaken * kLine], taken_b[kTaken * kLine];
    T across_a[kSlice * kTakenLine], across_b[kSlice * kTakenLine];
    T factors[kFixed * kTakenLine];
  };
  static_assert(sizeof(Shared) <= 48 * 1024);
};

template <typename T>
struct BackwardArrays {
  const T* q;
  const T* k;
  const T* v;
  const T* dout;
  const float* lse;
  const float* delta;  ///< the sum of out * dout over a head, as lse
  const int32_t* starts;
  T* dq;
  T* dk;
  T* dv;
};

/// A warp per head of a token.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    dot_heads(const T* out, const T* dout, float* delta, int64_t count, int size) {
  const int64_t head =
      static_cast<int64_t>(blockIdx.x) * (kBlockThreads / rt::kWarp) + threadIdx.x / rt::kWarp;
  if (head >= count) return;
  float sum = 0;
  for (int c = rt::lane(); c < size; c += rt::kWarp)
    sum += rt::to_float(out[head * size + c]) * rt::to_float(dout[head * size + c]);
  sum = rt::reduce_warp(sum, rt::Add());
  if (rt::lane() == 0) delta[head] = sum;
}

/// Where a block stands: its sample and its head, of keys and of queries.
template <typename T>
struct BackwardHead {
  HeadRows<T> q, k, v, dout;
  const float* lse;
  const float* delta;
  const int32_t* starts;

  RT_DEVICE BackwardHead(const BackwardArrays<T>& arrays, const Attention& spec, int sample, int head) {
    const HeadPlace place(spec, sample, head);
    q = place.queries(arrays.q, spec);
    dout = place.queries(arrays.dout, spec);
    k = place.keys(arrays.k, spec);
    v = place.keys(arrays.v, spec);
    lse = arrays.lse + place.first_token * spec.heads + head;
    delta = arrays.delta + place.first_token * spec.heads + head;
    starts = place.starts(arrays.starts);
  }
};

/// A probability and the gradient of its product of query and key.
struct Factors {
  float probability, gradient;
};
template <typename T>
RT_DEVICE Factors factors_of(const BackwardHead<T>& head, const Attention& spec, int query, int key,
                             float product, float dprobability) {
  const int start = head.starts != nullptr && query < spec.time ? head.starts[query] : 0;
  if (!spec.sees(query, key, start)) return {0.0F, 0.0F};
  const Score score = score_of(spec, product);
  const int64_t at = static_cast<int64_t>(query) * spec.heads;
  const float probability = exponential(score.value - head.lse[at]);
  return {probability, probability * (dprobability - head.delta[at]) * score.slope};
}

/// Adds what one tile of taken rows gives to a block's sums.
template <typename T, int size, bool of_keys>
struct BackwardBlock {
  using B = Backward<T, size>;
  typename B::Shared& block;
  const Attention& spec;
  int warp, part;
  bool holds_fixed = false;
  rt::Acc<T> sums_a[B::kOutTiles], sums_b[of_keys ? B::kOutTiles : 1];

  RT_DEVICE void take(const BackwardHead<T>& head, int first_fixed, int first_taken) {
    const HeadRows<T>& fixed_a = of_keys ? head.k : head.q;
    const HeadRows<T>& fixed_b = of_keys ? head.v : head.dout;
    const HeadRows<T>& taken_a = of_keys ? head.q : head.k;
    const HeadRows<T>& taken_b = of_keys ? head.dout : head.v;
    rt::Acc<T> products[B::kTakenTiles], dprobabilities[B::kTakenTiles];
    for (int slice = 0; slice < B::kSize; slice += B::kSlice) {
      rt::sync_block();
      if (B::kCount > 1 || !holds_fixed) {
        copy_lines<B::kFixed, B::kSlice>(block.fixed_a, fixed_a, first_fixed, slice);
        copy_lines<B::kFixed, B::kSlice>(block.fixed_b, fixed_b, first_fixed, slice);
        holds_fixed = true;
      }
      copy_lines<B::kTaken, B::kSlice>(block.taken_a, taken_a, first_taken, slice);
      copy_lines<B::kTaken, B::kSlice>(block.taken_b, taken_b, first_taken, slice);
      if (slice == 0) {
        copy_across<B::kTaken, B::kSlice>(block.across_a, taken_a, first_taken, part);
        if (of_keys) copy_across<B::kTaken, B::kSlice>(block.across_b, taken_b, first_taken, part);
      }
      rt::sync_block();
      const int own = warp * rt::kTile * B::kLine;
      add_products<B::kSlice>(products, block.fixed_a + own, block.taken_a);
      add_products<B::kSlice>(dprobabilities, block.fixed_b + own, block.taken_b);
    }
    RT_UNROLL
    for (int t = 0; t < B::kTakenTiles; ++t) {
      RT_UNROLL
      for (int e = 0; e < rt::kOwn; ++e) {
        const int fixed = first_fixed + warp * rt::kTile + products[t].row(e);
        const int taken = first_taken + t * rt::kTile + products[t].column(e);
        const Factors factors = factors_of(head, spec, of_keys ? taken : fixed, of_keys ? fixed : taken,
                                           products[t].at[e], dprobabilities[t].at[e]);
        products[t].at[e] = factors.gradient;
        dprobabilities[t].at[e] = factors.probability;
      }
    }
    if constexpr (of_keys) add(sums_b, dprobabilities, block.across_b);
    add(sums_a, products, block.across_a);
  }

  /// sums += factors (of this warp's fixed rows) * what was taken.
  template <int tiles>
  RT_DEVICE void add(rt::Acc<T> (&sums)[tiles], const rt::Acc<T> (&factors)[B::kTakenTiles],
                     const T* across) {
    T* own = block.factors + warp * rt::kTile * B::kTakenLine;
    rt::sync_warp();
    RT_UNROLL
    for (int t = 0; t < B::kTakenTiles; ++t) {
      RT_UNROLL
      for (int e = 0; e < rt::kOwn; ++e)
        own[factors[t].row(e) * B::kTakenLine + t * rt::kTile + factors[t].column(e)] =
            rt::from_float<T>(factors[t].at[e]);
    }
    rt::sync_warp();
    add_products<B::kTaken>(sums, own, across);
  }

  template <int tiles>
  RT_DEVICE void write(const rt::Acc<T> (&sums)[tiles], T* to, int64_t stride, int first_row) const {
    RT_UNROLL
    for (int t = 0; t < tiles; ++t) {
      RT_UNROLL
      for (int e = 0; e < rt::kOwn; ++e) {
        const int row = first_row + warp * rt::kTile + sums[t].row(e);
        const int column = part + t * rt::kTile + sums[t].column(e);
        if (row < spec.time && column < spec.size)
          to[row * stride + column] = rt::from_float<T>(sums[t].at[e]);
      }
    }
  }
};

template <typename T, int size, int threads>
__global__ void __launch_bounds__(threads) gradient_of_queries(BackwardArrays<T> arrays, Attention spec) {
  using B = Backward<T, size>;
  using Block = typename B::Shared;
  RT_SHARED(shared, Block);
  const int sample = static_cast<int>(blockIdx.z) / B::kCount, head = static_cast<int>(blockIdx.y);
  const int first_query = static_cast<int>(blockIdx.x) * B::kFixed;
  const BackwardHead<T> rows(arrays, spec, sample, head);
  BackwardBlock<T, size, false> block{shared, spec, static_cast<int>(threadIdx.x) / rt::kWarp,
                                      static_cast<int>(blockIdx.z) % B::kCount * B::kSlice};
  for (int key = 0; key < spec.time; key += B::kTaken) {
    if (any_meet(spec, rows.starts, first_query, B::kFixed, key, B::kTaken))
      block.take(rows, first_query, key);
  }
  block.write(block.sums_a, arrays.dq + (rows.q.at - arrays.q), spec.q_row(), first_query);
}

/// Every query head of the key head, one after another.
template <typename T, int size, int threads>
__global__ void __launch_bounds__(threads) gradient_of_keys(BackwardArrays<T> arrays, Attention spec) {
  using B = Backward<T, size>;
  using Block = typename B::Shared;
  RT_SHARED(shared, Block);
  const int sample = static_cast<int>(blockIdx.z) / B::kCount, group = spec.heads / spec.kv_heads;
  const int first_head = static_cast<int>(blockIdx.y) * group;
  const int first_key = static_cast<int>(blockIdx.x) * B::kFixed;
  BackwardBlock<T, size, true> block{shared, spec, static_cast<int>(threadIdx.x) / rt::kWarp,
                                     static_cast<int>(blockIdx.z) % B::kCount * B::kSlice};
  for (int head = first_head; head < first_head + group; ++head) {
    const BackwardHead<T> rows(arrays, spec, sample, head);
    for (int query = 0; query < spec.time; query += B::kTaken) {
      if (any_meet(spec, rows.starts, query, B::kTaken, first_key, B::kFixed))
        block.take(rows, first_key, query);
    }
  }
  const BackwardHead<T> rows(arrays, spec, sample, first_head);
  block.write(block.sums_a, arrays.dk + (rows.k.at - arrays.k), spec.kv_row(), first_key);
  block.write(block.sums_b, arrays.dv + (rows.v.at - arrays.v), spec.kv_row(), first_key);
}

template <typename T, int size>
ir::Kernel make(const Attention& spec, bool documents) {
  using B = Backward<T, size>;
  const int64_t num_dots = static_cast<int64_t>(spec.batch) * spec.time * spec.heads;
  const auto blocks = [&](int heads) {
    return rt::Dim3{static_cast<unsigned>(divided_up(spec.time, B::kFixed)), static_cast<unsigned>(heads),
                    static_cast<unsigned>(spec.batch * B::kCount)};
  };
  const rt::Dim3 of_queries = blocks(spec.heads), of_keys = blocks(spec.kv_heads);
  const auto run = [=](const KernelArgs& args) {
    auto* delta = reinterpret_cast<float*>(args.workspace);
    const BackwardArrays<T> arrays{
        .q = input_of<T>(args, AttentionGradIn::q),
        .k = input_of<T>(args, AttentionGradIn::k),
        .v = input_of<T>(args, AttentionGradIn::v),
        .dout = input_of<T>(args, AttentionGradIn::dout),
        .lse = input_of<float>(args, AttentionGradIn::lse),
        .delta = delta,
        .starts = documents ? input_of<int32_t>(args, AttentionGradIn::starts) : nullptr,
        .dq = output_of<T>(args, 0),
        .dk = output_of<T>(args, 1),
        .dv = output_of<T>(args, 2)};
    const rt::Dim3 threads{B::kThreads, 1, 1};
    void* stream = args.stream->handle();
    rt::launch(dot_heads<T>, {divided_up(num_dots, kBlockThreads / rt::kWarp), kBlockThreads}, stream,
               input_of<T>(args, AttentionGradIn::out), arrays.dout, delta, num_dots, spec.size);
    rt::launch(gradient_of_queries<T, size, B::kThreads>, {of_queries, threads}, stream, arrays, spec);
    rt::launch(gradient_of_keys<T, size, B::kThreads>, {of_keys, threads}, stream, arrays, spec);
  };
  return {.run = run, .workspace_bytes = num_dots * int64_t{sizeof(float)}};
}

}  // namespace

ir::Kernel attention_grad_gpu(const NodeView& node) {
  const Attention spec = attention_of(node);
  return with_storage_type(node.in_type(AttentionGradIn::q).dtype, [&](auto q) {
    return with_head_size(spec.size, [&](auto size) {
      return make<decltype(q), size()>(spec, node.has_input(AttentionGradIn::starts));
    });
  });
}

}  // namespace hearth::ops
