#include "ops/lm/attention_grad_gpu.h"
#include "ops/lm/lm.h"
#include "ops/matmul/product_blocks.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Computes the QuerySums of all tokens and heads. One warp per token and head; blockIdx.y is the head.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    dot_heads(const T* out, const T* dout, const float* lse, QuerySums* sums, int64_t num_tokens,
              Attention spec) {
  const auto head = static_cast<int>(blockIdx.y);
  const int64_t token =
      static_cast<int64_t>(blockIdx.x) * (kBlockThreads / rt::kWarp) + threadIdx.x / rt::kWarp;
  if (token >= num_tokens) return;
  const int64_t row = token * spec.heads + head, first = row * spec.head_size;
  float sum = 0;
  for (int c = rt::lane(); c < spec.head_size; c += rt::kWarp)
    sum += rt::to_float(out[first + c]) * rt::to_float(dout[first + c]);
  sum = rt::reduce_warp(sum, rt::Add());
  if (rt::lane() == 0) sums[head * num_tokens + token] = {lse[row] * kLog2OfE, sum * spec.scale};
}

template <typename T, int head_size, bool special, int threads>
__global__ void __launch_bounds__(threads) gradient_of_queries(BackwardArrays<T> arrays, Attention spec) {
  using B = Backward<T, head_size, false>;
  using Block = typename B::Shared;
  RT_SHARED(shared, Block);
  const int sample = static_cast<int>(blockIdx.z) / B::kCount, head = static_cast<int>(blockIdx.y);
  const int part = static_cast<int>(blockIdx.z) % B::kCount * B::kSlice;
  // Blocks with the last queries start first, because with a causal mask those see the most keys.
  const int first_query = static_cast<int>(gridDim.x - 1 - blockIdx.x) * B::kStationary;
  const BackwardHead<T> rows(arrays, spec, sample, head);
  BackwardBlock<T, head_size, false, special> block(shared, spec, part, rows.k);
  block.read_lse(rows, first_query);
  block.begin(rows, first_query);
  ScoreTile tile{.first_query = first_query,
                 .num_queries = B::kStationary,
                 .first_key = 0,
                 .num_keys = B::kStreamed,
                 .starts = starts_of(rows.starts, first_query, B::kStationary, spec.time)};
  if (!tile.may_be_seen(spec)) tile = tile.next(spec);
  if constexpr (B::kSingleSlice) block.copy_async(rows, tile.first_key, 0);
  for (int number = 0; tile.first_key < spec.time; ++number) {
    if constexpr (B::kSingleSlice) {
      block.process_copied(rows, tile, number,
                           [&] { block.copy_async(rows, tile.next(spec).first_key, number + 1); });
    } else {
      block.take(rows, tile);
    }
    tile = tile.next(spec);
  }
  write_rows<B::kSharing>(block.sums_a[0], arrays.dq + HeadOffsets(spec, sample, head).q, spec.q_row(), spec,
                          first_query + block.warp_fixed_row(), block.thread_output_column());
}

/// True if dS of the tile is needed, because some query of the block of kScoreRows queries that contains the
/// tile may see its keys. Sets the tile's document starts to those of that block.
RT_DEVICE bool is_needed(ScoreTile& tile, const int32_t* starts, const Attention& spec) {
  const int first_row = tile.first_query / kScoreRows * kScoreRows;
  tile.starts = starts_of(starts, first_row, kScoreRows, spec.time);
  return tile.of_queries(first_row, kScoreRows).may_be_seen(spec);
}

/// Iterates over the needed tiles of queries of all query heads of a key head, from the last head to the
/// first.
struct QueryTiles {
  const Attention& spec;
  int first_head, first_query, end_query;
  const int32_t* starts;  ///< document starts of the sample, equal for all heads; or null
  int head;
  ScoreTile tile;

  RT_DEVICE bool exists() const { return head >= first_head; }
  /// Returns the first needed tile, from this one on.
  RT_DEVICE QueryTiles seen() const {
    QueryTiles found = *this;
    for (; found.exists(); --found.head) {
      for (; found.tile.first_query < end_query; found.tile.first_query += tile.num_queries) {
        if (is_needed(found.tile, starts, spec)) return found;
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

/// Adds the contributions of a range of queries to dk and dv of the block's keys, in a fixed order of query
/// heads, and stores dS of the range.
template <typename T, int head_size, bool special, int threads>
__global__ void __launch_bounds__(threads)
    gradient_of_keys(BackwardArrays<T> arrays, Attention spec, ScoreRange<T> range) {
  using B = Backward<T, head_size, true>;
  using Block = typename B::Shared;
  using Tiles = BackwardBlock<T, head_size, true, special>;
  RT_SHARED(shared, Block);
  const int first_key = static_cast<int>(blockIdx.x) * B::kStationary,
            last_key = first_key + B::kStationary - 1;
  if (B::kSingleSlice && range.is_hidden(spec, first_key, last_key)) return;
  const int number = static_cast<int>(blockIdx.z) / B::kCount, group = spec.heads / spec.kv_heads;
  const int sample = range.first_sample + number;
  const int part = static_cast<int>(blockIdx.z) % B::kCount * B::kSlice;
  const int first_head = (range.first_key_head + static_cast<int>(blockIdx.y)) * group;
  const int last_head = first_head + group - 1;
  // Number within the launch of query head 0 of the sample.
  const int head_0 = number * static_cast<int>(gridDim.y) * group - range.first_key_head * group;
  const auto rows_of = [&](int head) {
    return BackwardHead<T>(arrays, spec, sample, head, range.of_head(head_0 + head));
  };
  // opaque_value() keeps `part` in a vector register, because scalar (per-wave) registers are scarce here.
  Tiles block(shared, spec, rt::opaque_value(part), rows_of(first_head).q);
  block.begin(rows_of(first_head), first_key);
  const auto sums = [&] {
    const auto of_head = static_cast<int64_t>(blockIdx.z * gridDim.y + blockIdx.y);
    return range.sums + (of_head * (range.num_keys / B::kStationary) + blockIdx.x) * Tiles::kNumSums;
  };
  if constexpr (B::kSingleSlice) {
    if (!range.is_first(spec, first_key)) block.load_sums(sums());
  }
  constexpr int kRows = B::kSingleSlice ? kScoreRows : B::kStreamed;
  const int first_row = spec.causal ? first_key / kRows * kRows : 0;
  const int first_query = B::kSingleSlice && first_row < range.first_query ? range.first_query : first_row;
  ScoreTile tile{.first_query = first_query,
                 .num_queries = B::kStreamed,
                 .first_key = first_key,
                 .num_keys = B::kStationary,
                 .starts = {}};
  if constexpr (B::kSingleSlice) {
    const BackwardHead<T> of_sample = rows_of(last_head);
    QueryTiles local =
        QueryTiles{spec, first_head, first_query, range.end_query, of_sample.starts, last_head, tile}.seen();
    if (local.exists()) block.copy_async(of_sample, local.tile.first_query, 0);
    for (int step = 0; local.exists(); ++step) {
      const QueryTiles next = local.next();
      block.process_copied(rows_of(local.head), local.tile, step, [&] {
        if (!next.exists()) return rt::end_copy_group();
        block.copy_async(rows_of(next.head), next.tile.first_query, step + 1);
      });
      local.head = next.head;
      local.tile = next.tile;
    }
  } else {
    for (int head = last_head; head >= first_head; --head) {
      for (tile.first_query = first_query; tile.first_query < spec.time; tile.first_query += B::kStreamed) {
        const BackwardHead<T> rows(arrays, spec, sample, rt::opaque_uniform(head));
        tile.starts = starts_of(rows.starts, tile.first_query, B::kStreamed, spec.time);
        if (tile.may_be_seen(spec)) block.take(rows, tile);
      }
    }
  }
  if constexpr (B::kSingleSlice) {
    if (!range.is_last(spec, last_key)) return block.save_sums(sums());
  }
  const HeadOffsets place(spec, sample, first_head);
  const int own_key = first_key + block.warp_fixed_row();
  write_rows<B::kSharing>(block.sums_a[0], arrays.dk + place.kv, spec.kv_row(), spec, own_key,
                          block.thread_output_column());
  write_rows<B::kSharing>(block.sums_b[0], arrays.dv + place.kv, spec.kv_row(), spec, own_key,
                          block.thread_output_column());
}

/// Left operand of dq = dS k: HeadScores of some queries (lines), from the first key (term) of the sequence
/// on.
template <typename T>
struct ScoreRows {
  HeadScores<T> scores;
  int lines;

  RT_DEVICE bool along_terms() const { return false; }
  RT_DEVICE rt::Word16 wide(int line, int term, int lines_left, int terms_left) const {
    if (lines_left <= 0 || terms_left <= 0) return {};
    return *reinterpret_cast<const rt::Word16*>(scores.of(scores.first_query + line, term));
  }
};

/// Block size of dq = dS k.
template <int head_size>
using ScoreBlocking = Blocking<kScoreRows, head_size <= 64 ? 64 : 128, head_size <= 64 ? 4 : 2>;

/// Computes dq of a range of queries. Keys that no query of the block sees are skipped; dS is 0 for others
/// that a query does not see.
template <typename T, typename B>
__global__ void __launch_bounds__(kBlockThreads)
    multiply_scores(BackwardArrays<T> arrays, Attention spec, ScoreRange<T> range) {
  const int group = spec.heads / spec.kv_heads, head = static_cast<int>(blockIdx.y);
  const int num_slices = (spec.head_size + B::kColumns - 1) / B::kColumns;
  const int number = static_cast<int>(blockIdx.z) / num_slices;
  const HeadOffsets place(spec, range.first_sample + number, range.first_key_head * group + head);
  const int first_row = static_cast<int>(blockIdx.x) * B::kRows, first_query = range.first_query + first_row;
  const int last_query =
      (first_query + B::kRows < range.end_query ? first_query + B::kRows : range.end_query) - 1;
  const Starts starts = starts_of(place.starts(arrays.starts), first_query, B::kRows, spec.time);
  int first_key = starts.minimum < first_query ? starts.minimum : first_query;
  if (spec.window > 0 && first_key < first_query - spec.window + 1) first_key = first_query - spec.window + 1;
  const int num_queries = range.end_query - range.first_query;
  const ScoreRows<T> scores{range.of_head(number * static_cast<int>(gridDim.y) + head),
                            (num_queries + kWide - 1) / kWide * kWide};
  const AlignedOperand<T> keys{{arrays.k + place.kv, 1, spec.kv_row(), spec.head_size}};
  for_each_tile_sum<T, B>(scores, keys, first_row, static_cast<int>(blockIdx.z) % num_slices * B::kColumns,
                          {first_key / kDepth * kDepth, spec.causal ? last_query + 1 : spec.time},
                          [&](int, int) {
                            return [&](int row, int column, float sum) {
                              const int query = range.first_query + row;
                              if (query >= range.end_query || column >= spec.head_size) return;
                              arrays.dq[place.q + query * spec.q_row() + column] = rt::from_float<T>(sum);
                            };
                          });
}

/// Arrays of a run of a node.
template <typename T>
BackwardArrays<T> arrays_of(const KernelArgs& args, bool documents, bool biased) {
  return {.q = input_of<T>(args, AttentionGradIn::q),
          .k = input_of<T>(args, AttentionGradIn::k),
          .v = input_of<T>(args, AttentionGradIn::v),
          .dout = input_of<T>(args, AttentionGradIn::dout),
          .sums = reinterpret_cast<QuerySums*>(args.workspace),
          .starts = documents ? input_of<int32_t>(args, AttentionGradIn::starts) : nullptr,
          .bias = biased ? input_of<float>(args, AttentionGradIn::bias) : nullptr,
          .dq = output_of<T>(args, 0),
          .dk = output_of<T>(args, 1),
          .dv = output_of<T>(args, 2)};
}

rt::Dim3 dims(int64_t x, int64_t y, int64_t z) {
  return {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
}

template <typename T, int head_size, bool special>
void launch_queries(const Attention& spec, const BackwardArrays<T>& arrays, void* stream) {
  using B = Backward<T, head_size, false>;
  const rt::Shape shape{dims(ceil_div(spec.time, B::kStationary), spec.heads, spec.batch * B::kCount),
                        dims(B::kThreads, 1, 1)};
  rt::launch(gradient_of_queries<T, head_size, special, B::kThreads>, shape, stream, arrays, spec);
}

/// Launches the kernels of a range, for some key heads of some samples.
template <typename T, int head_size, bool special>
void launch_range(const Attention& spec, const BackwardArrays<T>& arrays, const ScoreRange<T>& range,
                  int64_t samples, int64_t key_heads, void* stream) {
  using B = Backward<T, head_size, true>;
  static_assert(kScoreRows % B::kStationary == 0 && (!B::kSingleSlice || B::kStationary % kDepth == 0));
  const int num_keys = spec.causal ? range.end_query : spec.time;
  rt::launch(
      gradient_of_keys<T, head_size, special, B::kThreads>,
      {dims(ceil_div(num_keys, B::kStationary), key_heads, samples * B::kCount), dims(B::kThreads, 1, 1)},
      stream, arrays, spec, range);
  if constexpr (B::kSingleSlice) {
    using Product = ScoreBlocking<head_size>;
    if (range.scores == nullptr) return;
    const int num_rows = range.end_query - range.first_query, group = spec.heads / spec.kv_heads;
    rt::launch(multiply_scores<T, Product>,
               {dims(ceil_div(num_rows, Product::kRows), key_heads * group,
                     samples * ceil_div(spec.head_size, Product::kColumns)),
                dims(kBlockThreads, 1, 1)},
               stream, arrays, spec, range);
  }
}

/// Calls body(first, count) for parts of [0, total) of at most `max_size` each.
template <typename Body>
void for_parts(int64_t total, int64_t max_size, Body body) {
  for (int64_t first = 0; first < total; first += max_size)
    body(static_cast<int>(first), std::min(max_size, total - first));
}

template <typename T, int head_size, bool special>
ir::Kernel make(const Attention& spec, const ScorePlan& plan, bool documents, bool biased) {
  const int64_t num_tokens = static_cast<int64_t>(spec.batch) * spec.time;
  const rt::Shape of_dots{dims(ceil_div(num_tokens, kBlockThreads / rt::kWarp), spec.heads, 1),
                          dims(kBlockThreads, 1, 1)};
  const int64_t bytes_before = ceil_div(num_tokens * spec.heads * int64_t{sizeof(QuerySums)}, 256) * 256;
  const auto run = [=](const KernelArgs& args) {
    const BackwardArrays<T> arrays = arrays_of<T>(args, documents, biased);
    void* stream = args.stream->handle();
    rt::launch(dot_heads<T>, of_dots, stream, input_of<T>(args, AttentionGradIn::out), arrays.dout,
               input_of<float>(args, AttentionGradIn::lse), reinterpret_cast<QuerySums*>(args.workspace),
               num_tokens, spec);
    if (!plan.is_stored()) launch_queries<T, head_size, special>(spec, arrays, stream);
    std::byte* const scores = args.workspace + bytes_before;
    const int64_t num_keys = ScorePlan::padded(spec.time);
    ScoreRange<T> range{.first_sample = 0,
                        .first_key_head = 0,
                        .first_query = 0,
                        .end_query = spec.time,
                        .num_keys = static_cast<int>(num_keys),
                        .head_elements = plan.queries * num_keys,
                        .scores = plan.is_stored() ? reinterpret_cast<T*>(scores) : nullptr,
                        .sums = reinterpret_cast<float*>(scores + plan.score_bytes)};
    for_parts(spec.batch, plan.samples, [&](int sample, int64_t samples) {
      range.first_sample = sample;
      for_parts(spec.kv_heads, plan.key_heads, [&](int key_head, int64_t key_heads) {
        range.first_key_head = key_head;
        for_parts(spec.time, plan.queries, [&](int query, int64_t queries) {
          range.first_query = query;
          range.end_query = query + static_cast<int>(queries);
          launch_range<T, head_size, special>(spec, arrays, range, samples, key_heads, stream);
        });
      });
    });
  };
  return {.run = run, .workspace_bytes = bytes_before + plan.score_bytes + plan.sum_bytes};
}

ir::Kernel attention_grad_gpu(const NodeView& node) {
  Attention spec = attention_of(node);
  const bool documents = node.has_input(AttentionGradIn::starts);
  const bool biased = node.has_input(AttentionGradIn::bias);
  return with_constant(spec.choose_special(biased), [&](auto special) {
    return with_storage_type(node.in_type(AttentionGradIn::q).dtype, [&](auto q) {
      return with_head_size(spec.head_size, [&](auto head_size) {
        return make<decltype(q), head_size(), special()>(spec, score_plan_of(node), documents, biased);
      });
    });
  });
}

const GpuKernels kKernels = {{.op = "attention_grad", .one = attention_grad_gpu}};

}  // namespace
}  // namespace hearth::ops
