#pragma once

#include "ops/lm/attention_gpu.h"

/// Shared code of the attention backward kernels.
namespace hearth::ops {

/// Column slices of the backward pass. One kernel computes dq: each block holds rows of q and streams tiles
/// of keys. Another computes dk and dv: each block holds rows of k and streams tiles of queries. The rows a
/// block holds are `fixed`, the streamed ones `taken`. Per tile: the products q k^T and dout v^T, then the
/// sums over the taken rows.
/// Two sums of 128 columns each, plus scores that are kept for another slice, exceed the register file.
template <typename T, int size, bool of_keys>
using BackwardSlices = Slices<T, size, sizeof(T) == 4 || (of_keys && size > 128) ? 64 : 128>;

/// Per-query values that a block of keys needs of the queries it streams, in the order of a lane's elements:
/// for each tile the elements of the lower half-warp, then the upper.
template <int count>
struct TakenQueries {
  alignas(16) float lse[count];
  alignas(16) float delta[count];
  alignas(16) int32_t starts[count];
};

template <typename T, int size, bool of_keys>
struct Backward : BackwardSlices<T, size, of_keys> {
  using BackwardSlices<T, size, of_keys>::kSlice;
  /// True if all columns are in shared memory at once; tiles are then copied before they are used.
  static constexpr bool kWhole = sizeof(T) == 2 && BackwardSlices<T, size, of_keys>::kCount == 1;
  /// True if a tile is copied asynchronously while another is processed (double buffering); lanes then also
  /// load tiles transposed.
  static constexpr bool kAhead = rt::kLoadsSlots<T> && kWhole;
  /// True if two warps share the same fixed rows, one side of which is in registers. Each computes the
  /// factors of half of the taken rows, exchanges them through shared memory, and accumulates half of the
  /// columns.
  static constexpr bool kPairs = kWhole && !kAhead;
  static constexpr int kSharing = kPairs ? 2 : 1;

  static constexpr bool kNarrow = kSlice <= 64 && sizeof(T) == 2;
  static constexpr int kWarps = kPairs ? 8 : kNarrow || rt::kSharedBytes >= 64 * 1024 ? 4 : 2;
  static constexpr int kThreads = kWarps * rt::kWarp;
  static constexpr int kFixed = kWarps / kSharing * rt::kTile;
  static constexpr int kTaken = rt::kPanelTerms<T>;
  static constexpr int kTakenTiles = kTaken / rt::kTile, kOwnTiles = kTakenTiles / kSharing;
  static constexpr int kSliceTiles = kSlice / rt::kTile, kOutTiles = kSliceTiles / kSharing;

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
  struct FixedB {
    rt::Panels<T, kFixed, kSlice> fixed_b;
  };
  struct Fixed : FixedB {
    rt::Panels<T, kFixed, kSlice> fixed_a;
  };
  /// Factors that the two warps of a pair exchange.
  struct FactorA : FixedB {
    rt::Panels<T, kFixed, kTaken> factors_a;
  };
  struct Factors : FactorA {
    rt::Panels<T, kFixed, kTaken> factors_b;
    TakenQueries<kTaken> queries;
  };
  using OfPairs = std::conditional_t<of_keys, Factors, FactorA>;
  struct Shared : std::conditional_t<kAhead, NoneAcross, Across>, std::conditional_t<kPairs, OfPairs, Fixed> {
    Tile taken[kAhead ? 2 : 1];
  };
  static_assert(sizeof(Shared) <= rt::kSharedBytes);
};

/// Per query and head: logsumexp of the scores, and the dot product of out and dout.
struct QuerySums {
  float lse, delta;
};

template <typename T>
struct BackwardArrays {
  const T* q;
  const T* k;
  const T* v;
  const T* dout;
  const QuerySums* sums;  ///< of all tokens, [heads, tokens]
  const int32_t* starts;
  const float* bias;
  T* dq;
  T* dk;
  T* dv;
};

/// Rows and sums of the sample, key head and query head that a block processes.
template <typename T>
struct BackwardHead {
  HeadRows<T> q, k, v, dout;
  const QuerySums* sums;
  const int32_t* starts;
  Bias bias;

  RT_DEVICE BackwardHead(const BackwardArrays<T>& arrays, const Attention& spec, int sample, int head)
      : bias(arrays.bias, spec, head) {
    const HeadPlace place(spec, sample, head);
    q = place.queries(arrays.q, spec);
    dout = place.queries(arrays.dout, spec);
    k = place.keys(arrays.k, spec);
    v = place.keys(arrays.v, spec);
    sums = arrays.sums + static_cast<int64_t>(head) * spec.batch * spec.time + place.first_token;
    starts = place.starts(arrays.starts);
  }
};

template <typename T>
inline constexpr rt::Side kFixedSide = rt::kFixedSide<rt::kPathOf<T>>;
template <typename T>
inline constexpr rt::Side kTakenSide = rt::kTakenSide<rt::kPathOf<T>>;

/// Accumulates the contribution of one tile of taken rows to a block's sums.
template <typename T, int size, bool of_keys>
struct BackwardBlock {
  using B = Backward<T, size, of_keys>;
  using Shared = typename B::Shared;
  using Move = TileMove<T, B::kTaken, B::kSlice>;
  Shared& block;
  const Attention& spec;
  int part;
  rt::PerFixed<T> lse, delta;  ///< of the fixed queries
  rt::PerFixed<T, int> starts;
  float taken_lse, taken_delta;  ///< of one taken query
  int taken_start;
  Move move;                           ///< copy of taken rows, for kPairs
  typename Move::Held next_a, next_b;  ///< the next tile, in registers until it is stored to shared memory
  rt::FixedAcc<T> sums_a[B::kOutTiles], sums_b[of_keys ? B::kOutTiles : 1];
  rt::FixedFragment<T> held_a[B::kPairs ? B::kSliceTiles : 1];

  RT_DEVICE BackwardBlock(Shared& shared, const Attention& of, int first_column, const HeadRows<T>& taken)
      : block(shared), spec(of), part(first_column), move(taken, static_cast<int>(threadIdx.x)) {}

  /// First fixed row of this warp within the block.
  RT_DEVICE static int own_fixed() { return rt::warp() / B::kSharing * rt::kTile; }
  /// Index of this warp among the warps with the same fixed rows.
  RT_DEVICE static int share() { return rt::warp() % B::kSharing; }
  /// First column of this warp's sums; warps with the same fixed rows alternate tiles of columns.
  RT_DEVICE int own_column() const { return part + share() * rt::kTile; }

  /// Reads lse and delta of this warp's queries.
  RT_DEVICE void read_lse(const BackwardHead<T>& head, int first_query) {
    for (int i = 0; i < rt::PerFixed<T>::kCount; ++i) {
      const int own = rt::FixedAcc<T>::fixed(rt::PerFixed<T>::element(i));
      const int query = first_query + own_fixed() + own;
      const QuerySums of_query = query < spec.time ? head.sums[query] : QuerySums{};
      lse.at[i] = of_query.lse;
      delta.at[i] = of_query.delta;
    }
    starts = starts_of_fixed<T>(head.starts, first_query + own_fixed(), spec.time);
  }
  /// Loads the fixed rows, once for all tiles.
  RT_DEVICE void begin(const BackwardHead<T>& head, int first_fixed) {
    if constexpr (B::kPairs) {
      hold(of_keys ? head.k : head.q, first_fixed);
      copy_rows<B::kThreads>(block.fixed_b, of_keys ? head.v : head.dout, first_fixed, 0,
                             static_cast<int>(threadIdx.x));
    } else if constexpr (B::kCount == 1) {
      copy_fixed(head, first_fixed, 0, static_cast<int>(threadIdx.x));
    }
  }

  RT_DEVICE void copy_fixed(const BackwardHead<T>& head, int first_fixed, int slice, int thread) {
    copy_rows<B::kThreads>(block.fixed_a, of_keys ? head.k : head.q, first_fixed, slice, thread);
    copy_rows<B::kThreads>(block.fixed_b, of_keys ? head.v : head.dout, first_fixed, slice, thread);
  }
  /// Starts the copy of the taken rows of tile `number`, for the take_brought() with that number.
  RT_DEVICE void bring(const BackwardHead<T>& head, int first_taken, int number) {
    if constexpr (B::kPairs) {
      read_taken(head, first_taken);
    } else {
      const int thread = static_cast<int>(threadIdx.x);
      typename B::Tile& to = block.taken[number % 2];
      bring_tile<B::kThreads>(to.a, of_keys ? head.q : head.k, first_taken, thread);
      bring_tile<B::kThreads>(to.b, of_keys ? head.dout : head.v, first_taken, thread);
      rt::end_copy_group();
    }
  }
  /// Processes a tile whose copy was started by bring(); calls bring_next to start the next copy.
  template <typename Next>
  RT_DEVICE void take_brought(const BackwardHead<T>& head, const ScoreTile& tile, int number,
                              Next bring_next) {
    if constexpr (B::kPairs) {
      take_in_pairs(head, tile, bring_next);
    } else {
      take_ahead(head, tile, number, bring_next);
    }
  }
  /// Processes a tile, including its copy. With a single slice the fixed rows must already be in shared
  /// memory.
  RT_DEVICE void take(const BackwardHead<T>& head, const ScoreTile& tile) {
    constexpr int kThreads = B::kThreads;
    typename B::Tile& taken = block.taken[0];
    // Vector registers are less scarce than scalar (per-wave) registers.
    const int first_fixed = rt::renewed(of_keys ? tile.first_key : tile.first_query);
    const int first_taken = rt::renewed(of_keys ? tile.first_query : tile.first_key);
    const HeadRows<T>& taken_a = of_keys ? head.q : head.k;
    const HeadRows<T>& taken_b = of_keys ? head.dout : head.v;
    rt::FixedAcc<T> products[B::kOwnTiles], dprobabilities[B::kOwnTiles];
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
    make_factors(products, dprobabilities, head.bias, tile, self.lane);
    if constexpr (of_keys) add_taken<false>(sums_b, dprobabilities, block.across_b, self.lane);
    add_taken<false>(sums_a, products, block.across_a, self.lane);
  }

 private:
  template <typename Next>
  RT_DEVICE void take_ahead(const BackwardHead<T>& head, const ScoreTile& tile, int number, Next bring_next) {
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
    make_factors(products, dprobabilities, head.bias, tile, self.lane);
    if constexpr (of_keys) add_taken<true>(sums_b, dprobabilities, taken.b, self.lane);
    add_taken<true>(sums_a, products, taken.a, self.lane);
  }
  template <typename Next>
  RT_DEVICE void take_in_pairs(const BackwardHead<T>& head, const ScoreTile& tile, Next bring_next) {
    rt::sync_block();
    put_taken();
    rt::sync_block();
    bring_next();
    if (part_of(tile, share()).may_be_seen(spec)) make_own_factors(part_of(tile, share()), head.bias);
    rt::sync_block();
    add_pair(tile);
  }
  using FixedReader = rt::PanelReader<T, kFixedSide<T>>;
  using TakenReader = rt::PanelReader<T, kTakenSide<T>>;
  /// Returns a reader of the lines from `tile` on.
  template <rt::Side side>
  RT_DEVICE static rt::PanelReader<T, side> reader_of(int tile, int lane) {
    rt::PanelReader<T, side> made(tile, lane);
    made.keep();
    return made;
  }
  /// Computes this warp's half of a tile's factors and shares them with the other warp of the pair.
  RT_DEVICE void make_own_factors(const ScoreTile& part, const Bias& bias) {
    const Self self;
    const typename B::Tile& taken = block.taken[0];
    rt::FixedAcc<T> products[1], dprobabilities[1];
    const FixedReader own = reader_of<kFixedSide<T>>(own_fixed() / rt::kTile, self.lane);
    const TakenReader other = reader_of<kTakenSide<T>>(share(), self.lane);
    RT_UNROLL
    for (int c = 0; c < B::kSliceTiles; ++c) {
      const int term = c * rt::kTile;
      RT_UNROLL
      for (uint32_t& word : held_a[c].words) rt::renew(word);
      rt::multiply_add(products[0], held_a[c], taken.a.load(other, 0, term));
      rt::multiply_add(dprobabilities[0], block.fixed_b.load(own, 0, term), taken.b.load(other, 0, term));
      rt::keep_order(products[0].at[0]);
      rt::keep_order(dprobabilities[0].at[0]);
    }
    make_factors(products, dprobabilities, bias, part, self.lane);
    put_factors(block.factors_a, products[0]);
    if constexpr (of_keys) put_factors(block.factors_b, dprobabilities[0]);
  }
  /// Accumulates the pair's factors into this warp's columns.
  RT_DEVICE void add_pair(const ScoreTile& tile) {
    const Self self;
    const FixedReader own = reader_of<kFixedSide<T>>(own_fixed() / rt::kTile, self.lane);
    const TakenReader column = reader_of<kTakenSide<T>>(share(), self.lane);
    RT_UNROLL
    for (int t = 0; t < B::kTakenTiles; ++t) {
      if (!part_of(tile, t).may_be_seen(spec)) continue;
      if constexpr (of_keys) add_shown(sums_b, block.factors_b, own, block.across_b, column, t);
      add_shown(sums_a, block.factors_a, own, block.across_a, column, t);
    }
  }
  /// Loads this warp's fixed rows into registers by way of panels that are not in use yet.
  RT_DEVICE void hold(const HeadRows<T>& from, int first_row) {
    copy_rows<B::kThreads>(block.fixed_b, from, first_row, 0, static_cast<int>(threadIdx.x));
    rt::sync_block();
    RT_UNROLL
    for (int c = 0; c < B::kSliceTiles; ++c)
      held_a[c] =
          block.fixed_b.template load<kFixedSide<T>>(own_fixed() / rt::kTile, c * rt::kTile, rt::lane());
    rt::sync_block();
  }
  /// Returns this warp's part of a tile: its fixed rows and one tile of the taken rows.
  RT_DEVICE ScoreTile part_of(const ScoreTile& tile, int taken_tile) const {
    const int taken = taken_tile * rt::kTile;
    return {.first_query = tile.first_query + (of_keys ? taken : own_fixed()),
            .num_queries = rt::kTile,
            .first_key = tile.first_key + (of_keys ? own_fixed() : taken),
            .num_keys = rt::kTile,
            .starts = tile.starts};
  }
  RT_DEVICE void read_taken(const BackwardHead<T>& head, int first_taken) {
    const int thread = Self().thread;
    move.read(next_a, of_keys ? head.q : head.k, first_taken, thread);
    move.read(next_b, of_keys ? head.dout : head.v, first_taken, thread);
    if constexpr (of_keys) {
      if (thread >= B::kTaken) return;
      // In the order of TakenQueries.
      const int half = thread / rt::kOwn % 2, e = thread % rt::kOwn;
      const int own = thread / rt::kTile * rt::kTile + rt::FixedAcc<T>::taken(e, half * (rt::kWarp / 2));
      read_query(head, first_taken + own);
    }
  }
  RT_DEVICE void put_taken() {
    const int thread = Self().thread;
    typename B::Tile& taken = block.taken[0];
    if (thread < Move::Copy::kMoves) {
      move.put(taken.a, next_a);
      move.put_across(block.across_a, next_a);
      move.put(taken.b, next_b);
      if constexpr (of_keys) move.put_across(block.across_b, next_b);
    }
    if constexpr (of_keys) {
      if (thread >= B::kTaken) return;
      block.queries.lse[thread] = taken_lse;
      block.queries.delta[thread] = taken_delta;
      block.queries.starts[thread] = taken_start;
    }
  }
  /// Returns the sums of the lane's element e, whose taken query is number `query` of the tile.
  RT_DEVICE QuerySums sums_of_taken(int e, int query, int lane) const {
    if constexpr (B::kPairs) {
      const int place = share() * rt::kTile + lane / (rt::kWarp / 2) * rt::kOwn + e;
      return {block.queries.lse[place], block.queries.delta[place]};
    } else {
      return {rt::shuffle(taken_lse, query), rt::shuffle(taken_delta, query)};
    }
  }
  RT_DEVICE int start_of_taken(int e, int query, int lane) const {
    if constexpr (B::kPairs) {
      return block.queries.starts[share() * rt::kTile + lane / (rt::kWarp / 2) * rt::kOwn + e];
    } else {
      return rt::shuffle(taken_start, query);
    }
  }
  RT_DEVICE void put_factors(rt::Panels<T, B::kFixed, B::kTaken>& to, const rt::FixedAcc<T>& factors) {
    rt::for_each_run<T>(rt::fixed_of(factors), [&](int line, int term, const auto& run) {
      rt::store(reinterpret_cast<T*>(to.at + to.place(own_fixed() + line, share() * rt::kTile + term)), run);
    });
  }
  /// sums += factors of tile t of the taken rows * those rows.
  RT_DEVICE void add_shown(rt::FixedAcc<T> (&sums)[B::kOutTiles],
                           const rt::Panels<T, B::kFixed, B::kTaken>& factors, const FixedReader& own,
                           const rt::Panels<T, B::kSlice, B::kTaken>& across, const TakenReader& column,
                           int t) {
    const auto shown = factors.load(own, 0, t * rt::kTile);
    RT_UNROLL
    for (int c = 0; c < B::kOutTiles; ++c) {
      rt::multiply_add(sums[c], shown, across.load(column, c * B::kSharing, t * rt::kTile));
      rt::keep_order(sums[c].at[0]);
    }
  }
  RT_DEVICE void read_taken_lse(const BackwardHead<T>& head, int first_query) {
    static_assert(B::kTaken <= rt::kWarp);
    read_query(head, first_query + rt::lane());
  }
  RT_DEVICE void read_query(const BackwardHead<T>& head, int number) {
    const int query = number < spec.time ? number : spec.time - 1;
    const QuerySums sums = head.sums[query];
    taken_lse = sums.lse;
    taken_delta = sums.delta;
    taken_start = head.starts != nullptr ? head.starts[query] : 0;
  }
  RT_DEVICE void make_factors(rt::FixedAcc<T> (&products)[B::kOwnTiles],
                              rt::FixedAcc<T> (&dprobabilities)[B::kOwnTiles], const Bias& bias,
                              const ScoreTile& tile, int lane) {
    const Special special = special_of(spec, bias);
    const bool masked = !tile.is_seen(spec);
    if constexpr (B::kWhole) {
      // Per-element branches cost more than three copies of the code.
      if (special != Special::none)
        return make_factors(products, dprobabilities, bias, tile, lane, special, Known<true>());
      if (masked)
        return make_factors(products, dprobabilities, bias, tile, lane, Known<Special::none>(),
                            Known<true>());
      return make_factors(products, dprobabilities, bias, tile, lane, Known<Special::none>(), Known<false>());
    } else {
      // The masks of many elements need registers, which cost more than branches.
      make_factors(products, dprobabilities, bias, tile, lane, special, masked);
    }
  }
  /// Turns dprobabilities into probabilities, and products into the gradients of the products.
  template <typename Kind, typename Masked>
  RT_DEVICE void make_factors(rt::FixedAcc<T> (&products)[B::kOwnTiles],
                              rt::FixedAcc<T> (&dprobabilities)[B::kOwnTiles], const Bias& bias,
                              const ScoreTile& tile, int lane, Kind special, Masked masked) {
    // The tile of a pair contains only this warp's rows.
    const int own = B::kPairs ? 0 : own_fixed();
    const int first_fixed = (of_keys ? tile.first_key : tile.first_query) + own;
    RT_UNROLL
    for (int t = 0; t < B::kOwnTiles; ++t) {
      RT_UNROLL
      for (int e = 0; e < rt::kOwn; ++e) {
        const int taken = t * rt::kTile + products[t].taken(e, lane);
        QuerySums sums = {lse[e], delta[e]};
        if constexpr (of_keys) sums = sums_of_taken(e, taken, lane);
        const int fixed = first_fixed + products[t].fixed(e, lane);
        const int query = of_keys ? tile.first_query + taken : fixed;
        const int key = of_keys ? fixed : tile.first_key + taken;
        const Score score = score_of(spec, products[t].at[e], special, bias, query, key);
        float probability = rt::fast_exp(score.value - sums.lse);
        if (masked) {
          int start = starts[e];
          if constexpr (of_keys) start = start_of_taken(e, taken, lane);
          if (!spec.sees(query, key, start)) probability = 0;
        }
        // Skips masked elements instead of multiplying by zero, because they may be NaN.
        products[t].at[e] =
            probability == 0 ? 0.0F : probability * (dprobabilities[t].at[e] - sums.delta) * score.slope;
        dprobabilities[t].at[e] = probability;
      }
    }
  }
};

}  // namespace hearth::ops
