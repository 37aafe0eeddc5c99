#include "ops/lm/attention_grad_gpu.h"
#include "ops/lm/lm.h"

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

/// Iterates over the tiles of queries of all query heads of a key head, from the last head to the first.
struct QueryTiles {
  const Attention& spec;
  int first_head, first_query;
  const int32_t* starts;  ///< document starts of the sample, equal for all heads; or null
  int head;
  ScoreTile tile;

  RT_DEVICE bool exists() const { return head >= first_head; }
  /// Returns the first tile, from this one on, whose queries may see the block's keys.
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

/// Computes dk and dv of the block's keys of a key head, summed over the query heads in a fixed order.
template <typename T, int head_size, bool special, int threads>
__global__ void __launch_bounds__(threads) gradient_of_keys(BackwardArrays<T> arrays, Attention spec) {
  using B = Backward<T, head_size, true>;
  using Block = typename B::Shared;
  RT_SHARED(shared, Block);
  const int sample = static_cast<int>(blockIdx.z) / B::kCount, group = spec.heads / spec.kv_heads;
  const int part = static_cast<int>(blockIdx.z) % B::kCount * B::kSlice;
  const int first_head = static_cast<int>(blockIdx.y) * group;
  const int first_key = static_cast<int>(blockIdx.x) * B::kStationary;
  // opaque_value() keeps `part` in a vector register, because scalar (per-wave) registers are scarce here.
  BackwardBlock<T, head_size, true, special> block(shared, spec, rt::opaque_value(part),
                                                   BackwardHead<T>(arrays, spec, sample, first_head).q);
  block.begin({arrays, spec, sample, first_head}, first_key);
  ScoreTile tile{.first_query = spec.causal ? first_key / B::kStreamed * B::kStreamed : 0,
                 .num_queries = B::kStreamed,
                 .first_key = first_key,
                 .num_keys = B::kStationary,
                 .starts = {}};
  const int last_head = first_head + group - 1, first_query = tile.first_query;
  if constexpr (B::kSingleSlice) {
    const BackwardHead<T> of_sample(arrays, spec, sample, last_head);
    QueryTiles local = QueryTiles{spec, first_head, first_query, of_sample.starts, last_head, tile}.seen();
    if (local.exists()) block.copy_async(of_sample, local.tile.first_query, 0);
    for (int number = 0; local.exists(); ++number) {
      const QueryTiles next = local.next();
      block.process_copied({arrays, spec, sample, local.head}, local.tile, number, [&] {
        if (!next.exists()) return rt::end_copy_group();
        block.copy_async({arrays, spec, sample, next.head}, next.tile.first_query, number + 1);
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
  const HeadOffsets place(spec, sample, first_head);
  const int own_key = first_key + block.warp_fixed_row();
  write_rows<B::kSharing>(block.sums_a[0], arrays.dk + place.kv, spec.kv_row(), spec, own_key,
                          block.thread_output_column());
  write_rows<B::kSharing>(block.sums_b[0], arrays.dv + place.kv, spec.kv_row(), spec, own_key,
                          block.thread_output_column());
}

template <typename T, int head_size, bool special>
ir::Kernel make(const Attention& spec, bool documents, bool biased) {
  using OfQueries = Backward<T, head_size, false>;
  using OfKeys = Backward<T, head_size, true>;
  const int64_t num_tokens = static_cast<int64_t>(spec.batch) * spec.time;
  const auto shape = [&](auto of, int heads) {
    return rt::Shape{rt::Dim3{static_cast<unsigned>(ceil_div(spec.time, of.kStationary)),
                              static_cast<unsigned>(heads), static_cast<unsigned>(spec.batch * of.kCount)},
                     rt::Dim3{static_cast<unsigned>(of.kThreads), 1, 1}};
  };
  const rt::Shape of_dots{rt::Dim3{static_cast<unsigned>(ceil_div(num_tokens, kBlockThreads / rt::kWarp)),
                                   static_cast<unsigned>(spec.heads), 1},
                          rt::Dim3{kBlockThreads, 1, 1}};
  const rt::Shape of_queries = shape(OfQueries(), spec.heads), of_keys = shape(OfKeys(), spec.kv_heads);
  const auto run = [=](const KernelArgs& args) {
    auto* sums = reinterpret_cast<QuerySums*>(args.workspace);
    const BackwardArrays<T> arrays{
        .q = input_of<T>(args, AttentionGradIn::q),
        .k = input_of<T>(args, AttentionGradIn::k),
        .v = input_of<T>(args, AttentionGradIn::v),
        .dout = input_of<T>(args, AttentionGradIn::dout),
        .sums = sums,
        .starts = documents ? input_of<int32_t>(args, AttentionGradIn::starts) : nullptr,
        .bias = biased ? input_of<float>(args, AttentionGradIn::bias) : nullptr,
        .dq = output_of<T>(args, 0),
        .dk = output_of<T>(args, 1),
        .dv = output_of<T>(args, 2)};
    void* stream = args.stream->handle();
    rt::launch(dot_heads<T>, of_dots, stream, input_of<T>(args, AttentionGradIn::out), arrays.dout,
               input_of<float>(args, AttentionGradIn::lse), sums, num_tokens, spec);
    rt::launch(gradient_of_queries<T, head_size, special, OfQueries::kThreads>, of_queries, stream, arrays,
               spec);
    rt::launch(gradient_of_keys<T, head_size, special, OfKeys::kThreads>, of_keys, stream, arrays, spec);
  };
  return {.run = run, .workspace_bytes = num_tokens * spec.heads * int64_t{sizeof(QuerySums)}};
}

ir::Kernel attention_grad_gpu(const NodeView& node) {
  Attention spec = attention_of(node);
  const bool documents = node.has_input(AttentionGradIn::starts);
  const bool biased = node.has_input(AttentionGradIn::bias);
  return with_constant(spec.choose_special(biased), [&](auto special) {
    return with_storage_type(node.in_type(AttentionGradIn::q).dtype, [&](auto q) {
      return with_head_size(spec.head_size, [&](auto head_size) {
        return make<decltype(q), head_size(), special()>(spec, documents, biased);
      });
    });
  });
}

const GpuKernels kKernels = {{.op = "attention_grad", .one = attention_grad_gpu}};

}  // namespace
}  // namespace hearth::ops
