#pragma once

#include "ops/lm/attention_grad_layout.h"

/// Shared code of the attention backward kernels.
namespace hearth::ops {

/// A block's state in the backward pass: accumulates the contributions of one tile of streamed rows after
/// another. In names, `a` is q and k, `b` is dout and v.
template <typename T, int head_size, bool of_keys, bool special>
struct BackwardBlock {
  using B = Backward<T, head_size, of_keys>;
  using Shared = typename B::Shared;
  using Move = TileMove<T, B::kStreamed, B::kSlice>;
  Shared& block;
  const Attention& spec;
  int part;
  rt::PerStationary<T> lse, delta;  ///< values of the stationary queries of this lane
  rt::PerStationary<T, int> starts;
  float streamed_lse, streamed_delta;  ///< values of the streamed query of this lane
  int streamed_start;
  int buffer = 0;                      ///< index of the streamed tile being processed
  Move move;                           ///< copy of streamed rows; used if kPairs
  typename Move::Held next_a, next_b;  ///< the next tile, in registers until it is stored to shared memory
  rt::StationaryAcc<T> sums_a[1][B::kOutTiles], sums_b[1][of_keys ? B::kOutTiles : 1];
  rt::StationaryFragment<T> held_a[B::kPairs ? B::kSliceTiles : 1];

  RT_DEVICE BackwardBlock(Shared& shared, const Attention& of, int first_column, const HeadRows<T>& streamed)
      : block(shared), spec(of), part(first_column), move(streamed, static_cast<int>(threadIdx.x)) {}

  /// Returns the index within the block of this warp's first stationary row.
  RT_DEVICE static int warp_fixed_row() { return rt::warp() / B::kSharing * rt::kTile; }
  /// Returns the index of this warp among the warps with the same stationary rows.
  RT_DEVICE static int share() { return rt::warp() % B::kSharing; }
  /// Returns the first column of this warp's sums; warps with the same stationary rows alternate tiles of
  /// columns.
  RT_DEVICE int thread_output_column() const { return part + share() * rt::kTile; }

  /// Reads lse, delta and document starts of this warp's stationary queries.
  RT_DEVICE void read_lse(const BackwardHead<T>& head, int first_query) {
    for (int i = 0; i < rt::PerStationary<T>::kCount; ++i) {
      const int local = rt::StationaryAcc<T>::stationary(rt::PerStationary<T>::element(i));
      const int query = first_query + warp_fixed_row() + local;
      const QuerySums of_query = query < spec.time ? head.sums[query] : QuerySums{};
      lse.at[i] = of_query.lse;
      delta.at[i] = of_query.delta;
    }
    starts = starts_of_stationary<T>(head.starts, first_query + warp_fixed_row(), spec.time);
  }
  /// Loads the stationary rows, which stay for all tiles; with several slices, take() loads them instead.
  RT_DEVICE void begin(const BackwardHead<T>& head, int first_stationary) {
    if constexpr (B::kPairs) {
      hold(of_keys ? head.k : head.q, first_stationary);
      copy_rows<B::kThreads>(block.fixed_b, of_keys ? head.v : head.dout, first_stationary, 0,
                             static_cast<int>(threadIdx.x));
    } else if constexpr (B::kCount == 1) {
      copy_fixed(head, first_stationary, 0, static_cast<int>(threadIdx.x));
    }
  }

  /// Number of partial sums of a block.
  static constexpr int kNumSums = 2 * B::kOutTiles * rt::kLaneElements * B::kThreads;
  /// Loads the sums that save_sums() has stored to the same address.
  RT_DEVICE void load_sums(const float* from) {
    for_each_sum([&](float* sums, int offset) {
      const auto read = rt::load<float, 4>(from + offset);
      __builtin_memcpy(sums, &read, sizeof read);
    });
  }
  RT_DEVICE void save_sums(float* to) {
    for_each_sum([&](const float* sums, int offset) { rt::store(to + offset, rt::load<float, 4>(sums)); });
  }

  RT_DEVICE void copy_fixed(const BackwardHead<T>& head, int first_stationary, int slice, int thread) {
    copy_rows<B::kThreads>(block.fixed_a, of_keys ? head.k : head.q, first_stationary, slice, thread);
    copy_rows<B::kThreads>(block.fixed_b, of_keys ? head.v : head.dout, first_stationary, slice, thread);
  }
  /// Starts the copy of a tile of streamed rows, from row `first_streamed` on: asynchronously to buffer
  /// number % 2 or, if kPairs, to registers. process_copied(number) waits for the copy and processes the
  /// tile.
  RT_DEVICE void copy_async(const BackwardHead<T>& head, int first_streamed, int number) {
    if constexpr (B::kPairs) {
      load_streamed(head, first_streamed);
    } else {
      const int thread = static_cast<int>(threadIdx.x);
      typename B::Tile& to = block.streamed[number % 2];
      using Copy = AsyncCopy<T, B::kStreamed, B::kSlice, B::kThreads>;
      Copy(of_keys ? head.q : head.k, thread).start(to.a, first_streamed);
      Copy(of_keys ? head.dout : head.v, thread).start(to.b, first_streamed);
      if constexpr (B::kCopiesSums) copy_sums(to, head, first_streamed, thread);
      rt::end_copy_group();
    }
  }
  /// Processes a tile whose copy was started by copy_async(); calls copy_next_async() to start the next copy.
  template <typename Next>
  RT_DEVICE void process_copied(const BackwardHead<T>& head, const ScoreTile& tile, int number,
                                Next copy_next_async) {
    if constexpr (B::kPairs) {
      process_in_pairs(head, tile, copy_next_async);
    } else {
      process_double_buffered(head, tile, number, copy_next_async);
    }
  }
  /// Copies a tile to shared memory and processes it. With a single slice, begin() must have loaded the
  /// stationary rows.
  RT_DEVICE void take(const BackwardHead<T>& head, const ScoreTile& tile) {
    constexpr int kThreads = B::kThreads;
    typename B::Tile& streamed = block.streamed[0];
    // opaque_value() keeps these in vector registers, because scalar (per-wave) registers are scarce here.
    const int first_stationary = rt::opaque_value(of_keys ? tile.first_key : tile.first_query);
    const int first_streamed = rt::opaque_value(of_keys ? tile.first_query : tile.first_key);
    const HeadRows<T>& taken_a = of_keys ? head.q : head.k;
    const HeadRows<T>& taken_b = of_keys ? head.dout : head.v;
    rt::StationaryAcc<T> products[B::kTilesPerWarp], dprobabilities[B::kTilesPerWarp];
    RT_NO_UNROLL
    for (int slice = 0; slice < B::kSize; slice += B::kSlice) {
      const ThreadIndex indices;
      rt::sync_block();
      if (B::kCount > 1) copy_fixed(head, first_stationary, slice, indices.thread);
      const bool is_own = B::kCount == 1 || slice == part;
      copy_tile<T, B::kStreamed, B::kSlice, kThreads>(taken_a, first_streamed, slice, indices.thread,
                                                      [&](const auto& copy) {
                                                        copy.put(streamed.a);
                                                        if (is_own) copy.put_across(block.across_a);
                                                      });
      copy_tile<T, B::kStreamed, B::kSlice, kThreads>(taken_b, first_streamed, slice, indices.thread,
                                                      [&](const auto& copy) {
                                                        copy.put(streamed.b);
                                                        if constexpr (of_keys) {
                                                          if (is_own) copy.put_across(block.across_b);
                                                        }
                                                      });
      if constexpr (of_keys) load_streamed_lse(head, first_streamed);
      rt::sync_block();
      add_products(products, block.fixed_a, rt::warp(), streamed.a, indices.lane);
      add_products(dprobabilities, block.fixed_b, rt::warp(), streamed.b, indices.lane);
    }
    const ThreadIndex indices;
    make_factors(products, dprobabilities, head.bias, tile, indices.lane);
    if constexpr (of_keys) add_streamed(sums_b[0], dprobabilities, block.across_b, indices.lane);
    add_streamed(sums_a[0], products, block.across_a, indices.lane);
  }

 private:
  /// Calls body(four sums, their offset in the block's partial sums) for all sums of this thread.
  template <typename Body>
  RT_DEVICE void for_each_sum(Body body) {
    const int thread = static_cast<int>(threadIdx.x);
    RT_UNROLL
    for (int i = 0; i < 4 * B::kOutTiles; ++i) {
      rt::StationaryAcc<T>& tile = i % 4 < 2 ? sums_a[0][i / 4] : sums_b[0][i / 4];
      body(tile.at + i % 2 * 4, (i * B::kThreads + thread) * 4);
    }
  }
  /// Stores dS of a tile, `scores`, if the head's dS is stored.
  RT_DEVICE void put_scores(const BackwardHead<T>& head, const ScoreTile& tile,
                            const rt::StationaryAcc<T> (&scores)[B::kStreamedTiles]) const {
    if (head.scores.at == nullptr) return;
    RT_UNROLL
    for (int t = 0; t < B::kStreamedTiles; ++t) {
      T* const to = head.scores.of(tile.first_query + t * rt::kTile, tile.first_key + warp_fixed_row());
      rt::for_each_run<T>(rt::stationary_of(scores[t]), [&](int line, int term, const auto& run) {
        const int64_t tiles = term / rt::kWide<T>;
        rt::store(to + (tiles * head.scores.num_keys + line) * rt::kWide<T> + term % rt::kWide<T>, run);
      });
    }
  }
  /// Stores dS of a tile from shared memory, if the head's dS is stored and kPairs. Parts that no query sees
  /// have not been computed.
  RT_DEVICE void put_exchanged_scores(const BackwardHead<T>& head, const ScoreTile& tile) const {
    static_assert(B::kThreads * rt::kWide<T> == B::kStationary * B::kStreamed);
    if (head.scores.at == nullptr) return;
    const int thread = ThreadIndex().thread, key = tile.first_key + thread % B::kStationary;
    const int local = thread / B::kStationary * rt::kWide<T>, query = tile.first_query + local;
    const ScoreTile part{.first_query = query / rt::kTile * rt::kTile,
                         .num_queries = rt::kTile,
                         .first_key = key / rt::kTile * rt::kTile,
                         .num_keys = rt::kTile,
                         .starts = tile.starts};
    rt::Word16 word = {};
    if (part.may_be_seen(spec))
      word = *reinterpret_cast<const rt::Word16*>(block.factors_a.at +
                                                  block.factors_a.offset(thread % B::kStationary, local));
    *reinterpret_cast<rt::Word16*>(head.scores.of(query, key)) = word;
  }
  RT_DEVICE void copy_sums(typename B::Tile& to, const BackwardHead<T>& head, int first_query,
                           int thread) const {
    if (thread >= B::kStreamed) return;
    const int query = first_query + thread;
    const bool exists = query < spec.time, has_start = exists && head.starts != nullptr;
    rt::copy_beside<sizeof(QuerySums)>(&to.sums[thread], head.sums + query, exists);
    rt::copy_beside<sizeof(int32_t)>(&to.starts[thread], head.starts + query, has_start);
  }
  template <typename Next>
  RT_DEVICE void process_double_buffered(const BackwardHead<T>& head, const ScoreTile& tile, int number,
                                         Next copy_next_async) {
    const typename B::Tile& streamed = block.streamed[number % 2];
    rt::StationaryAcc<T> products[1][B::kStreamedTiles], dprobabilities[1][B::kStreamedTiles];
    rt::sync_block();
    copy_next_async();
    if constexpr (of_keys && !B::kCopiesSums) load_streamed_lse(head, tile.first_query);
    rt::wait_copies<1>();
    rt::sync_block();
    if constexpr (of_keys && B::kStationary < kScoreRows) {
      if (!tile.may_be_seen(spec)) return put_scores(head, tile, products[0]);
    }
    const int lane = rt::lane();
    using Reader = StationaryReader<T, B::kStationary, B::kSlice>;
    const Reader fixed_a(block.fixed_a, rt::warp(), lane), fixed_b(block.fixed_b, rt::warp(), lane);
    add_products(
        products, [&](int, int c) { return fixed_a.load(0, c * rt::kTile); }, streamed.a, lane);
    add_products(
        dprobabilities, [&](int, int c) { return fixed_b.load(0, c * rt::kTile); }, streamed.b, lane);
    buffer = number % 2;
    make_factors(products[0], dprobabilities[0], head.bias, tile, lane);
    if constexpr (of_keys) {
      put_scores(head, tile, products[0]);
      add_streamed(sums_b, dprobabilities, streamed.b, lane);
    }
    add_streamed(sums_a, products, streamed.a, lane);
  }
  template <typename Next>
  RT_DEVICE void process_in_pairs(const BackwardHead<T>& head, const ScoreTile& tile, Next copy_next_async) {
    rt::sync_block();
    store_streamed();
    rt::sync_block();
    copy_next_async();
    if (part_of(tile, share()).may_be_seen(spec)) make_own_factors(part_of(tile, share()), head.bias);
    rt::sync_block();
    if constexpr (of_keys) put_exchanged_scores(head, tile);
    add_pair(tile);
  }
  using FixedReader = rt::PanelReader<T, kStationarySide<T>>;
  using TakenReader = rt::PanelReader<T, kStreamedSide<T>>;
  /// Returns a reader of shared memory tiles whose lines start at tile number `tile`.
  template <rt::Side side>
  RT_DEVICE static rt::PanelReader<T, side> reader_of(int tile, int lane) {
    rt::PanelReader<T, side> result(tile, lane);
    result.keep();
    return result;
  }
  /// Computes this warp's half of a tile's factors and stores them to shared memory for the other warp of the
  /// pair.
  RT_DEVICE void make_own_factors(const ScoreTile& part, const Bias& bias) {
    const ThreadIndex indices;
    const typename B::Tile& streamed = block.streamed[0];
    rt::StationaryAcc<T> products[1], dprobabilities[1];
    const FixedReader local = reader_of<kStationarySide<T>>(warp_fixed_row() / rt::kTile, indices.lane);
    const TakenReader other = reader_of<kStreamedSide<T>>(share(), indices.lane);
    RT_UNROLL
    for (int c = 0; c < B::kSliceTiles; ++c) {
      const int term = c * rt::kTile;
      RT_UNROLL
      for (uint32_t& word : held_a[c].words) rt::renew(word);
      rt::multiply_add(products[0], held_a[c], streamed.a.load(other, 0, term));
      rt::multiply_add(dprobabilities[0], block.fixed_b.load(local, 0, term),
                       streamed.b.load(other, 0, term));
      rt::keep_order(products[0].at[0]);
      rt::keep_order(dprobabilities[0].at[0]);
    }
    make_factors(products, dprobabilities, bias, part, indices.lane);
    put_factors(block.factors_a, products[0]);
    if constexpr (of_keys) put_factors(block.factors_b, dprobabilities[0]);
  }
  /// Adds the factors of both warps of the pair times the streamed rows to this warp's columns of the sums.
  RT_DEVICE void add_pair(const ScoreTile& tile) {
    const ThreadIndex indices;
    const FixedReader local = reader_of<kStationarySide<T>>(warp_fixed_row() / rt::kTile, indices.lane);
    const TakenReader column = reader_of<kStreamedSide<T>>(share(), indices.lane);
    RT_UNROLL
    for (int t = 0; t < B::kStreamedTiles; ++t) {
      if (!part_of(tile, t).may_be_seen(spec)) continue;
      if constexpr (of_keys) add_exchanged(sums_b[0], block.factors_b, local, block.across_b, column, t);
      add_exchanged(sums_a[0], block.factors_a, local, block.across_a, column, t);
    }
  }
  /// Loads this warp's stationary rows into registers (held_a), through fixed_b, which is not in use yet.
  RT_DEVICE void hold(const HeadRows<T>& from, int first_row) {
    copy_rows<B::kThreads>(block.fixed_b, from, first_row, 0, static_cast<int>(threadIdx.x));
    rt::sync_block();
    RT_UNROLL
    for (int c = 0; c < B::kSliceTiles; ++c)
      held_a[c] = block.fixed_b.template load<kStationarySide<T>>(warp_fixed_row() / rt::kTile, c * rt::kTile,
                                                                  rt::lane());
    rt::sync_block();
  }
  /// Returns the sub-tile of this warp's stationary rows and of tile `taken_tile` of the streamed rows.
  RT_DEVICE ScoreTile part_of(const ScoreTile& tile, int taken_tile) const {
    const int streamed = taken_tile * rt::kTile;
    return {.first_query = tile.first_query + (of_keys ? streamed : warp_fixed_row()),
            .num_queries = rt::kTile,
            .first_key = tile.first_key + (of_keys ? warp_fixed_row() : streamed),
            .num_keys = rt::kTile,
            .starts = tile.starts};
  }
  RT_DEVICE void load_streamed(const BackwardHead<T>& head, int first_streamed) {
    const int thread = ThreadIndex().thread;
    move.read(next_a, of_keys ? head.q : head.k, first_streamed, thread);
    move.read(next_b, of_keys ? head.dout : head.v, first_streamed, thread);
    if constexpr (of_keys) {
      if (thread >= B::kStreamed) return;
      // Thread i reads the query whose values are element i of StreamedQueries.
      const int half = thread / rt::kLaneElements % 2, e = thread % rt::kLaneElements;
      const int local =
          thread / rt::kTile * rt::kTile + rt::StationaryAcc<T>::streamed(e, half * (rt::kWarp / 2));
      read_query(head, first_streamed + local);
    }
  }
  RT_DEVICE void store_streamed() {
    const int thread = ThreadIndex().thread;
    typename B::Tile& streamed = block.streamed[0];
    if (thread < Move::Copy::kMoves) {
      move.put(streamed.a, next_a);
      move.put_across(block.across_a, next_a);
      move.put(streamed.b, next_b);
      if constexpr (of_keys) move.put_across(block.across_b, next_b);
    }
    if constexpr (of_keys) {
      if (thread >= B::kStreamed) return;
      block.queries.lse[thread] = streamed_lse;
      block.queries.delta[thread] = streamed_delta;
      block.queries.starts[thread] = streamed_start;
    }
  }
  /// Returns the QuerySums of the lane's element e, which belongs to streamed query number `query` of the
  /// tile.
  RT_DEVICE QuerySums sums_of_streamed(int e, int query, int lane) const {
    if constexpr (B::kPairs) {
      const int offset = share() * rt::kTile + lane / (rt::kWarp / 2) * rt::kLaneElements + e;
      return {block.queries.lse[offset], block.queries.delta[offset]};
    } else if constexpr (B::kCopiesSums) {
      return block.streamed[buffer].sums[query];
    } else {
      return {rt::shuffle(streamed_lse, query), rt::shuffle(streamed_delta, query)};
    }
  }
  RT_DEVICE int start_of_streamed(int e, int query, int lane) const {
    if constexpr (B::kPairs) {
      return block.queries.starts[share() * rt::kTile + lane / (rt::kWarp / 2) * rt::kLaneElements + e];
    } else if constexpr (B::kCopiesSums) {
      return block.streamed[buffer].starts[query];
    } else {
      return rt::shuffle(streamed_start, query);
    }
  }
  RT_DEVICE void put_factors(rt::Panels<T, B::kStationary, B::kStreamed>& to,
                             const rt::StationaryAcc<T>& factors) {
    rt::for_each_run<T>(rt::stationary_of(factors), [&](int line, int term, const auto& run) {
      rt::store(reinterpret_cast<T*>(to.at + to.offset(warp_fixed_row() + line, share() * rt::kTile + term)),
                run);
    });
  }
  /// Adds to `sums` the product of the factors of tile t of the streamed rows and those rows.
  RT_DEVICE void add_exchanged(rt::StationaryAcc<T> (&sums)[B::kOutTiles],
                               const rt::Panels<T, B::kStationary, B::kStreamed>& factors,
                               const FixedReader& local, const rt::Panels<T, B::kSlice, B::kStreamed>& across,
                               const TakenReader& column, int t) {
    const auto shown = factors.load(local, 0, t * rt::kTile);
    RT_UNROLL
    for (int c = 0; c < B::kOutTiles; ++c) {
      rt::multiply_add(sums[c], shown, across.load(column, c * B::kSharing, t * rt::kTile));
      rt::keep_order(sums[c].at[0]);
    }
  }
  RT_DEVICE void load_streamed_lse(const BackwardHead<T>& head, int first_query) {
    static_assert(B::kStreamed <= rt::kWarp);
    read_query(head, first_query + rt::lane());
  }
  RT_DEVICE void read_query(const BackwardHead<T>& head, int number) {
    const int query = number < spec.time ? number : spec.time - 1;
    const QuerySums sums = head.sums[query];
    streamed_lse = sums.lse;
    streamed_delta = sums.delta;
    streamed_start = head.starts != nullptr ? head.starts[query] : 0;
  }
  RT_DEVICE void make_factors(rt::StationaryAcc<T> (&products)[B::kTilesPerWarp],
                              rt::StationaryAcc<T> (&dprobabilities)[B::kTilesPerWarp], const Bias& bias,
                              const ScoreTile& tile, int lane) {
    const bool masked = !tile.is_seen(spec);
    const Constant<ScoreKind::plain> plain;
    if constexpr (special) {
      const ScoreKind score_kind = special_kind_of(spec, bias);
      make_factors(products, dprobabilities, bias, tile, lane, score_kind, masked);
    } else if constexpr (B::kSingleSlice) {
      // Two specialized versions of the code cost less than branches per element.
      if (masked) return make_factors(products, dprobabilities, bias, tile, lane, plain, Constant<true>());
      make_factors(products, dprobabilities, bias, tile, lane, plain, Constant<false>());
    } else {
      // Checked per element: precomputed masks of many elements would need too many registers.
      make_factors(products, dprobabilities, bias, tile, lane, plain, masked);
    }
  }
  /// Converts dprobabilities to probabilities, and products to the gradients of the products, in place.
  template <typename Kind, typename Masked>
  RT_DEVICE void make_factors(rt::StationaryAcc<T> (&products)[B::kTilesPerWarp],
                              rt::StationaryAcc<T> (&dprobabilities)[B::kTilesPerWarp], const Bias& bias,
                              const ScoreTile& tile, int lane, Kind score_kind, Masked masked) {
    // If kPairs, `tile` starts at this warp's first stationary row, otherwise at the block's.
    const int local = B::kPairs ? 0 : warp_fixed_row();
    const int first_stationary = (of_keys ? tile.first_key : tile.first_query) + local;
    RT_UNROLL
    for (int t = 0; t < B::kTilesPerWarp; ++t) {
      RT_UNROLL
      for (int e = 0; e < rt::kLaneElements; ++e) {
        const int streamed = t * rt::kTile + products[t].streamed(e, lane);
        QuerySums sums = {lse[e], delta[e]};
        if constexpr (of_keys) sums = sums_of_streamed(e, streamed, lane);
        const int stationary = first_stationary + products[t].stationary(e, lane);
        const int query = of_keys ? tile.first_query + streamed : stationary;
        const int key = of_keys ? stationary : tile.first_key + streamed;
        const Score score = score_of(spec, products[t].at[e], score_kind, bias, query, key);
        float probability = rt::fast_exp2(score.value * spec.exponent_factor - sums.lse);
        if (masked) {
          int start = starts[e];
          if constexpr (of_keys) start = start_of_streamed(e, streamed, lane);
          if (!spec.sees(query, key, start)) probability = 0;
        }
        const float slope = (dprobabilities[t].at[e] * spec.scale - sums.delta) * score.slope;
        // Masked elements become 0 without a multiplication, because the factors may be NaN.
        products[t].at[e] = masked && probability == 0 ? 0.0F : probability * slope;
        dprobabilities[t].at[e] = probability;
      }
    }
  }
};

}  // namespace hearth::ops
