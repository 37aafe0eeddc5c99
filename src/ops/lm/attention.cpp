#include "ops/lm/attention_cpu.h"

#include <cmath>
#include <memory>

#include "ops/lm/lm.h"
#include "ops/lm/score_plan.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

cpu::AttentionSpec spec_of(const NodeView& node) {
  const Attrs& attrs = node.attrs;
  const int64_t batch = attrs.integer("batch");
  return {.batch = batch,
          .time = node.in_type(AttentionIn::q).shape[0] / batch,
          .heads = attrs.integer("heads"),
          .kv_heads = attrs.integer("kv_heads"),
          .head_size = attrs.integer("head_size"),
          .scale = static_cast<float>(attrs.real("scale")),
          .softcap = static_cast<float>(attrs.real_or("softcap", 0)),
          .window = attrs.integer_or("window", 0),
          .causal = attrs.integer_or("causal", 1) != 0,
          .dtype = node.in_type(AttentionIn::q).dtype,
          .num_threads = node.num_threads};
}

/// True if `count` heads of `size` elements fill rows of `width` elements.
bool heads_fit(int64_t count, int64_t size, int64_t width) {
  return count > 0 && size > 0 && width % size == 0 && width / size == count;
}

std::string check_attributes(const NodeView& node, bool starts, bool bias) {
  const int64_t batch = node.attrs.integer("batch"), tokens = node.in_type(AttentionIn::q).shape[0];
  if (batch < 1 || tokens % batch != 0)
    return fmt::format("expected a batch that divides {}, got {}", tokens, batch);
  const cpu::AttentionSpec spec = spec_of(node);
  if (spec.kv_heads < 1 || spec.heads % spec.kv_heads != 0)
    return fmt::format("expected kv_heads to divide {} heads, got {}", spec.heads, spec.kv_heads);
  if (spec.window < 0 || !(spec.softcap >= 0)) return "window and softcap must not be negative";
  if (!spec.causal && (spec.window > 0 || starts)) return "window and document starts require causal=1";
  if (bias && (spec.causal || spec.softcap > 0)) return "a bias requires causal=0 and no softcap";
  return "";
}

/// Returns an error message unless these inputs of attention or attention_grad are valid: q, k, v, the
/// document starts (input index `starts`) and the bias (the next input); empty if valid.
std::string check(const NodeView& node, size_t starts) {
  const Type& q = node.in_type(AttentionIn::q);
  const Type& k = node.in_type(AttentionIn::k);
  if (q.shape.rank() != 2 || !is_storage_float(q.dtype))
    return fmt::format("expected q to be floating [N, D], got {}", to_string(q));
  const int64_t size = node.attrs.integer("head_size");
  if (!heads_fit(node.attrs.integer("heads"), size, q.shape[1]))
    return fmt::format("expected heads * head_size to be {}", q.shape[1]);
  if (k.dtype != q.dtype || k.shape.rank() != 2 || k.shape[0] != q.shape[0] ||
      !heads_fit(node.attrs.integer("kv_heads"), size, k.shape[1]))
    return fmt::format("expected k to be {}[{}, kv_heads * head_size], got {}", dtype_name(q.dtype),
                       q.shape[0], to_string(k));
  if (node.in_type(AttentionIn::v) != k)
    return fmt::format("expected v to be {}, got {}", to_string(k), to_string(node.in_type(AttentionIn::v)));
  const bool documents = node.has_input(starts);
  if (documents && node.in_type(starts) != Type{.dtype = DType::i32, .shape = {q.shape[0]}})
    return fmt::format("expected starts to be i32[{}], got {}", q.shape[0], to_string(node.in_type(starts)));
  const bool biased = node.has_input(starts + 1);
  if (auto error = check_attributes(node, documents, biased); !error.empty() || !biased) return error;
  const int64_t time = q.shape[0] / node.attrs.integer("batch");
  const Type bias = f32_type({node.attrs.integer("heads"), time, time});
  if (node.in_type(starts + 1) == bias) return "";
  return fmt::format("expected the bias to be {}, got {}", to_string(bias),
                     to_string(node.in_type(starts + 1)));
}

Inferred infer(const NodeView& node) {
  if (auto error = check(node, AttentionIn::starts); !error.empty()) return refuse(error);
  const Type& q = node.in_type(AttentionIn::q);
  return {.out = {q, f32_type({q.shape[0], node.attrs.integer("heads")})}, .error = ""};
}

Inferred infer_grad(const NodeView& node) {
  if (auto error = check(node, AttentionGradIn::starts); !error.empty()) return refuse(error);
  const Type& q = node.in_type(AttentionGradIn::q);
  for (const size_t i : {AttentionGradIn::out, AttentionGradIn::dout}) {
    if (node.in_type(i) != q) return refuse_type("out and dout", to_string(q), node.in_type(i));
  }
  const Type lse = f32_type({q.shape[0], node.attrs.integer("heads")});
  if (node.in_type(AttentionGradIn::lse) != lse)
    return refuse_type("lse", to_string(lse), node.in_type(AttentionGradIn::lse));
  return {.out = {q, node.in_type(AttentionGradIn::k), node.in_type(AttentionGradIn::v)}, .error = ""};
}

Kernel kernel(const NodeView& node) {
  const auto attention = std::make_shared<const cpu::Attention>(spec_of(node));
  const bool documents = node.has_input(AttentionIn::starts), biased = node.has_input(AttentionIn::bias);
  const auto run = [=](const KernelArgs& args) {
    attention->forward({.q = args.in[AttentionIn::q],
                        .k = args.in[AttentionIn::k],
                        .v = args.in[AttentionIn::v],
                        .starts = documents ? args.input<int32_t>(AttentionIn::starts) : nullptr,
                        .bias = biased ? args.input<float>(AttentionIn::bias) : nullptr,
                        .out = args.out[0],
                        .lse = args.output<float>(1)},
                       args.workspace, *args.threads);
  };
  return {.run = run, .workspace_bytes = attention->forward_bytes()};
}

Kernel grad_kernel(const NodeView& node) {
  const auto attention = std::make_shared<const cpu::Attention>(spec_of(node));
  const bool documents = node.has_input(AttentionGradIn::starts);
  const bool biased = node.has_input(AttentionGradIn::bias);
  const auto run = [=](const KernelArgs& args) {
    attention->backward({.q = args.in[AttentionGradIn::q],
                         .k = args.in[AttentionGradIn::k],
                         .v = args.in[AttentionGradIn::v],
                         .out = args.in[AttentionGradIn::out],
                         .lse = args.input<float>(AttentionGradIn::lse),
                         .dout = args.in[AttentionGradIn::dout],
                         .starts = documents ? args.input<int32_t>(AttentionGradIn::starts) : nullptr,
                         .bias = biased ? args.input<float>(AttentionGradIn::bias) : nullptr,
                         .dq = args.out[0],
                         .dk = args.out[1],
                         .dv = args.out[2]},
                        args.workspace, *args.threads);
  };
  return {.run = run, .workspace_bytes = attention->backward_bytes()};
}

/// A query of one head and the keys that the mask lets it attend to.
struct VisibleKeys {
  size_t row;                ///< index of the query and head in lse
  size_t query;              ///< element offset of the query
  std::vector<size_t> keys;  ///< element offsets of the keys
  size_t bias;  ///< element offset in the bias of the row of this query; with a bias, no key is masked
};

/// Calls body(VisibleKeys) for every query of every head, by the definition of the mask.
template <typename Body>
void for_queries(const NodeView& node, const std::vector<double>* starts, Body body) {
  const cpu::AttentionSpec s = spec_of(node);
  for (int64_t row = 0; row < s.batch * s.time * s.heads; ++row) {
    const int64_t token = row / s.heads, head = row % s.heads;
    const int64_t t = token % s.time, sample = token / s.time;
    VisibleKeys visible_keys{.row = static_cast<size_t>(row),
                             .query = static_cast<size_t>(row * s.head_size),
                             .keys = {},
                             .bias = static_cast<size_t>((head * s.time + t) * s.time)};
    for (int64_t j = 0; j < (s.causal ? t + 1 : s.time); ++j) {
      if (s.window > 0 && t - j >= s.window) continue;
      if (starts != nullptr && j != t && static_cast<double>(j) < (*starts)[static_cast<size_t>(token)])
        continue;
      const int64_t kv_head = head * s.kv_heads / s.heads;
      visible_keys.keys.push_back(
          static_cast<size_t>(((sample * s.time + j) * s.kv_heads + kv_head) * s.head_size));
    }
    body(visible_keys);
  }
}

double dot(const std::vector<double>& a, size_t at_a, const std::vector<double>& b, size_t at_b,
           size_t count) {
  double sum = 0;
  for (size_t c = 0; c < count; ++c) sum += a[at_a + c] * b[at_b + c];
  return sum;
}

/// An attention score, and its derivative with respect to the unscaled product q . k.
struct Score {
  double value;
  double slope;
};
/// Returns the score of visible_keys.keys[key]; `bias` is the index of the bias input.
Score score(const ReferenceArgs& args, const VisibleKeys& visible_keys, size_t key, size_t size,
            size_t bias) {
  const double cap = args.node.attrs.real_or("softcap", 0), scale = args.node.attrs.real("scale");
  double plain = scale * dot(args.in[AttentionIn::q], visible_keys.query, args.in[AttentionIn::k],
                             visible_keys.keys[key], size);
  if (args.node.has_input(bias)) plain += args.in[bias][visible_keys.bias + key];
  if (cap == 0) return {plain, scale};
  const double t = std::tanh(plain / cap);
  return {cap * t, scale * (1 - t * t)};
}

const std::vector<double>* starts_of(const ReferenceArgs& args, size_t index) {
  return args.node.has_input(index) ? &args.in[index] : nullptr;
}

void reference(const ReferenceArgs& args) {
  const auto size = static_cast<size_t>(args.node.attrs.integer("head_size"));
  std::fill(args.out[0].begin(), args.out[0].end(), 0.0);
  for_queries(args.node, starts_of(args, AttentionIn::starts), [&](const VisibleKeys& visible_keys) {
    const auto exponential = [&](size_t key) {
      return std::exp(score(args, visible_keys, key, size, AttentionIn::bias).value);
    };
    double sum = 0;
    for (size_t key = 0; key < visible_keys.keys.size(); ++key) sum += exponential(key);
    for (size_t key = 0; key < visible_keys.keys.size(); ++key) {
      const double p = exponential(key) / sum;
      for (size_t c = 0; c < size; ++c)
        args.out[0][visible_keys.query + c] += p * args.in[AttentionIn::v][visible_keys.keys[key] + c];
    }
    args.out[1][visible_keys.row] = std::log(sum);
  });
}

void grad_reference(const ReferenceArgs& args) {
  const auto size = static_cast<size_t>(args.node.attrs.integer("head_size"));
  const std::vector<double>&q = args.in[AttentionGradIn::q], &k = args.in[AttentionGradIn::k],
        &v = args.in[AttentionGradIn::v], &dout = args.in[AttentionGradIn::dout];
  for (auto& out : args.out) std::fill(out.begin(), out.end(), 0.0);
  for_queries(args.node, starts_of(args, AttentionGradIn::starts), [&](const VisibleKeys& visible_keys) {
    const size_t query = visible_keys.query;
    const double delta = dot(dout, query, args.in[AttentionGradIn::out], query, size);
    for (size_t number = 0; number < visible_keys.keys.size(); ++number) {
      const size_t key = visible_keys.keys[number];
      const Score s = score(args, visible_keys, number, size, AttentionGradIn::bias);
      const double p = std::exp(s.value - args.in[AttentionGradIn::lse][visible_keys.row]);
      const double ds = p * (dot(dout, query, v, key, size) - delta) * s.slope;
      for (size_t c = 0; c < size; ++c) {
        args.out[0][query + c] += ds * k[key + c];
        args.out[1][key + c] += ds * q[query + c];
        args.out[2][key + c] += p * dout[query + c];
      }
    }
  });
}

std::vector<ValueId> vjp(const VjpContext& context) {
  std::vector<ValueId> grads(context.node.inputs.size(), kNone);
  if (context.grad_out[0] == kNone) return grads;
  const ir::Node& node = context.node;
  std::vector<ValueId> inputs = {node.inputs[AttentionIn::q],
                                 node.inputs[AttentionIn::k],
                                 node.inputs[AttentionIn::v],
                                 node.outputs[0],
                                 node.outputs[1],
                                 context.grad_out[0]};
  for (size_t i = AttentionIn::starts; i < node.inputs.size(); ++i) inputs.push_back(node.inputs[i]);
  const auto result = context.graph.add(attention_grad, inputs, node.attrs, node.name);
  std::copy_n(result.begin(), 3, grads.begin());
  return grads;
}

/// Returns the cost of `matmuls` matmuls over all pairs of a query and a visible key.
Cost cost_of_matmuls(const NodeView& node, double matmuls, KernelKind kernel) {
  const cpu::AttentionSpec s = spec_of(node);
  const auto time = static_cast<double>(s.time);
  const auto seen = s.window > 0 ? std::min(time, static_cast<double>(s.window)) : time;
  const double pairs = s.causal ? seen * (time - (seen - 1) / 2) : time * time;
  return {.flops = 2 * matmuls * static_cast<double>(s.batch * s.heads * s.head_size) * pairs,
          .bytes = bytes_moved(node),
          .kernel = kernel};
}
Cost cost(const NodeView& node) { return cost_of_matmuls(node, 2, KernelKind::attention); }
Cost grad_cost(const NodeView& node) {
  const bool large = spec_of(node).head_size > 64;
  Cost cost =
      cost_of_matmuls(node, 5, large ? KernelKind::attention_grad_large_heads : KernelKind::attention_grad);
  // Without stored dS, two of seven matmuls recompute scores.
  if (dtype_bytes(node.in_type(0).dtype) == 2 && !score_plan_of(node).is_stored()) cost.filled = 5.0 / 7;
  return cost;
}
std::optional<Attrs> without_scores(const NodeView& node) {
  if (!score_plan_of(node).is_stored()) return std::nullopt;
  Attrs attrs = node.attrs;
  attrs.set("score_bytes", int64_t{0});
  return attrs;
}

struct Case {
  int64_t batch, time, heads, kv_heads, size;
  int64_t causal = 1, window = 0;
  double softcap = 0;
  bool starts = false;
  bool bias = false;
  DType dtype = DType::f32;
};
Sample sample(const Case& c) {
  const int64_t tokens = c.batch * c.time;
  Sample result{
      .in = {normal({tokens, c.heads * c.size}, c.dtype), normal({tokens, c.kv_heads * c.size}, c.dtype),
             normal({tokens, c.kv_heads * c.size}, c.dtype)},
      .attrs = {{"batch", c.batch},
                {"heads", c.heads},
                {"kv_heads", c.kv_heads},
                {"head_size", c.size},
                {"scale", 1 / std::sqrt(static_cast<double>(c.size))},
                {"causal", c.causal},
                {"window", c.window},
                {"softcap", c.softcap}},
      .tolerance = c.dtype == DType::f32 ? 1e-5 : 1e-2};
  if (c.starts) result.in.push_back(labels(tokens, c.time));
  if (c.bias) {
    result.in.push_back(absent());
    result.in.push_back(normal({c.heads, c.time, c.time}));
  }
  return result;
}
std::vector<Sample> samples() {
  std::vector<Sample> result = {
      sample({.batch = 2, .time = 7, .heads = 4, .kv_heads = 2, .size = 5}),
      sample({.batch = 1, .time = 61, .heads = 2, .kv_heads = 1, .size = 35}),
      sample({.batch = 3, .time = 9, .heads = 2, .kv_heads = 2, .size = 4, .causal = 0, .softcap = 1.5}),
      sample({.batch = 1, .time = 75, .heads = 1, .kv_heads = 1, .size = 6, .window = 13, .softcap = 2}),
      sample({.batch = 2, .time = 70, .heads = 2, .kv_heads = 1, .size = 3, .starts = true}),
      sample({.batch = 1, .time = 310, .heads = 1, .kv_heads = 1, .size = 2}),
      sample({.batch = 1, .time = 300, .heads = 1, .kv_heads = 1, .size = 3, .causal = 0}),
      sample({.batch = 1, .time = 400, .heads = 1, .kv_heads = 1, .size = 2, .window = 270, .starts = true}),
      sample({.batch = 2, .time = 8, .heads = 2, .kv_heads = 1, .size = 6, .dtype = DType::bf16}),
      sample({.batch = 1, .time = 70, .heads = 2, .kv_heads = 1, .size = 64, .dtype = DType::bf16}),
      sample(
          {.batch = 1, .time = 20, .heads = 1, .kv_heads = 1, .size = 96, .window = 9, .dtype = DType::bf16}),
      sample({.batch = 1,
              .time = 35,
              .heads = 1,
              .kv_heads = 1,
              .size = 128,
              .starts = true,
              .dtype = DType::bf16}),
      // More rows than a GPU block processes, with large heads; some tiles are fully masked for some warps
      // only.
      sample({.batch = 2, .time = 100, .heads = 2, .kv_heads = 1, .size = 128, .dtype = DType::bf16}),
      sample({.batch = 1,
              .time = 150,
              .heads = 2,
              .kv_heads = 1,
              .size = 96,
              .window = 37,
              .starts = true,
              .dtype = DType::bf16}),
      sample({.batch = 1, .time = 18, .heads = 1, .kv_heads = 1, .size = 256, .dtype = DType::bf16}),
      sample({.batch = 1, .time = 17, .heads = 1, .kv_heads = 1, .size = 200}),
      sample({.batch = 1, .time = 17, .heads = 1, .kv_heads = 1, .size = 96}),
      sample({.batch = 1, .time = 17, .heads = 1, .kv_heads = 1, .size = 91}),
      sample({.batch = 1, .time = 17, .heads = 1, .kv_heads = 1, .size = 128}),
      sample({.batch = 1, .time = 17, .heads = 1, .kv_heads = 1, .size = 199}),
      sample({.batch = 1,
              .time = 150,
              .heads = 2,
              .kv_heads = 2,
              .size = 96,
              .causal = 0,
              .dtype = DType::bf16}),
      sample({.batch = 1,
              .time = 150,
              .heads = 1,
              .kv_heads = 1,
              .size = 128,
              .causal = 0,
              .dtype = DType::bf16}),
      sample(
          {.batch = 1, .time = 5, .heads = 1, .kv_heads = 1, .size = 8, .starts = true, .dtype = DType::f16}),
      sample({.batch = 2, .time = 7, .heads = 2, .kv_heads = 1, .size = 6, .causal = 0, .bias = true}),
      sample({.batch = 1, .time = 290, .heads = 2, .kv_heads = 2, .size = 4, .causal = 0, .bias = true}),
      sample({.batch = 2,
              .time = 70,
              .heads = 2,
              .kv_heads = 2,
              .size = 64,
              .causal = 0,
              .bias = true,
              .dtype = DType::bf16}),
      sample({.batch = 1,
              .time = 37,
              .heads = 2,
              .kv_heads = 2,
              .size = 128,
              .causal = 0,
              .bias = true,
              .dtype = DType::bf16})};
  // Every padded head size of the GPU kernels, with window, soft cap and documents.
  for (const int64_t size : {27, 61, 93, 125, 251}) {
    Case all{.batch = 1,
             .time = 150,
             .heads = 2,
             .kv_heads = 1,
             .size = size,
             .window = 70,
             .softcap = 2,
             .starts = true};
    result.push_back(sample(all));
    all.dtype = DType::bf16;
    result.push_back(sample(all));
  }
  return result;
}
/// Samples in which dS is stored for several groups of key heads or ranges of queries, or not at all.
std::vector<Sample> samples_of_scores() {
  const auto limited = [](const Case& c, int64_t score_bytes) {
    Sample result = sample(c);
    result.attrs.set("score_bytes", score_bytes);
    return result;
  };
  const Case groups{.batch = 2, .time = 70, .heads = 4, .kv_heads = 2, .size = 64, .dtype = DType::bf16};
  Case ranges{.batch = 1, .time = 200, .heads = 2, .kv_heads = 1, .size = 32, .dtype = DType::bf16};
  std::vector<Sample> result = {// Bytes of two key heads with 2 * 128 * 128 scores, then of all.
                                limited(groups, 131072), limited(groups, 262144), limited(groups, 0)};
  // Bytes of one key head with 2 * 64 * 256 scores and the sums of 256 keys.
  const int64_t bytes = 65536 + 65536;
  result.push_back(limited(ranges, bytes));
  ranges.window = 90;
  ranges.starts = true;
  result.push_back(limited(ranges, bytes));
  ranges.batch = 2;
  ranges.softcap = 2;
  result.push_back(limited(ranges, 3 * bytes));
  ranges.window = 0;
  ranges.size = 104;
  result.push_back(limited(ranges, bytes + 3 * 65536));
  Case full{.batch = 1, .time = 150, .heads = 2, .kv_heads = 2, .size = 16, .causal = 0, .bias = true};
  full.dtype = DType::bf16;
  result.push_back(limited(full, 120000));
  return result;
}
std::vector<Sample> grad_samples() {
  std::vector<Sample> result = samples();
  for (Sample& sample : samples_of_scores()) result.push_back(std::move(sample));
  for (Sample& sample : result) {
    const SampleInput q = sample.in[0];
    const SampleInput lse = positive({q.type.shape[0], sample.attrs.integer("heads")});
    sample.in.insert(sample.in.begin() + 3, {q, lse, q});
  }
  return result;
}

}  // namespace

const OpDef attention{.name = "attention",
                      .doc =
                          "attention(q, k, v, starts?, bias?): softmax(scale q k^T + bias) v, and the "
                          "logsumexp of the scores [N, heads]",
                      .inputs = {"q", "k", "v", "starts?", "bias?"},
                      .infer = infer,
                      .vjp = vjp,
                      .cpu = kernel,
                      .gpu = true,
                      .reference = reference,
                      .cost = cost,
                      .precision = ir::Precision::compute,
                      .num_lowered = AttentionIn::starts,
                      .repeat = repeat_itself,
                      .samples = samples};

const OpDef attention_grad{.name = "attention_grad",
                           .doc = "attention_grad(q, k, v, out, lse, dout, starts?, bias?): dq, dk, dv",
                           .inputs = {"q", "k", "v", "out", "lse", "dout", "starts?", "bias?"},
                           .infer = infer_grad,
                           .no_vjp_because = kNoSecondDerivatives,
                           .cpu = grad_kernel,
                           .gpu = true,
                           .reference = grad_reference,
                           .cost = grad_cost,
                           .precision = ir::Precision::compute,
                           .smaller = without_scores,
                           .samples = grad_samples};

}  // namespace hearth::ops
