#include <cmath>

#include "backend/cpu/simd/simd.h"
#include "ops/lm/lm.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

struct Spec {
  int64_t tokens, sequences, slots, heads, kv_heads, head_size, window;
  float scale, softcap;

  explicit Spec(const NodeView& node)
      : tokens(node.in_type(CachedAttentionIn::q).shape[0]),
        sequences(node.in_type(CachedAttentionIn::keys).shape[0]),
        slots(node.in_type(CachedAttentionIn::keys).shape[1]),
        heads(node.attrs.integer("heads")),
        kv_heads(node.attrs.integer("kv_heads")),
        head_size(node.attrs.integer("head_size")),
        window(node.attrs.integer("window")),
        scale(static_cast<float>(node.attrs.real("scale"))),
        softcap(static_cast<float>(node.attrs.real("softcap"))) {}

  int64_t kv_width() const { return kv_heads * head_size; }
  /// Returns the first column of a head's keys within a slot.
  int64_t kv_column(int64_t head) const { return head * kv_heads / heads * head_size; }
  /// Returns the first row of the cache, [sequences * slots, D], that belongs to a sequence.
  int64_t first_row(int64_t sequence) const {
    HEARTH_CHECK(sequence >= 0 && sequence < sequences);
    return sequence * slots;
  }
  /// Returns the range of its sequence's slots that the token at `position` attends to; empty for a position
  /// outside of the cache.
  Range seen(int64_t position) const {
    if (position < 0 || position >= slots) return {0, 0};
    return {window > 0 ? std::max<int64_t>(0, position - window + 1) : 0, position + 1};
  }
};

Inferred infer(const NodeView& node) {
  const Type& q = node.in_type(CachedAttentionIn::q);
  const Type& cache = node.in_type(CachedAttentionIn::keys);
  if (q.shape.rank() != 2 || q.dtype != DType::f32) return refuse_type("q", "f32[T, D]", q);
  if (cache.shape.rank() != 3) return refuse_type("the key cache", "f32[sequences, slots, D]", cache);
  const Spec spec(node);
  if (spec.kv_heads < 1 || spec.head_size < 1 || spec.heads % spec.kv_heads != 0 ||
      q.shape[1] != spec.heads * spec.head_size) {
    return refuse(fmt::format("expected heads * head_size to be {} and heads to be a multiple of kv_heads",
                              q.shape[1]));
  }
  const Type rows = f32_type({spec.tokens, spec.kv_width()});
  const Type slots = f32_type({spec.sequences, spec.slots, spec.kv_width()});
  for (const size_t i : {CachedAttentionIn::k, CachedAttentionIn::v}) {
    if (node.in_type(i) != rows) return refuse_type("k and v", to_string(rows), node.in_type(i));
  }
  for (const size_t i : {CachedAttentionIn::keys, CachedAttentionIn::values}) {
    if (node.in_type(i) != slots) return refuse_type("the caches", to_string(slots), node.in_type(i));
  }
  const Type indices{.dtype = DType::i32, .shape = {spec.tokens}};
  for (const size_t i : {CachedAttentionIn::positions, CachedAttentionIn::sequences}) {
    if (node.in_type(i) != indices)
      return refuse_type("positions and sequences", to_string(indices), node.in_type(i));
  }
  if (spec.window < 0 || !(spec.softcap >= 0)) return refuse("window and softcap must not be negative");
  return {.out = {q, slots, slots}, .error = ""};
}

/// Copies the keys or values of new tokens to their cache slots.
void store(const Spec& spec, const float* rows, const int32_t* positions, const int32_t* sequences,
           float* cache) {
  for (int64_t t = 0; t < spec.tokens; ++t) {
    if (spec.seen(positions[t]).size() == 0) continue;
    std::copy_n(rows + t * spec.kv_width(), spec.kv_width(),
                cache + (spec.first_row(sequences[t]) + positions[t]) * spec.kv_width());
  }
}

/// Computes the attention of one token in one head over the slots `seen`; `weights` is scratch with a float
/// per slot.
void attend(const Spec& spec, Range seen, const float* query, const float* keys, const float* values,
            float* weights, float* out) {
  std::fill_n(out, spec.head_size, 0.0F);
  if (seen.size() == 0) return;
  const int64_t width = spec.kv_width(), count = seen.size(), first = seen.begin * width;
  const cpu::SimdKernels& simd = cpu::simd();
  simd.dot(1, count, spec.head_size, query, spec.head_size, keys + first, width, weights, count, 1);
  for (int64_t i = 0; i < count; ++i) weights[i] *= spec.scale;
  const float max_score = simd.cap_max(weights, count, spec.softcap);
  const float sum = simd.exp_sum(weights, 1, max_score, weights, count);
  for (int64_t c = 0; c < spec.head_size; c += cpu::kPanel) {
    simd.gemm(1, std::min(cpu::kPanel, spec.head_size - c), count, weights, count, 1, values + first + c,
              width, out + c, spec.head_size, false);
  }
  for (int64_t c = 0; c < spec.head_size; ++c) out[c] /= sum;
}

Kernel kernel(const NodeView& node) {
  const Spec spec(node);
  const auto run = [spec, num_threads = node.num_threads](const KernelArgs& args) {
    const auto* positions = args.input<int32_t>(CachedAttentionIn::positions);
    const auto* sequences = args.input<int32_t>(CachedAttentionIn::sequences);
    const auto* q = args.input<float>(CachedAttentionIn::q);
    auto *out = args.output<float>(0), *keys = args.output<float>(1), *values = args.output<float>(2);
    store(spec, args.input<float>(CachedAttentionIn::k), positions, sequences, keys);
    store(spec, args.input<float>(CachedAttentionIn::v), positions, sequences, values);
    const int64_t num_rows = spec.tokens * spec.heads;
    args.threads->run([&](int thread) {
      if (thread >= num_threads) return;
      auto* weights = reinterpret_cast<float*>(args.workspace) + thread * spec.slots;
      const Range mine = split_range(num_rows, num_threads, thread);
      for (int64_t row = mine.begin; row < mine.end; ++row) {
        const int64_t token = row / spec.heads;
        const int64_t first =
            spec.first_row(sequences[token]) * spec.kv_width() + spec.kv_column(row % spec.heads);
        attend(spec, spec.seen(positions[token]), q + row * spec.head_size, keys + first, values + first,
               weights, out + row * spec.head_size);
      }
    });
  };
  const auto floats = static_cast<int64_t>(sizeof(float)) * spec.slots;
  return {.run = run, .workspace_bytes = node.num_threads * floats};
}

void reference(const ReferenceArgs& args) {
  const Spec spec(args.node);
  const auto at = [](int64_t index) { return static_cast<size_t>(index); };
  const auto first_row = [&](int64_t token) {
    return spec.first_row(static_cast<int64_t>(args.in[CachedAttentionIn::sequences][at(token)]));
  };
  for (size_t cache : {1, 2}) {
    args.out[cache] = args.in[cache + 2];
    for (int64_t t = 0; t < spec.tokens; ++t) {
      const auto slot = static_cast<int64_t>(args.in[CachedAttentionIn::positions][at(t)]);
      if (spec.seen(slot).size() == 0) continue;
      std::copy_n(args.in[cache].begin() + t * spec.kv_width(), spec.kv_width(),
                  args.out[cache].begin() + (first_row(t) + slot) * spec.kv_width());
    }
  }
  for (int64_t row = 0; row < spec.tokens * spec.heads; ++row) {
    const Range seen =
        spec.seen(static_cast<int64_t>(args.in[CachedAttentionIn::positions][at(row / spec.heads)]));
    const int64_t column = spec.kv_column(row % spec.heads), query = row * spec.head_size;
    double sum = 0;
    std::vector<double> weighted(at(spec.head_size), 0.0);
    for (int64_t slot = seen.begin; slot < seen.end; ++slot) {
      const int64_t key = (first_row(row / spec.heads) + slot) * spec.kv_width() + column;
      double score = 0;
      for (int64_t c = 0; c < spec.head_size; ++c)
        score += args.in[CachedAttentionIn::q][at(query + c)] * args.out[1][at(key + c)];
      score *= spec.scale;
      if (spec.softcap > 0) score = spec.softcap * std::tanh(score / spec.softcap);
      sum += std::exp(score);
      for (int64_t c = 0; c < spec.head_size; ++c)
        weighted[at(c)] += std::exp(score) * args.out[2][at(key + c)];
    }
    for (int64_t c = 0; c < spec.head_size; ++c)
      args.out[0][at(query + c)] = sum > 0 ? weighted[at(c)] / sum : 0;
  }
}

Cost cost(const NodeView& node) {
  const Spec spec(node);
  const auto pairs = static_cast<double>(spec.tokens * spec.heads * spec.slots);
  return {.flops = 4 * pairs * static_cast<double>(spec.head_size), .bytes = bytes_moved(node)};
}

struct Case {
  int64_t tokens, slots, heads, kv_heads, size;
  int64_t sequences = 1;
  int64_t window = 0;
  double softcap = 0;
};
Sample sample(const Case& c) {
  return {.in = {normal({c.tokens, c.heads * c.size}), normal({c.tokens, c.kv_heads * c.size}),
                 normal({c.tokens, c.kv_heads * c.size}), normal({c.sequences, c.slots, c.kv_heads * c.size}),
                 normal({c.sequences, c.slots, c.kv_heads * c.size}), labels(c.tokens, c.slots),
                 labels(c.tokens, c.sequences)},
          .attrs = {{"heads", c.heads},
                    {"kv_heads", c.kv_heads},
                    {"head_size", c.size},
                    {"scale", 1 / std::sqrt(static_cast<double>(c.size))},
                    {"window", c.window},
                    {"softcap", c.softcap}}};
}
std::vector<Sample> samples() {
  return {sample({.tokens = 1, .slots = 40, .heads = 4, .kv_heads = 2, .size = 5}),
          sample({.tokens = 1, .slots = 300, .heads = 3, .kv_heads = 1, .size = 133, .window = 9}),
          sample({.tokens = 3, .slots = 2, .heads = 2, .kv_heads = 2, .size = 64, .softcap = 1.5}),
          sample({.tokens = 8, .slots = 50, .heads = 2, .kv_heads = 1, .size = 8, .sequences = 3})};
}

}  // namespace

const OpDef cached_attention{
    .name = "cached_attention",
    .doc =
        "cached_attention(q, k, v, keys, values, positions, sequences): writes k and "
        "v to the KV caches of their sequences, then attends to them",
    .inputs = {"q", "k", "v", "keys", "values", "positions", "sequences"},
    .infer = infer,
    .no_vjp_because = "the KV cache is for generation, which has no backward pass",
    .cpu = kernel,
    .gpu = true,
    .reference = reference,
    .cost = cost,
    .precision = ir::Precision::full,
    .writes = {-1, 3, 4},
    .samples = samples};

}  // namespace hearth::ops
