#include <cmath>

#include "ops/loss/loss.h"
#include "ops/row_kernel.h"

namespace hearth::ops {
namespace {

std::string fault(const NodeView& node, size_t labels) {
  const Type& logits = node.in_type(DistillIn::logits);
  if (logits.shape.rank() != 2 || logits.dtype != DType::f32 || logits.shape[1] < 1)
    return fmt::format("expected logits to be f32 [N, K], got {}", to_string(logits));
  if (node.in_type(DistillIn::teacher) != logits)
    return fmt::format("expected the teacher's logits to be {}, got {}", to_string(logits),
                       to_string(node.in_type(DistillIn::teacher)));
  const Type wanted{.dtype = DType::i32, .shape = {logits.shape[0]}};
  if (node.has_input(labels) && node.in_type(labels) != wanted)
    return fmt::format("expected labels to be {}, got {}", to_string(wanted),
                       to_string(node.in_type(labels)));
  if (!value_named<Divergence>(node.attrs.text_or("divergence", "forward")))
    return fmt::format("there is no divergence '{}'", node.attrs.text("divergence"));
  const DistillFormula formula = distill_formula(node.attrs);
  return formula.temperature > 0 && formula.beta > 0 && formula.beta <= 1
             ? ""
             : "expected temperature > 0 and beta in (0, 1]";
}
Inferred infer(const NodeView& node) {
  if (auto error = fault(node, DistillIn::labels); !error.empty()) return refuse(error);
  return {.out = {f32_type({node.in_type(0).shape[0]})}, .error = ""};
}
Inferred infer_grad(const NodeView& node) {
  if (auto error = fault(node, DistillIn::grad_labels); !error.empty()) return refuse(error);
  if (node.in_type(DistillIn::dlosses) != f32_type({node.in_type(0).shape[0]}))
    return refuse_type("dlosses", "f32[N]", node.in_type(DistillIn::dlosses));
  return {.out = {node.in_type(0)}, .error = ""};
}

/// Returns the kernel that calls body(args, row, r, true if the row is skipped) for each row r, in parallel.
template <typename Body>
Kernel kernel_of_rows(const NodeView& node, size_t labels, Body body) {
  const int64_t rows = node.in_type(0).shape[0], width = node.in_type(0).shape[1];
  const DistillAttrs attrs(node);
  // The exponentials of a logit take as long as about 16 elements of other kernels.
  const auto parts = static_cast<int>(std::clamp<int64_t>(16 * rows * width / kGrain, 1, node.num_threads));
  return row_kernel(rows, parts, 0, [=](const KernelArgs& args, int64_t r, float*) {
    const int32_t* labels_at = args.in.size() > labels ? args.input<int32_t>(labels) : nullptr;
    body(args,
         attrs.row(args.input<float>(DistillIn::logits), args.input<float>(DistillIn::teacher), r, width), r,
         attrs.skips(labels_at, r));
  });
}
Kernel kernel(const NodeView& node) {
  const DistillFormula formula = distill_formula(node.attrs);
  return kernel_of_rows(node, DistillIn::labels,
                        [=](const KernelArgs& args, const DistillRow& row, int64_t r, bool skips) {
                          args.output<float>(0)[r] = skips ? 0.0F : row.loss(formula, DistillThread());
                        });
}
Kernel grad_kernel(const NodeView& node) {
  const DistillFormula formula = distill_formula(node.attrs);
  return kernel_of_rows(node, DistillIn::grad_labels,
                        [=](const KernelArgs& args, const DistillRow& row, int64_t r, bool skips) {
                          float* out = args.output<float>(0) + r * row.width;
                          if (skips) return void(std::fill_n(out, row.width, 0.0F));
                          const float dloss = args.input<float>(DistillIn::dlosses)[r];
                          row.slopes(formula, DistillThread(),
                                     [&](int j, float slope) { out[j] = dloss * slope; });
                        });
}

using Doubles = std::vector<double>;

/// Returns the softmax of logits / temperature.
Doubles softmax_of(Doubles logits, double temperature) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (double& value : logits) sum += value = std::exp((value - largest) / temperature);
  for (double& value : logits) value /= sum;
  return logits;
}
/// Returns the divergence of the probabilities p from q.
double divergence_of(const DistillFormula& formula, const Doubles& p, const Doubles& q) {
  const auto kl = [](const Doubles& of, const Doubles& from) {
    double sum = 0;
    for (size_t j = 0; j < of.size(); ++j) sum += of[j] > 0 ? of[j] * std::log(of[j] / from[j]) : 0;
    return sum;
  };
  if (formula.divergence == Divergence::forward) return kl(q, p);
  if (formula.divergence == Divergence::reverse) return kl(p, q);
  const double beta = static_cast<double>(formula.beta);
  Doubles m(p.size());
  for (size_t j = 0; j < p.size(); ++j) m[j] = (1 - beta) * p[j] + beta * q[j];
  return beta * kl(q, m) + (1 - beta) * kl(p, m);
}
/// Returns the loss of the classes of one softmax.
double loss_of(const DistillFormula& formula, const Doubles& logits, const Doubles& teacher) {
  const double t = static_cast<double>(formula.temperature);
  return t * t * divergence_of(formula, softmax_of(logits, t), softmax_of(teacher, t));
}
/// Returns the derivatives of loss_of() with respect to the student's logits, by central differences.
Doubles slopes_of(const DistillFormula& formula, const Doubles& logits, const Doubles& teacher) {
  constexpr double kStep = 1e-5;
  Doubles slopes;
  for (size_t j = 0; j < logits.size(); ++j) {
    Doubles up = logits, down = logits;
    up[j] += kStep;
    down[j] -= kStep;
    slopes.push_back((loss_of(formula, up, teacher) - loss_of(formula, down, teacher)) / (2 * kStep));
  }
  return slopes;
}

/// Calls body(row, index of the first logit, student's logits, teacher's logits) for each softmax of rows
/// that are not skipped; a sigmoid is a softmax of two logits, of which the second is 0.
template <typename Body>
void for_each_softmax(const ReferenceArgs& args, size_t labels, Body body) {
  const DistillAttrs attrs(args.node);
  for (auto& out : args.out) std::fill(out.begin(), out.end(), 0.0);
  const auto rows = static_cast<size_t>(args.node.in_type(0).shape[0]);
  const auto width = static_cast<size_t>(args.node.in_type(0).shape[1]), size = attrs.sigmoid ? 1 : width;
  for (size_t r = 0; r < rows; ++r) {
    if (attrs.ignores && args.node.has_input(labels) && args.in[labels][r] == attrs.ignore) continue;
    for (size_t at = r * width; at < (r + 1) * width; at += size) {
      const auto part = [&](const auto& all) {
        Doubles values(all.begin() + static_cast<ptrdiff_t>(at),
                       all.begin() + static_cast<ptrdiff_t>(at + size));
        if (attrs.sigmoid) values.push_back(0);
        return values;
      };
      body(r, at, part(args.in[DistillIn::logits]), part(args.in[DistillIn::teacher]));
    }
  }
}
void reference(const ReferenceArgs& args) {
  const DistillFormula formula = distill_formula(args.node.attrs);
  for_each_softmax(args, DistillIn::labels,
                   [&](size_t r, size_t, const Doubles& logits, const Doubles& teacher) {
                     args.out[0][r] += loss_of(formula, logits, teacher);
                   });
}
void grad_reference(const ReferenceArgs& args) {
  const DistillFormula formula = distill_formula(args.node.attrs);
  const bool sigmoid = DistillAttrs(args.node).sigmoid;
  for_each_softmax(args, DistillIn::grad_labels,
                   [&](size_t r, size_t at, const Doubles& logits, const Doubles& teacher) {
                     Doubles slopes = slopes_of(formula, logits, teacher);
                     if (sigmoid) slopes.pop_back();
                     for (const double slope : slopes)
                       args.out[0][at++] = args.in[DistillIn::dlosses][r] * slope;
                   });
}

std::vector<ValueId> vjp(const VjpContext& context) {
  const ir::Node node = context.node;
  std::vector<ValueId> grads(node.inputs.size(), kNone);
  if (context.grad_out[0] == kNone) return grads;
  std::vector<ValueId> inputs = node.inputs;
  inputs.insert(inputs.begin() + DistillIn::dlosses, context.grad_out[0]);
  grads[DistillIn::logits] = emit(context, "distill_loss_grad", inputs, node.attrs);
  return grads;
}

Cost cost(const NodeView& node) { return stream_cost(node, 40); }

Attrs attrs_of(const char* divergence, double temperature, double beta = 0.5) {
  return {{"divergence", std::string(divergence)}, {"temperature", temperature}, {"beta", beta}};
}
Sample sample(int64_t rows, int64_t width, Attrs attrs) {
  return {.in = {normal({rows, width}), normal({rows, width})}, .attrs = std::move(attrs)};
}
/// Adds labels of which the value -1 excludes a row.
Sample with_labels(Sample sample) {
  const Shape& shape = sample.in[0].type.shape;
  sample.in.push_back(labels_or_none(shape[0], shape[1]));
  sample.attrs.set("ignore", int64_t{-1});
  return sample;
}
Sample with_sigmoid(Sample sample) {
  sample.attrs.set("sigmoid", int64_t{1});
  return sample;
}
std::vector<Sample> samples() {
  return {sample(7, 10, attrs_of("forward", 1)),
          sample(64, 10, attrs_of("forward", 4)),
          sample(5, 1003, attrs_of("reverse", 2)),
          sample(3, 1300, attrs_of("jsd", 1.5, 0.25)),
          sample(9, 33, attrs_of("jsd", 1, 1)),
          sample(1, 1, attrs_of("forward", 1)),
          with_labels(sample(150, 2, attrs_of("forward", 2))),
          with_labels(sample(83, 21, attrs_of("reverse", 1))),
          with_sigmoid(sample(90, 3, attrs_of("forward", 2))),
          with_sigmoid(with_labels(sample(40, 80, attrs_of("reverse", 1)))),
          with_sigmoid(sample(2, 1100, attrs_of("jsd", 3, 0.75)))};
}
std::vector<Sample> grad_samples() {
  std::vector<Sample> result = samples();
  for (Sample& sample : result)
    sample.in.insert(sample.in.begin() + DistillIn::dlosses, normal({sample.in[0].type.shape[0]}));
  return result;
}

}  // namespace

DistillFormula distill_formula(const Attrs& attrs) {
  const auto divergence = value_named<Divergence>(attrs.text_or("divergence", "forward"));
  return {.divergence = divergence.value_or(Divergence::forward),
          .weight = 1,
          .temperature = static_cast<float>(attrs.real_or("temperature", 1)),
          .beta = static_cast<float>(attrs.real_or("beta", 0.5))};
}

DistillAttrs::DistillAttrs(const NodeView& node)
    : formula(distill_formula(node.attrs)),
      sigmoid(node.attrs.integer_or("sigmoid", 0) != 0),
      ignores(node.attrs.contains("ignore")),
      ignore(static_cast<int>(node.attrs.integer_or("ignore", 0))) {}

const OpDef distill_loss{
    .name = "distill_loss",
    .doc =
        "distill_loss(logits [N, K], teacher [N, K], labels?): losses f32 [N], temperature^2 times the "
        "divergence of the student's distribution from the teacher's; 0 for the label `ignore`",
    .inputs = {"logits", "teacher", "labels?"},
    .infer = infer,
    .vjp = vjp,
    .cpu = kernel,
    .gpu = true,
    .reference = reference,
    .cost = cost,
    .precision = ir::Precision::full,
    .samples = samples};

const OpDef distill_loss_grad{.name = "distill_loss_grad",
                              .doc = "distill_loss_grad(logits, teacher, dlosses [N], labels?): dlogits",
                              .inputs = {"logits", "teacher", "dlosses", "labels?"},
                              .infer = infer_grad,
                              .no_vjp_because = kNoSecondDerivatives,
                              .cpu = grad_kernel,
                              .gpu = true,
                              .reference = grad_reference,
                              .cost = cost,
                              .precision = ir::Precision::full,
                              .samples = grad_samples};

}  // namespace hearth::ops
