#include <cmath>
#include <limits>
#include <memory>
#include <tuple>

#include "ops/loss/head_cpu.h"
#include "ops/loss/loss.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

using Task = cpu::HeadSpec::Task;

/// Minimum number of tokens per chunk; in smaller chunks, reading the weight would dominate the time.
constexpr int64_t kMinChunkRows = 32;

int64_t rows_of(const NodeView& node) { return node.attrs.integer_or("rows", kHeadRows); }

/// Number of inputs of the three ops without a teacher.
constexpr size_t kNumInputs = 3, kNumGradInputs = 5, kNumTrainInputs = 4;
size_t num_required(Task task) {
  return task == Task::losses ? kNumInputs : task == Task::gradients ? kNumGradInputs : kNumTrainInputs;
}

cpu::HeadSpec spec_of(const NodeView& node, Task task) {
  const HeadTeacher teacher(node, num_required(task));
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
          .top_k = teacher.top_k,
          .distill = teacher.formula,
          .num_threads = node.num_threads};
}

std::string check_teacher(const NodeView& node, size_t num_required) {
  if (node.in.size() == num_required) return "";
  if (node.in.size() != num_required + 2) return "expected teacher_logps after teacher_ids";
  const HeadTeacher teacher(node, num_required);
  const Shape shape{node.in_type(HeadIn::x).shape[0], teacher.top_k};
  if (node.in_type(teacher.ids) != Type{.dtype = DType::i32, .shape = shape})
    return fmt::format("expected teacher_ids to be i32[N, K], got {}", to_string(node.in_type(teacher.ids)));
  if (node.in_type(teacher.logps) != f32_type(shape))
    return fmt::format("expected teacher_logps to be {}, got {}", to_string(f32_type(shape)),
                       to_string(node.in_type(teacher.logps)));
  const DistillFormula& formula = teacher.formula;
  const bool mixes = formula.divergence != Divergence::jsd || (formula.beta > 0 && formula.beta < 1);
  if (teacher.top_k < 1 || teacher.top_k > node.in_type(HeadIn::weight).shape[0] ||
      !(formula.temperature > 0) || !mixes)
    return "expected 1 <= K <= V, temperature > 0 and, for jsd, 0 < beta < 1";
  return "";
}

std::string check(const NodeView& node, size_t num_required) {
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
  return check_teacher(node, num_required);
}

Inferred infer(const NodeView& node) {
  if (auto error = check(node, kNumInputs); !error.empty()) return refuse(error);
  const Type losses = f32_type({node.in_type(HeadIn::x).shape[0]});
  return {.out = {losses, losses}, .error = ""};
}
/// Returns the output types `out`, followed by that of dweight unless the weight is frozen.
Inferred with_dweight(const NodeView& node, std::vector<Type> out) {
  if (node.attrs.integer_or("frozen", 0) == 0) out.push_back(f32_type(node.in_type(HeadIn::weight).shape));
  return {.out = std::move(out), .error = ""};
}
Inferred infer_grad(const NodeView& node) {
  if (auto error = check(node, kNumGradInputs); !error.empty()) return refuse(error);
  const Type losses = f32_type({node.in_type(HeadIn::x).shape[0]});
  for (const size_t i : {HeadIn::lse, HeadIn::dlosses}) {
    if (node.in_type(i) != losses) return refuse_type("lse and dlosses", to_string(losses), node.in_type(i));
  }
  return with_dweight(node, {node.in_type(HeadIn::x)});
}
Inferred infer_train(const NodeView& node) {
  if (auto error = check(node, kNumTrainInputs); !error.empty()) return refuse(error);
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
  const HeadTeacher teacher(node, num_required(task));
  const auto run = [=](const KernelArgs& args) {
    cpu::Head::Arrays arrays{.x = args.in[HeadIn::x],
                             .weight = args.in[HeadIn::weight],
                             .labels = args.input<int32_t>(HeadIn::labels)};
    if (teacher.top_k > 0) {
      arrays.teacher_ids = args.input<int32_t>(teacher.ids);
      arrays.teacher_logps = args.input<float>(teacher.logps);
    }
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
  size_t num_required;
  size_t width = static_cast<size_t>(args.node.in_type(HeadIn::x).shape[1]);
  size_t vocab = static_cast<size_t>(args.node.in_type(HeadIn::weight).shape[0]);
  double cap = args.node.attrs.real_or("softcap", 0);
  double label = args.in[HeadIn::labels][token];
  HeadTeacher teacher{args.node, num_required};

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
  /// Returns p^(1 / temperature), normalized.
  std::vector<double> tempered(std::vector<double> p) const {
    double sum = 0;
    for (double& value : p)
      sum += value = std::pow(value, 1.0 / static_cast<double>(teacher.formula.temperature));
    for (double& value : p) value /= sum;
    return p;
  }
  /// Returns each token's class: its index among the teacher's tokens, or top_k, the tail.
  std::vector<size_t> classes() const {
    const auto k = static_cast<size_t>(teacher.top_k);
    std::vector<size_t> result(vocab, k);
    for (size_t j = 0; j < k; ++j) result[static_cast<size_t>(args.in[teacher.ids][token * k + j])] = j;
    return result;
  }
  /// Returns the teacher's probability of each class.
  std::vector<double> teacher_probabilities() const {
    const auto k = static_cast<size_t>(teacher.top_k);
    std::vector<double> q;
    double left = 1;
    for (size_t j = 0; j < k; ++j) {
      q.push_back(std::exp(args.in[teacher.logps][token * k + j]));
      left -= q.back();
    }
    if (k < vocab) q.push_back(std::max(left, static_cast<double>(kMinTail)));
    return q;
  }
  /// Returns the divergence of class probabilities `p` (unnormalized) from `q`, both before the temperature.
  double divergence(std::vector<double> p, std::vector<double> q) const {
    using enum Divergence;
    p = tempered(std::move(p));
    q = tempered(std::move(q));
    const double beta = static_cast<double>(teacher.formula.beta);
    double sum = 0;
    for (size_t j = 0; j < p.size(); ++j) {
      const double m = (1 - beta) * p[j] + beta * q[j];
      sum += teacher.formula.divergence == forward ? q[j] * std::log(q[j] / p[j])
             : teacher.formula.divergence == reverse
                 ? p[j] * std::log(p[j] / q[j])
                 : beta * q[j] * std::log(q[j] / m) + (1 - beta) * p[j] * std::log(p[j] / m);
    }
    return sum;
  }
  /// Returns the probability of each class under the student.
  std::vector<double> student_probabilities(const std::vector<double>& logits) const {
    const std::vector<size_t> class_of = classes();
    const double lse = log_sum(logits);
    std::vector<double> p(static_cast<size_t>(teacher.top_k) + (teacher.top_k < std::ssize(logits) ? 1 : 0));
    for (size_t v = 0; v < vocab; ++v) p[class_of[v]] += std::exp(logits[v] - lse);
    return p;
  }
  double weight() const { return static_cast<double>(teacher.formula.weight); }
  double loss(const std::vector<double>& logits) const {
    const double of_label = label < static_cast<double>(vocab) ? logits[static_cast<size_t>(label)]
                                                               : std::numeric_limits<double>::quiet_NaN();
    const double cross_entropy = log_sum(logits) - of_label;
    if (teacher.top_k == 0) return cross_entropy;
    const double t = static_cast<double>(teacher.formula.temperature);
    return (1 - weight()) * cross_entropy +
           weight() * t * t * divergence(student_probabilities(logits), teacher_probabilities());
  }
  /// Returns temperature^2 times the derivative of the divergence with respect to the log-probability of each
  /// class under the student, by central differences.
  std::vector<double> divergence_slopes(const std::vector<double>& logits) const {
    constexpr double kStep = 1e-5;
    const std::vector<double> p = student_probabilities(logits), q = teacher_probabilities();
    const double t = static_cast<double>(teacher.formula.temperature);
    std::vector<double> slopes(p.size());
    for (size_t j = 0; j < p.size(); ++j) {
      std::vector<double> up = p, down = p;
      up[j] *= std::exp(kStep);
      down[j] *= std::exp(-kStep);
      slopes[j] = t * t * (divergence(up, q) - divergence(down, q)) / (2 * kStep);
    }
    return slopes;
  }
  /// Returns the derivative of the loss with respect to each logit, before the soft cap.
  std::vector<double> slopes(const std::vector<double>& logits, double lse) const {
    std::vector<double> result(vocab);
    for (size_t v = 0; v < vocab; ++v)
      result[v] = std::exp(logits[v] - lse) - (static_cast<double>(v) == label ? 1 : 0);
    if (teacher.top_k == 0) return result;
    const std::vector<size_t> class_of = classes();
    const std::vector<double> p = student_probabilities(logits), of_class = divergence_slopes(logits);
    const double all = log_sum(logits);
    for (size_t v = 0; v < vocab; ++v) {
      const size_t j = class_of[v];
      const double share = std::exp(logits[v] - all) / p[j];
      result[v] = (1 - weight()) * result[v] + weight() * share * of_class[j];
    }
    return result;
  }
  /// Adds the token's gradients to dx, which is output `at`, and to dweight, which is output `at` + 1 if it
  /// exists.
  void add_gradients(double lse, double dloss, size_t at) const {
    const std::vector<double> all = logits();
    const std::vector<double> of_logits = slopes(all, lse);
    for (size_t v = 0; v < vocab; ++v) {
      const double t = cap > 0 ? all[v] / cap : 0;
      const double dlogit = dloss * of_logits[v] * (1 - t * t);
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
void for_tokens(const ReferenceArgs& args, Task task, Body body) {
  for (auto& out : args.out) std::fill(out.begin(), out.end(), 0.0);
  for (size_t t = 0; t < args.in[HeadIn::labels].size(); ++t) {
    const TokenReference token{.args = args, .token = t, .num_required = num_required(task)};
    if (token.counts()) body(token);
  }
}
void reference(const ReferenceArgs& args) {
  for_tokens(args, Task::losses, [&](const TokenReference& token) {
    const std::vector<double> logits = token.logits();
    args.out[0][token.token] = token.loss(logits);
    args.out[1][token.token] = TokenReference::log_sum(logits);
  });
}
void grad_reference(const ReferenceArgs& args) {
  for_tokens(args, Task::gradients, [&](const TokenReference& token) {
    const size_t t = token.token;
    const double lse =
        token.teacher.top_k > 0 ? TokenReference::log_sum(token.logits()) : args.in[HeadIn::lse][t];
    token.add_gradients(lse, args.in[HeadIn::dlosses][t], 0);
  });
}
void train_reference(const ReferenceArgs& args) {
  for_tokens(args, Task::both, [&](const TokenReference& token) {
    const std::vector<double> logits = token.logits();
    args.out[0][token.token] = token.loss(logits);
    token.add_gradients(TokenReference::log_sum(logits), args.in[HeadIn::dloss][0], 1);
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
  const ir::Node& node = context.node;
  std::vector<ValueId> result(node.inputs.size(), kNone);
  if (context.grad_out[0] == kNone) return result;
  Attrs attrs = node.attrs;
  if (!is_trained(context.graph, node.inputs[HeadIn::weight])) attrs.set("frozen", int64_t{1});
  std::vector<ValueId> inputs = node.inputs;
  inputs.insert(inputs.begin() + kNumInputs, {node.outputs[1], context.grad_out[0]});
  const auto grads = context.graph.add(head_cross_entropy_grad, inputs, attrs, node.name);
  std::copy(grads.begin(), grads.end(), result.begin());
  return result;
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
/// Adds a teacher's top k to a sample.
Sample with_teacher(Sample sample, int64_t top_k, const char* divergence, double temperature) {
  const int64_t tokens = sample.in[HeadIn::x].type.shape[0], vocab = sample.in[HeadIn::weight].type.shape[0];
  sample.in.push_back({.type = {.dtype = DType::i32, .shape = {tokens, top_k}},
                       .fill = SampleInput::Fill::ascending,
                       .bound = vocab});
  sample.in.push_back(filled(SampleInput::Fill::log_probability, {tokens, top_k}));
  sample.attrs.set("divergence", std::string(divergence));
  sample.attrs.set("distill_weight", 0.75);
  sample.attrs.set("temperature", temperature);
  sample.attrs.set("beta", 0.25);
  return sample;
}
/// Adds samples with a teacher to those without; the first samples of `result` are samples().
std::vector<Sample> with_teachers(std::vector<Sample> result) {
  for (const auto& [at, top_k, divergence, temperature] :
       {std::tuple{0, 3, "forward", 1.0}, std::tuple{1, 7, "forward", 2.0},
        std::tuple{2, 300, "reverse", 1.0}, std::tuple{3, 64, "jsd", 1.5}, std::tuple{4, 21, "reverse", 2.0},
        std::tuple{5, 32, "forward", 1.0}, std::tuple{6, 1, "jsd", 1.0}, std::tuple{8, 16, "reverse", 1.0}})
    result.push_back(with_teacher(result[static_cast<size_t>(at)], top_k, divergence, temperature));
  return result;
}
/// Adds samples with a frozen weight, and sets tolerances for 16-bit dtypes, in which gradients of logits
/// may be rounded.
std::vector<Sample> gradient_samples(std::vector<Sample> result) {
  for (Sample& sample : result) {
    if (sample.in[0].type.dtype == DType::bf16) sample.tolerance = 0x1p-8;
    if (sample.in[0].type.dtype == DType::f16) sample.tolerance = 0x1p-11;
  }
  for (const size_t at : {size_t{1}, result.size() - 1}) {
    result.push_back(result[at]);
    result.back().attrs.set("frozen", int64_t{1});
  }
  return result;
}
std::vector<Sample> grad_samples() {
  std::vector<Sample> result = samples();
  for (Sample& sample : result) {
    const int64_t tokens = sample.in[0].type.shape[0];
    sample.in.push_back(positive({tokens}));
    sample.in.push_back(normal({tokens}));
  }
  return gradient_samples(with_teachers(std::move(result)));
}
std::vector<Sample> train_samples() {
  std::vector<Sample> result = samples();
  for (Sample& sample : result) sample.in.push_back(positive({}));
  return gradient_samples(with_teachers(std::move(result)));
}

}  // namespace

std::optional<Attrs> half_the_head_rows(const NodeView& node) {
  const int64_t rows = std::min(rows_of(node), node.in_type(HeadIn::x).shape[0]);
  if (rows < 2 * kMinChunkRows) return std::nullopt;
  Attrs attrs = node.attrs;
  attrs.set("rows", (rows + 1) / 2);
  return attrs;
}

HeadTeacher::HeadTeacher(const NodeView& node, size_t num_required)
    : ids(num_required), logps(num_required + 1) {
  if (!node.has_input(ids) || node.in_type(ids).shape.rank() != 2) return;
  top_k = node.in_type(ids).shape[1];
  formula = distill_formula(node.attrs);
  formula.weight = static_cast<float>(node.attrs.real_or("distill_weight", 0));
}

const OpDef head_cross_entropy{
    .name = "head_cross_entropy",
    .doc =
        "head_cross_entropy(x [N, D], weight [V, D], labels i32 [N]): losses of "
        "the logits x weight^T, and lse; label -1: ignored; with a "
        "teacher: (1 - distill_weight) cross_entropy + distill_weight temperature^2 divergence",
    .inputs = {"x", "weight", "labels", "teacher_ids?", "teacher_logps?"},
    .infer = infer,
    .vjp = vjp,
    .cpu = kernel,
    .gpu = true,
    .reference = reference,
    .cost = [](const NodeView& node) { return cost_of_matmuls(node, 1); },
    .precision = ir::Precision::compute,
    .num_lowered = HeadIn::labels,
    .smaller = half_the_head_rows,
    .samples = [] { return with_teachers(samples()); }};

const OpDef head_cross_entropy_grad{
    .name = "head_cross_entropy_grad",
    .doc = "head_cross_entropy_grad(x, weight, labels, lse, dlosses): dx, dweight f32; recomputes the logits",
    .inputs = {"x", "weight", "labels", "lse", "dlosses", "teacher_ids?", "teacher_logps?"},
    .infer = infer_grad,
    .no_vjp_because = kNoSecondDerivatives,
    .cpu = grad_kernel,
    .gpu = true,
    .reference = grad_reference,
    .cost = [](const NodeView& node) { return cost_of_matmuls(node, 3); },
    .precision = ir::Precision::compute,
    .num_lowered = HeadIn::labels,
    .smaller = half_the_head_rows,
    .samples = grad_samples};

const OpDef head_cross_entropy_train{
    .name = "head_cross_entropy_train",
    .doc =
        "head_cross_entropy_train(x, weight, labels, dloss []): losses, dx, "
        "dweight f32; all tokens share dloss",
    .inputs = {"x", "weight", "labels", "dloss", "teacher_ids?", "teacher_logps?"},
    .infer = infer_train,
    .no_vjp_because = "it computes its gradients itself",
    .cpu = train_kernel,
    .gpu = true,
    .reference = train_reference,
    .cost = [](const NodeView& node) { return cost_of_matmuls(node, 3); },
    .precision = ir::Precision::compute,
    .num_lowered = HeadIn::labels,
    .smaller = half_the_head_rows,
    .samples = train_samples};

}  // namespace hearth::ops
