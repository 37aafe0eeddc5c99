#include "ops/lm/attention_gpu.h"
#include "ops/lm/lm.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// One kernel makes dq, a block per rows of q that takes keys tile after tile; another dk and dv, a block per
/// rows of k that takes queries. Their own rows are `fixed`, the others `taken`: products of q and k, of dout
/// and v, then sums of what was taken.
/// Two sums of 128 columns and scores that wait for another slice are more than fits into registers.
template <typename T, int size, bool of_keys>
using BackwardSlices = Slices<T, size, sizeof(T) == 4 || (of_keys && size > 128) ? 64 : 128>;

template <typename T, int size, bool of_keys>
struct Backward : BackwardSlices<T, size, of_keys> {
  using BackwardSlices<T, size, of_keys>::kSlice;
  static constexpr bool kNarrow = kSlice <= 64 && sizeof(T) == 2;
  static constexpr int kWarps = kNarrow || rt::kSharedBytes >= 64 * 1024 ? 4 : 2;
  static constexpr int kThreads = kWarps * rt::kWarp;
  static constexpr int kFixed = kWarps * rt::kTile;
  static constexpr int kTaken = rt::kPanelTerms<T>;
  static constexpr int kTakenTiles = kTaken / rt::kTile;
  static constexpr int kOutTiles = kSlice / rt::kTile;

  /// Whether the next tile is brought while one is worked on, and lanes load it turned too.
  static constexpr bool kAhead = rt::kLoadsSlots<T> && BackwardSlices<T, size, of_keys>::kCount == 1;

  struct Tile {
    rt::Panels<T, kTaken, kSlice> a, b;
  };
  struct NoneAcross {};
  struct OneAcross {
    rt::Panels<T, kSlice, kTaken> across_a;
  };
  struct BothAcross : OneAcross {
    rt::Panels<T, kSlice, kTaken> across_b;
  };
  using Across = std::conditional_t<of_keys, BothAcross, OneAcross>;
  struct Shared : std::conditional_t<kAhead, NoneAcross, Across> {
    rt::Panels<T, kFixed, kSlice> fixed_a, fixed_b;
    Tile taken[kAhead ? 2 : 1];
  };
  static_assert(sizeof(Shared) <= rt::kSharedBytes);
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

/// Adds what one tile of taken rows gives to a block's sums.
template <typename T, int size, bool of_keys>
struct BackwardBlock {
  using B = Backward<T, size, of_keys>;
  using Shared = typename B::Shared;
  Shared& block;
  const Attention& spec;
  int part;
  rt::PerFixed<T> lse, delta;  ///< of fixed queries
  rt::PerFixed<T, int> starts;
  float taken_lse, taken_delta;  ///< of the taken query of the lane's number
  int taken_start;
  rt::FixedAcc<T> sums_a[B::kOutTiles], sums_b[of_keys ? B::kOutTiles : 1];

  RT_DEVICE BackwardBlock(Shared& shared, const Attention& of, int first_column)
      : block(shared), spec(of), part(first_column) {}

  /// Those of the warp's own queries.
  RT_DEVICE void read_lse(const BackwardHead<T>& head, int first_query) {
    for (int i = 0; i < rt::PerFixed<T>::kCount; ++i) {
      const int own = rt::FixedAcc<T>::fixed(rt::PerFixed<T>::element(i));
      const int query = first_query + rt::warp() * rt::kTile + own;
      lse.at[i] = query < spec.time ? head.lse[static_cast<int64_t>(query) * spec.heads] : 0.0F;
      delta.at[i] = query < spec.time ? head.delta[static_cast<int64_t>(query) * spec.heads] : 0.0F;
    }
    starts = starts_of_fixed<T>(head.starts, first_query + rt::warp() * rt::kTile, spec.time);
  }

  RT_DEVICE void copy_fixed(const BackwardHead<T>& head, int first_fixed, int slice, int thread) {
    copy_rows<B::kThreads>(block.fixed_a, of_keys ? head.k : head.q, first_fixed, slice, thread);
    copy_rows<B::kThreads>(block.fixed_b, of_keys ? head.v : head.dout, first_fixed, slice, thread);
  }
  /// Starts to bring the taken rows of a tile, for the take() of that number.
  RT_DEVICE void bring(const BackwardHead<T>& head, int first_taken, int number) {
    const int thread = static_cast<int>(threadIdx.x);
    typename B::Tile& to = block.taken[number % 2];
    bring_tile<B::kThreads>(to.a, of_keys ? head.q : head.k, first_taken, thread);
    bring_tile<B::kThreads>(to.b, of_keys ? head.dout : head.v, first_taken, thread);
    rt::end_copy_group();
  }
  /// A tile that was brought, `bring_next` bringing the next one.
  template <typename Next>
  RT_DEVICE void take_brought(const BackwardHead<T>& head, const ScoreTile& tile, int number,
                              Next bring_next) {
    const typename B::Tile& taken = block.taken[number % 2];
    rt::FixedAcc<T> products[B::kTakenTiles], dprobabilities[B::kTakenTiles];
    rt::sync_block();
    bring_next();
    if constexpr (of_keys) read_taken_lse(head, tile.first_query);
    rt::wait_copies<1>();
    rt::sync_block();
    const Self self;
    add_products(products, block.fixed_a, rt::warp(), taken.a, self.lane);
    add_products(dprobabilities, block.fixed_b, rt::warp(), taken.b, self.lane);
    make_factors(products, dprobabilities, tile, self.lane);
    if constexpr (of_keys) add_taken<true>(sums_b, dprobabilities, taken.b, self.lane);
    add_taken<true>(sums_a, products, taken.a, self.lane);
  }
  /// With a single slice the fixed rows must be there already.
  RT_DEVICE void take(const BackwardHead<T>& head, const ScoreTile& tile) {
    constexpr int kThreads = B::kThreads;
    typename B::Tile& taken = block.taken[0];
    const int first_fixed = of_keys ? tile.first_key : tile.first_query;
    const int first_taken = of_keys ? tile.first_query : tile.first_key;
    const HeadRows<T>& taken_a = of_keys ? head.q : head.k;
    const HeadRows<T>& taken_b = of_keys ? head.dout : head.v;
    rt::FixedAcc<T> products[B::kTakenTiles], dprobabilities[B::kTakenTiles];
    RT_NO_UNROLL
    for (int slice = 0; slice < B::kSize; slice += B::kSlice) {
      const Self self;
      rt::sync_block();
      if (B::kCount > 1) copy_fixed(head, first_fixed, slice, self.thread);
      const bool is_own = B::kCount == 1 || slice == part;
      copy_tile<T, B::kTaken, B::kSlice, kThreads>(taken_a, first_taken, slice, self.thread,
                                                   [&](const auto& copy) {
                                                     copy.put(taken.a);
                                                     if (is_own) copy.put_across(block.across_a);
                                                   });
      copy_tile<T, B::kTaken, B::kSlice, kThreads>(taken_b, first_taken, slice, self.thread,
                                                   [&](const auto& copy) {
                                                     copy.put(taken.b);
                                                     if constexpr (of_keys) {
                                                       if (is_own) copy.put_across(block.across_b);
                                                     }
                                                   });
      if constexpr (of_keys) read_taken_lse(head, first_taken);
      rt::sync_block();
      add_products(products, block.fixed_a, rt::warp(), taken.a, self.lane);
      add_products(dprobabilities, block.fixed_b, rt::warp(), taken.b, self.lane);
    }
    const Self self;
    make_factors(products, dprobabilities, tile, self.lane);
    if constexpr (of_keys) add_taken<false>(sums_b, dprobabilities, block.across_b, self.lane);
    add_taken<false>(sums_a, products, block.across_a, self.lane);
  }

 private:
  RT_DEVICE void read_taken_lse(const BackwardHead<T>& head, int first_query) {
    static_assert(B::kTaken <= rt::kWarp);
    const int query = first_query + rt::lane() < spec.time ? first_query + rt::lane() : spec.time - 1;
    taken_lse = head.lse[static_cast<int64_t>(query) * spec.heads];
    taken_delta = head.delta[static_cast<int64_t>(query) * spec.heads];
    taken_start = head.starts != nullptr ? head.starts[query] : 0;
  }
  RT_DEVICE void make_factors(rt::FixedAcc<T> (&products)[B::kTakenTiles],
                              rt::FixedAcc<T> (&dprobabilities)[B::kTakenTiles], const ScoreTile& tile,
                              int lane) {
    const bool capped = spec.softcap != 0, masked = !tile.is_seen(spec);
    if constexpr (B::kAhead) {
      // Branches of every element cost more than the code of three ways.
      if (capped) return make_factors(products, dprobabilities, tile, lane, Known<true>(), Known<true>());
      if (masked) return make_factors(products, dprobabilities, tile, lane, Known<false>(), Known<true>());
      return make_factors(products, dprobabilities, tile, lane, Known<false>(), Known<false>());
    } else {
      // Registers for the masks of many elements cost more than branches.
      make_factors(products, dprobabilities, tile, lane, capped, masked);
    }
  }
  /// Makes probabilities of dprobabilities, and of products the gradients of the products.
  template <typename Capped, typename Masked>
  RT_DEVICE void make_factors(rt::FixedAcc<T> (&products)[B::kTakenTiles],
                              rt::FixedAcc<T> (&dprobabilities)[B::kTakenTiles], const ScoreTile& tile,
                              int lane, Capped capped, Masked masked) {
    const int first_fixed = (of_keys ? tile.first_key : tile.first_query) + rt::warp() * rt::kTile;
    RT_UNROLL
    for (int t = 0; t < B::kTakenTiles; ++t) {
      RT_UNROLL
      for (int e = 0; e < rt::kOwn; ++e) {
        const int taken = t * rt::kTile + products[t].taken(e, lane);
        float own_lse = lse[e], own_delta = delta[e];
        if constexpr (of_keys) {
          own_lse = rt::shuffle(taken_lse, taken);
          own_delta = rt::shuffle(taken_delta, taken);
        }
        const Score score = score_of(spec, products[t].at[e], capped);
        float probability = rt::fast_exp(score.value - own_lse);
        if (masked) {
          const int fixed = first_fixed + products[t].fixed(e, lane);
          const int query = of_keys ? tile.first_query + taken : fixed;
          const int key = of_keys ? fixed : tile.first_key + taken;
          int start = starts[e];
          if constexpr (of_keys) start = rt::shuffle(taken_start, taken);
          if (!spec.sees(query, key, start)) probability = 0;
        }
        // No product with what is not seen, which may be no number.
        products[t].at[e] =
            probability == 0 ? 0.0F : probability * (dprobabilities[t].at[e] - own_delta) * score.slope;
        dprobabilities[t].at[e] = probability;
      }
    }
  }
};

template <typename T, int size, int threads>
__global__ void __launch_bounds__(threads) gradient_of_queries(BackwardArrays<T> arrays, Attention spec) {
  using B = Backward<T, size, false>;
  using Block = typename B::Shared;
  RT_SHARED(shared, Block);
  const int sample = static_cast<int>(blockIdx.z) / B::kCount, head = static_cast<int>(blockIdx.y);
  const int part = static_cast<int>(blockIdx.z) % B::kCount * B::kSlice;
  // Blocks of late queries, which see the most keys, come first.
  const int first_query = static_cast<int>(gridDim.x - 1 - blockIdx.x) * B::kFixed;
  const BackwardHead<T> rows(arrays, spec, sample, head);
  BackwardBlock<T, size, false> block(shared, spec, part);
  block.read_lse(rows, first_query);
  if (B::kCount == 1) block.copy_fixed(rows, first_query, 0, static_cast<int>(threadIdx.x));
  ScoreTile tile{.first_query = first_query,
                 .num_queries = B::kFixed,
                 .first_key = 0,
                 .num_keys = B::kTaken,
                 .starts = starts_of(rows.starts, first_query, B::kFixed, spec.time)};
  if (!tile.may_be_seen(spec)) tile = tile.next(spec);
  if constexpr (B::kAhead) block.bring(rows, tile.first_key, 0);
  for (int number = 0; tile.first_key < spec.time; ++number) {
    if constexpr (B::kAhead) {
      block.take_brought(rows, tile, number,
                         [&] { block.bring(rows, tile.next(spec).first_key, number + 1); });
    } else {
      block.take(rows, tile);
    }
    tile = tile.next(spec);
  }
  write_rows(block.sums_a, arrays.dq + HeadPlace(spec, sample, head).q, spec.q_row(), spec,
             first_query + rt::warp() * rt::kTile, part);
}

/// Tiles of queries, head after head of a key head.
struct QueryTiles {
  const Attention& spec;
  int first_head, first_query;
  const int32_t* starts;  ///< of the sample, for all heads; or null
  int head;
  ScoreTile tile;

  RT_DEVICE bool exists() const { return head >= first_head; }
  /// From this one on, the first that may be seen.
  RT_DEVICE QueryTiles seen() const {
    QueryTiles found = *this;
    for (; found.exists(); --found.head) {
      for (; found.tile.first_query < spec.time; found.tile.first_query += tile.num_queries) {
        found.tile.starts = starts_of(starts, found.tile.first_query, tile.num_queries, spec.time);
        if (found.tile.may_be_seen(spec)) return found;
      }
      found.tile.first_query = first_query;
    }
    return found;
  }
  RT_DEVICE QueryTiles next() const {
    QueryTiles found = *this;
    found.tile.first_query += tile.num_queries;
    return found.seen();
  }
};

/// Every query head of the key head, one after another.
template <typename T, int size, int threads>
__global__ void __launch_bounds__(threads) gradient_of_keys(BackwardArrays<T> arrays, Attention spec) {
  using B = Backward<T, size, true>;
  using Block = typename B::Shared;
  RT_SHARED(shared, Block);
  const int sample = static_cast<int>(blockIdx.z) / B::kCount, group = spec.heads / spec.kv_heads;
  const int part = static_cast<int>(blockIdx.z) % B::kCount * B::kSlice;
  const int first_head = static_cast<int>(blockIdx.y) * group;
  const int first_key = static_cast<int>(blockIdx.x) * B::kFixed;
  // There is more room for a vector register than for another scalar one.
  BackwardBlock<T, size, true> block(shared, spec, rt::renewed(part));
  if (B::kCount == 1)
    block.copy_fixed({arrays, spec, sample, first_head}, first_key, 0, static_cast<int>(threadIdx.x));
  ScoreTile tile{.first_query = spec.causal ? first_key / B::kTaken * B::kTaken : 0,
                 .num_queries = B::kTaken,
                 .first_key = first_key,
                 .num_keys = B::kFixed,
                 .starts = {}};
  const int last_head = first_head + group - 1, first_query = tile.first_query;
  if constexpr (B::kAhead) {
    const BackwardHead<T> of_sample(arrays, spec, sample, last_head);
    QueryTiles own = QueryTiles{spec, first_head, first_query, of_sample.starts, last_head, tile}.seen();
    if (own.exists()) block.bring(of_sample, own.tile.first_query, 0);
    for (int number = 0; own.exists(); ++number) {
      const QueryTiles next = own.next();
      block.take_brought({arrays, spec, sample, own.head}, own.tile, number, [&] {
        if (!next.exists()) return rt::end_copy_group();
        block.bring({arrays, spec, sample, next.head}, next.tile.first_query, number + 1);
      });
      own.head = next.head;
      own.tile = next.tile;
    }
  } else {
    for (int head = last_head; head >= first_head; --head) {
      for (tile.first_query = first_query; tile.first_query < spec.time; tile.first_query += B::kTaken) {
        const BackwardHead<T> rows(arrays, spec, sample, rt::renewed_for_warp(head));
        tile.starts = starts_of(rows.starts, tile.first_query, B::kTaken, spec.time);
        if (tile.may_be_seen(spec)) block.take(rows, tile);
      }
    }
  }
  const HeadPlace place(spec, sample, first_head);
  const int own_key = first_key + rt::warp() * rt::kTile;
  write_rows(block.sums_a, arrays.dk + place.kv, spec.kv_row(), spec, own_key, block.part);
  write_rows(block.sums_b, arrays.dv + place.kv, spec.kv_row(), spec, own_key, block.part);
}

template <typename T, int size>
ir::Kernel make(const Attention& spec, bool documents) {
  using OfQueries = Backward<T, size, false>;
  using OfKeys = Backward<T, size, true>;
  const int64_t num_dots = static_cast<int64_t>(spec.batch) * spec.time * spec.heads;
  const auto shape = [&](auto of, int heads) {
    return rt::Shape{rt::Dim3{static_cast<unsigned>(divided_up(spec.time, of.kFixed)),
                              static_cast<unsigned>(heads), static_cast<unsigned>(spec.batch * of.kCount)},
                     rt::Dim3{static_cast<unsigned>(of.kThreads), 1, 1}};
  };
  const rt::Shape of_queries = shape(OfQueries(), spec.heads), of_keys = shape(OfKeys(), spec.kv_heads);
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
    void* stream = args.stream->handle();
    rt::launch(dot_heads<T>, {divided_up(num_dots, kBlockThreads / rt::kWarp), kBlockThreads}, stream,
               input_of<T>(args, AttentionGradIn::out), arrays.dout, delta, num_dots, spec.size);
    rt::launch(gradient_of_queries<T, size, OfQueries::kThreads>, of_queries, stream, arrays, spec);
    rt::launch(gradient_of_keys<T, size, OfKeys::kThreads>, of_keys, stream, arrays, spec);
  };
  return {.run = run, .workspace_bytes = num_dots * int64_t{sizeof(float)}};
}

ir::Kernel attention_grad_gpu(const NodeView& node) {
  const Attention spec = attention_of(node);
  return with_storage_type(node.in_type(AttentionGradIn::q).dtype, [&](auto q) {
    return with_head_size(spec.size, [&](auto size) {
      return make<decltype(q), size()>(spec, node.has_input(AttentionGradIn::starts));
    });
  });
}

const GpuKernels kKernels = {{.op = "attention_grad", .one = attention_grad_gpu}};

}  // namespace
}  // namespace hearth::ops
