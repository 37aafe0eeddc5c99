#include <cmath>
#include <limits>
#include <memory>

#include "ops/loss/head_cpu.h"
#include "ops/loss/loss.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

using Task = cpu::HeadSpec::Task;

/// Minimum number of tokens per chunk; in smaller chunks, reading the weight would dominate the time.
constexpr int64_t kMinChunkRows = 32;

int64_t rows_of(const NodeView& node) { return node.attrs.integer_or("rows", kHeadRows); }

cpu::HeadSpec spec_of(const NodeView& node, Task task) {
  const Type& x = node.in_type(HeadIn::x);
  const Type& weight = node.in_type(HeadIn::weight);
  return {.task = task,
          .tokens = x.shape[0],
          .width = x.shape[1],
          .vocab = weight.shape[0],
          .chunk = rows_of(node),
          .softcap = static_cast<float>(node.attrs.real_or("softcap", 0)),
          .x = x.dtype,
          .weight = weight.dtype,
          .frozen = node.attrs.integer_or("frozen", 0) != 0,
          .num_threads = node.num_threads};
}

std::string check(const NodeView& node) {
  const Type& x = node.in_type(HeadIn::x);
  const Type& weight = node.in_type(HeadIn::weight);
  if (x.shape.rank() != 2 || !is_storage_float(x.dtype) || x.shape[1] < 1)
    return fmt::format("expected x to be floating [N, D], got {}", to_string(x));
  if (weight.shape.rank() != 2 || weight.shape[1] != x.shape[1] || weight.shape[0] < 1 ||
      !is_storage_float(weight.dtype))
    return fmt::format("expected the weight to be floating [V, {}], got {}", x.shape[1], to_string(weight));
  if (node.in_type(HeadIn::labels) != Type{.dtype = DType::i32, .shape = {x.shape[0]}})
    return fmt::format("expected labels to be i32[{}], got {}", x.shape[0],
                       to_string(node.in_type(HeadIn::labels)));
  if (rows_of(node) < 1 || !(node.attrs.real_or("softcap", 0) >= 0))
    return "expected rows >= 1 and softcap >= 0";
  return "";
}

Inferred infer(const NodeView& node) {
  if (auto error = check(node); !error.empty()) return refuse(error);
  const Type losses = f32_type({node.in_type(HeadIn::x).shape[0]});
  return {.out = {losses, losses}, .error = ""};
}
/// Returns the output types `out`, followed by that of dweight unless the weight is frozen.
Inferred with_dweight(const NodeView& node, std::vector<Type> out) {
  if (node.attrs.integer_or("frozen", 0) == 0) out.push_back(f32_type(node.in_type(HeadIn::weight).shape));
  return {.out = std::move(out), .error = ""};
}
Inferred infer_grad(const NodeView& node) {
  if (auto error = check(node); !error.empty()) return refuse(error);
  const Type losses = f32_type({node.in_type(HeadIn::x).shape[0]});
  for (const size_t i : {HeadIn::lse, HeadIn::dlosses}) {
    if (node.in_type(i) != losses) return refuse_type("lse and dlosses", to_string(losses), node.in_type(i));
  }
  return with_dweight(node, {node.in_type(HeadIn::x)});
}
Inferred infer_train(const NodeView& node) {
  if (auto error = check(node); !error.empty()) return refuse(error);
  if (node.in_type(HeadIn::dloss) != kScalar)
    return refuse_type("the gradient of a loss", "f32[]", node.in_type(HeadIn::dloss));
  const Type& x = node.in_type(HeadIn::x);
  return with_dweight(node, {f32_type({x.shape[0]}), x});
}

/// Returns a kernel for the task. fill(args, arrays) sets the members of `arrays` other than x, weight and
/// labels.
template <typename Fill>
Kernel make_kernel(const NodeView& node, Task task, Fill fill) {
  const auto head = std::make_shared<const cpu::Head>(spec_of(node, task));
  const auto run = [=](const KernelArgs& args) {
    cpu::Head::Arrays arrays{.x = args.in[HeadIn::x],
                             .weight = args.in[HeadIn::weight],
                             .labels = args.input<int32_t>(HeadIn::labels)};
    fill(args, arrays);
    head->run(arrays, args.workspace, *args.threads);
  };
  return {.run = run, .workspace_bytes = head->workspace_bytes()};
}
Kernel kernel(const NodeView& node) {
  return make_kernel(node, Task::losses, [](const KernelArgs& args, cpu::Head::Arrays& arrays) {
    arrays.losses = args.output<float>(0);
    arrays.lse = args.output<float>(1);
  });
}
Kernel grad_kernel(const NodeView& node) {
  return make_kernel(node, Task::gradients, [](const KernelArgs& args, cpu::Head::Arrays& arrays) {
    arrays.lse = static_cast<float*>(args.in[HeadIn::lse]);
    arrays.dlosses = args.input<float>(HeadIn::dlosses);
    arrays.dx = args.out[0];
    arrays.dweight = args.out.size() > 1 ? args.output<float>(1) : nullptr;
  });
}
Kernel train_kernel(const NodeView& node) {
  return make_kernel(node, Task::both, [](const KernelArgs& args, cpu::Head::Arrays& arrays) {
    arrays.dloss = *args.input<float>(HeadIn::dloss);
    arrays.losses = args.output<float>(0);
    arrays.dx = args.out[1];
    arrays.dweight = args.out.size() > 2 ? args.output<float>(2) : nullptr;
  });
}

/// Reference computation of one token, by the definition.
struct TokenReference {
  const ReferenceArgs& args;
  size_t token;
  size_t width = static_cast<size_t>(args.node.in_type(HeadIn::x).shape[1]);
  size_t vocab = static_cast<size_t>(args.node.in_type(HeadIn::weight).shape[0]);
  double cap = args.node.attrs.real_or("softcap", 0);
  double label = args.in[HeadIn::labels][token];

  bool counts() const { return label >= 0; }
  std::vector<double> logits() const {
    std::vector<double> result(vocab);
    for (size_t v = 0; v < vocab; ++v) {
      for (size_t c = 0; c < width; ++c)
        result[v] += args.in[HeadIn::x][token * width + c] * args.in[HeadIn::weight][v * width + c];
      if (cap > 0) result[v] = cap * std::tanh(result[v] / cap);
    }
    return result;
  }
  static double log_sum(const std::vector<double>& logits) {
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit);
    return std::log(sum);
  }
  double of_label(const std::vector<double>& logits) const {
    return label < static_cast<double>(vocab) ? logits[static_cast<size_t>(label)]
                                              : std::numeric_limits<double>::quiet_NaN();
  }
  /// Adds the token's gradients to dx, which is output `at`, and to dweight, which is output `at` + 1 if it
  /// exists.
  void add_gradients(double lse, double dloss, size_t at) const {
    const std::vector<double> all = logits();
    for (size_t v = 0; v < vocab; ++v) {
      const double t = cap > 0 ? all[v] / cap : 0;
      const double hit = static_cast<double>(v) == label ? 1 : 0;
      const double dlogit = dloss * (std::exp(all[v] - lse) - hit) * (1 - t * t);
      for (size_t c = 0; c < width; ++c) {
        args.out[at][token * width + c] += dlogit * args.in[HeadIn::weight][v * width + c];
        if (args.out.size() > at + 1)
          args.out[at + 1][v * width + c] += dlogit * args.in[HeadIn::x][token * width + c];
      }
    }
  }
};

/// Zeroes all outputs, then calls body(TokenReference) for each token that has a label (>= 0).
template <typename Body>
void for_tokens(const ReferenceArgs& args, Body body) {
  for (auto& out : args.out) std::fill(out.begin(), out.end(), 0.0);
  for (size_t t = 0; t < args.in[HeadIn::labels].size(); ++t) {
    const TokenReference token{.args = args, .token = t};
    if (token.counts()) body(token);
  }
}
void reference(const ReferenceArgs& args) {
  for_tokens(args, [&](const TokenReference& token) {
    const std::vector<double> logits = token.logits();
    const double lse = TokenReference::log_sum(logits);
    args.out[0][token.token] = lse - token.of_label(logits);
    args.out[1][token.token] = lse;
  });
}
void grad_reference(const ReferenceArgs& args) {
  for_tokens(args, [&](const TokenReference& token) {
    token.add_gradients(args.in[HeadIn::lse][token.token], args.in[HeadIn::dlosses][token.token], 0);
  });
}
void train_reference(const ReferenceArgs& args) {
  for_tokens(args, [&](const TokenReference& token) {
    const std::vector<double> logits = token.logits();
    const double lse = TokenReference::log_sum(logits);
    args.out[0][token.token] = lse - token.of_label(logits);
    token.add_gradients(lse, args.in[HeadIn::dloss][0], 1);
  });
}

/// True if a value depends on a trained parameter. Skipping the gradient of a frozen weight saves a third of
/// the work.
bool is_trained(const ir::Graph& graph, ValueId id) {
  if (id == kNone) return false;
  const ir::Value& value = graph.value(id);
  if (value.producer == kNone) return value.role == ir::Role::parameter;
  const std::vector<ValueId>& inputs = graph.node(value.producer).inputs;
  return std::any_of(inputs.begin(), inputs.end(), [&](ValueId in) { return is_trained(graph, in); });
}

std::vector<ValueId> vjp(const VjpContext& context) {
  if (context.grad_out[0] == kNone) return {kNone, kNone, kNone};
  const ir::Node& node = context.node;
  Attrs attrs = node.attrs;
  if (!is_trained(context.graph, node.inputs[HeadIn::weight])) attrs.set("frozen", int64_t{1});
  const auto grads = context.graph.add(head_cross_entropy_grad,
                                       {node.inputs[HeadIn::x], node.inputs[HeadIn::weight],
                                        node.inputs[HeadIn::labels], node.outputs[1], context.grad_out[0]},
                                       attrs, node.name);
  return {grads[0], grads.size() > 1 ? grads[1] : kNone, kNone};
}

/// Returns the cost of `matmuls` matmuls per chunk: 1 for losses; 3 with gradients, of which the third
/// computes dweight. Each chunk reads the weight for up to two matmuls, and reads and writes dweight unless
/// the weight is frozen.
Cost cost_of_matmuls(const NodeView& node, double matmuls) {
  const cpu::HeadSpec s = spec_of(node, Task::losses);
  const bool sums = matmuls > 1 && !s.frozen;
  const auto weights = static_cast<double>(s.width * s.vocab);
  const double chunks = std::ceil(static_cast<double>(s.tokens) / static_cast<double>(s.chunk));
  const double chunk_bytes =
      weights * (std::min(matmuls, 2.0) * static_cast<double>(dtype_bytes(s.weight)) + (sums ? 8.0 : 0.0));
  if (s.frozen) --matmuls;
  return {.flops = 2 * matmuls * static_cast<double>(s.tokens) * weights,
          .bytes = bytes_moved(node) + (chunks - 1) * chunk_bytes,
          .kernel = KernelKind::head};
}

std::optional<Attrs> half_the_rows(const NodeView& node) {
  const int64_t rows = std::min(rows_of(node), node.in_type(HeadIn::x).shape[0]);
  if (rows < 2 * kMinChunkRows) return std::nullopt;
  Attrs attrs = node.attrs;
  attrs.set("rows", (rows + 1) / 2);
  return attrs;
}

Sample sample(const Shape& shape, int64_t vocab, int64_t rows, double softcap, DType dtype) {
  return {.in = {normal(shape, dtype), normal({vocab, shape[1]}, dtype), labels_or_none(shape[0], vocab)},
          .attrs = {{"rows", rows}, {"softcap", softcap}}};
}
std::vector<Sample> samples() {
  return {sample({7, 5}, 3, 256, 0, DType::f32),      sample({20, 9}, 41, 2, 0, DType::f32),
          sample({3, 33}, 1100, 2, 2.5, DType::f32),  sample({40, 6}, 700, 32, 0, DType::f32),
          sample({6, 8}, 21, 256, 0, DType::bf16),    sample({5, 256}, 400, 3, 3, DType::bf16),
          sample({300, 256}, 35, 290, 3, DType::f32), sample({4, 7}, 9, 1, 0, DType::f16),
          sample({40, 16}, 100, 4, 3, DType::bf16)};
}
/// Adds a sample with a frozen weight, and sets tolerances for 16-bit dtypes, in which gradients of logits
/// may be rounded.
std::vector<Sample> gradient_samples(std::vector<Sample> result) {
  for (Sample& sample : result) {
    if (sample.in[0].type.dtype == DType::bf16) sample.tolerance = 0x1p-8;
    if (sample.in[0].type.dtype == DType::f16) sample.tolerance = 0x1p-11;
  }
  result.push_back(result[1]);
  result.back().attrs.set("frozen", int64_t{1});
  return result;
}
std::vector<Sample> grad_samples() {
  std::vector<Sample> result = samples();
  for (Sample& sample : result) {
    const int64_t tokens = sample.in[0].type.shape[0];
    sample.in.push_back(positive({tokens}));
    sample.in.push_back(normal({tokens}));
  }
  return gradient_samples(std::move(result));
}
std::vector<Sample> train_samples() {
  std::vector<Sample> result = samples();
  for (Sample& sample : result) sample.in.push_back(positive({}));
  return gradient_samples(std::move(result));
}

}  // namespace

const OpDef head_cross_entropy{.name = "head_cross_entropy",
                               .doc =
                                   "head_cross_entropy(x [N, D], weight [V, D], labels i32 [N]): losses of "
                                   "the logits x weight^T, and lse; label -1: ignored",
                               .inputs = {"x", "weight", "labels"},
                               .infer = infer,
                               .vjp = vjp,
                               .cpu = kernel,
                               .gpu = true,
                               .reference = reference,
                               .cost = [](const NodeView& node) { return cost_of_matmuls(node, 1); },
                               .precision = ir::Precision::compute,
                               .smaller = half_the_rows,
                               .samples = samples};

const OpDef head_cross_entropy_grad{
    .name = "head_cross_entropy_grad",
    .doc = "head_cross_entropy_grad(x, weight, labels, lse, dlosses): dx, dweight f32; recomputes the logits",
    .inputs = {"x", "weight", "labels", "lse", "dlosses"},
    .infer = infer_grad,
    .no_vjp_because = kNoSecondDerivatives,
    .cpu = grad_kernel,
    .gpu = true,
    .reference = grad_reference,
    .cost = [](const NodeView& node) { return cost_of_matmuls(node, 3); },
    .precision = ir::Precision::compute,
    .smaller = half_the_rows,
    .samples = grad_samples};

const OpDef head_cross_entropy_train{.name = "head_cross_entropy_train",
                                     .doc =
                                         "head_cross_entropy_train(x, weight, labels, dloss []): losses, dx, "
                                         "dweight f32; all tokens share dloss",
                                     .inputs = {"x", "weight", "labels", "dloss"},
                                     .infer = infer_train,
                                     .no_vjp_because = "it computes its gradients itself",
                                     .cpu = train_kernel,
                                     .gpu = true,
                                     .reference = train_reference,
                                     .cost = [](const NodeView& node) { return cost_of_matmuls(node, 3); },
                                     .precision = ir::Precision::compute,
                                     .smaller = half_the_rows,
                                     .samples = train_samples};

}  // namespace hearth::ops
