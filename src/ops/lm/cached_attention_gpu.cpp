// Attention with a KV cache on a GPU, for decoding one or a few tokens. A head of a single token has too
// little work to fill a GPU, so its cache slots are divided among several warps (split-KV, as in
// Flash-Decoding). Three kernels: the first writes the new keys and values to the cache; the second computes
// an online softmax per warp over the warp's slots; the third merges the partial results.
#include "base/formula.h"
#include "ops/gpu_support.h"
#include "ops/lm/lm.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Target number of warps per launch, reached if there are enough slots.
constexpr int64_t kWantedWarps = 4096;
/// Minimum number of slots per warp.
constexpr int64_t kWarpSlots = 16;
/// Output columns per lane and pass; heads wider than kPassColumns are processed in several passes.
constexpr int kLaneElements = 4;
constexpr int kPassColumns = kLaneElements * rt::kWarp;

struct Spec {
  int64_t tokens, slots, heads, kv_heads, head_size, window;
  float scale, softcap;
  int64_t parts;  ///< split-KV: number of warps that divide the slots of a row (a head of a token)

  HEARTH_FORMULA int64_t rows() const { return tokens * heads; }
  HEARTH_FORMULA int64_t kv_width() const { return kv_heads * head_size; }
  /// Returns the first column of a head's keys within a slot.
  HEARTH_FORMULA int64_t kv_column(int64_t head) const { return head * kv_heads / heads * head_size; }
  HEARTH_FORMULA bool in_cache(int64_t position) const { return position >= 0 && position < slots; }
  /// Returns the first slot that the token at `position` attends to.
  HEARTH_FORMULA int64_t first_seen(int64_t position) const {
    return window > 0 && position >= window ? position - window + 1 : 0;
  }
};
Spec spec_of(const NodeView& node) {
  Spec spec{.tokens = node.in_type(CachedAttentionIn::q).shape[0],
            .slots = node.in_type(CachedAttentionIn::keys).shape[1],
            .heads = node.attrs.integer("heads"),
            .kv_heads = node.attrs.integer("kv_heads"),
            .head_size = node.attrs.integer("head_size"),
            .window = node.attrs.integer("window"),
            .scale = static_cast<float>(node.attrs.real("scale")),
            .softcap = static_cast<float>(node.attrs.real("softcap"))};
  const int64_t seen = spec.window > 0 ? std::min(spec.window, spec.slots) : spec.slots;
  spec.parts = std::clamp<int64_t>(kWantedWarps / spec.rows(), 1, ceil_div(seen, kWarpSlots));
  return spec;
}

/// Position and sequence of each token.
struct Tokens {
  const int32_t *positions, *sequences;

  HEARTH_FORMULA bool are_same(int64_t a, int64_t b) const {
    return positions[a] == positions[b] && sequences[a] == sequences[b];
  }
  /// Returns the first element of a token's sequence in the KV cache.
  HEARTH_FORMULA int64_t first_element(int64_t token, const Spec& spec) const {
    return sequences[token] * spec.slots * spec.kv_width();
  }
};

/// Writes keys and values to the cache. One block per token; if several tokens have the same position and
/// sequence, the last one is stored.
__global__ void __launch_bounds__(kBlockThreads)
    store(const float* k, const float* v, Tokens tokens, float* keys, float* values, Spec spec) {
  const int64_t token = blockIdx.x, slot = tokens.positions[token];
  if (!spec.in_cache(slot)) return;
  for (int64_t later = token + 1; later < spec.tokens; ++later) {
    if (tokens.are_same(token, later)) return;
  }
  const int64_t first = tokens.first_element(token, spec) + slot * spec.kv_width();
  for (int64_t c = threadIdx.x; c < spec.kv_width(); c += kBlockThreads) {
    keys[first + c] = k[token * spec.kv_width() + c];
    values[first + c] = v[token * spec.kv_width() + c];
  }
}

/// Partial results of split-KV attention in the workspace. Each part of a row has its largest score, the sum
/// of its weights exp(score - largest), and its sum of values times weights.
struct Parts {
  float *largest, *sums, *weighted;
  Parts(const Spec& spec, std::byte* base) : largest(reinterpret_cast<float*>(base)) {
    sums = largest + spec.rows() * spec.parts;
    weighted = sums + spec.rows() * spec.parts;
  }
  static int64_t num_bytes(const Spec& spec) {
    return spec.rows() * spec.parts * (2 + spec.head_size) * int64_t{sizeof(float)};
  }
};

/// Computes partial results: one warp per row and part processes every parts-th slot that the row's token
/// sees, with an online softmax (arXiv 1805.02867). blockIdx.y is the pass over kPassColumns columns.
__global__ void __launch_bounds__(kBlockThreads)
    attend(const float* q, const float* keys, const float* values, Tokens tokens, Spec spec, Parts parts) {
  const int64_t index = first_element() / rt::kWarp;
  if (index >= spec.rows() * spec.parts) return;
  const int64_t row = index / spec.parts, token = row / spec.heads, position = tokens.positions[token];
  const int64_t column = tokens.first_element(token, spec) + spec.kv_column(row % spec.heads);
  const float* query = q + row * spec.head_size;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kPassColumns + rt::lane();
  float largest = -3.4e38F, sum = 0, weighted[kLaneElements] = {};
  const int64_t end = spec.in_cache(position) ? position + 1 : 0;
  for (int64_t slot = spec.first_seen(position) + index % spec.parts; slot < end; slot += spec.parts) {
    const float* key = keys + slot * spec.kv_width() + column;
    const float* value = values + slot * spec.kv_width() + column;
    float score = 0;
    for (int64_t c = rt::lane(); c < spec.head_size; c += rt::kWarp) score += query[c] * key[c];
    score = spec.scale * rt::reduce_warp(score, rt::Add());
    if (spec.softcap > 0) score = spec.softcap * tanhf(score / spec.softcap);
    const float max_score = rt::Max()(score, largest);
    const float keep = expf(largest - max_score), weight = expf(score - max_score);
    largest = max_score;
    sum = sum * keep + weight;
    for (int i = 0; i < kLaneElements; ++i) {
      const int64_t c = first + i * rt::kWarp;
      weighted[i] = weighted[i] * keep + (c < spec.head_size ? weight * value[c] : 0.0F);
    }
  }
  if (blockIdx.y == 0 && rt::lane() == 0) {
    parts.largest[index] = largest;
    parts.sums[index] = sum;
  }
  for (int i = 0; i < kLaneElements; ++i) {
    const int64_t c = first + i * rt::kWarp;
    if (c < spec.head_size) parts.weighted[index * spec.head_size + c] = weighted[i];
  }
}

/// Computes the output of each row from the partial results of its parts. One block per row.
__global__ void __launch_bounds__(kBlockThreads) merge(float* out, Spec spec, Parts parts) {
  const int64_t row = blockIdx.x, first = row * spec.parts;
  float largest = -3.4e38F, sum = 0;
  for (int64_t p = first; p < first + spec.parts; ++p) largest = rt::Max()(parts.largest[p], largest);
  for (int64_t p = first; p < first + spec.parts; ++p)
    sum += parts.sums[p] * expf(parts.largest[p] - largest);
  for (int64_t c = threadIdx.x; c < spec.head_size; c += kBlockThreads) {
    float weighted = 0;
    for (int64_t p = first; p < first + spec.parts; ++p)
      weighted += parts.weighted[p * spec.head_size + c] * expf(parts.largest[p] - largest);
    out[row * spec.head_size + c] = sum > 0 ? weighted / sum : 0.0F;
  }
}

ir::Kernel cached_attention_gpu(const NodeView& node) {
  const auto run = [spec = spec_of(node)](const KernelArgs& args) {
    void* stream = args.stream->handle();
    const Parts parts(spec, args.workspace);
    const Tokens tokens{.positions = input_of<int32_t>(args, CachedAttentionIn::positions),
                        .sequences = input_of<int32_t>(args, CachedAttentionIn::sequences)};
    auto *keys = output_of<float>(args, 1), *values = output_of<float>(args, 2);
    rt::launch(store, {spec.tokens, kBlockThreads}, stream, input_of<float>(args, CachedAttentionIn::k),
               input_of<float>(args, CachedAttentionIn::v), tokens, keys, values, spec);
    const auto blocks = static_cast<unsigned>(ceil_div(spec.rows() * spec.parts * rt::kWarp, kBlockThreads));
    const auto turns = static_cast<unsigned>(ceil_div(spec.head_size, kPassColumns));
    rt::launch(attend, {rt::Dim3{blocks, turns, 1}, rt::Dim3{kBlockThreads, 1, 1}}, stream,
               input_of<float>(args, CachedAttentionIn::q), keys, values, tokens, spec, parts);
    rt::launch(merge, {spec.rows(), kBlockThreads}, stream, output_of<float>(args, 0), spec, parts);
  };
  return {.run = run, .workspace_bytes = Parts::num_bytes(spec_of(node))};
}

const GpuKernels kKernels = {{.op = "cached_attention", .one = cached_attention_gpu}};

}  // namespace
}  // namespace hearth::ops
