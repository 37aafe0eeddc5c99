#include <cmath>
#include <memory>
#include <numeric>

#include "ops/loss/head_cpu.h"
#include "ops/loss/loss.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

cpu::HeadSpec spec_of(const NodeView& node) {
  const Type& x = node.in_type(HeadIn::x);
  const Type& weight = node.in_type(HeadIn::weight);
  return {.task = cpu::HeadSpec::Task::top_k,
          .tokens = x.shape[0],
          .width = x.shape[1],
          .vocab = weight.shape[0],
          .chunk = node.attrs.integer_or("rows", kHeadRows),
          .softcap = static_cast<float>(node.attrs.real_or("softcap", 0)),
          .x = x.dtype,
          .weight = weight.dtype,
          .top_k = node.attrs.integer("k"),
          .num_listed = node.attrs.integer("vocab"),
          .num_threads = node.num_threads};
}

Inferred infer(const NodeView& node) {
  const NodeView head{.attrs = node.attrs, .in = node.in, .out = {}};
  if (const Inferred checked = head_cross_entropy.infer(head); !checked.error.empty()) return checked;
  const int64_t k = node.attrs.integer_or("k", 0), vocab = node.attrs.integer_or("vocab", 0);
  if (k < 1 || k > vocab || vocab > node.in_type(HeadIn::weight).shape[0])
    return refuse(fmt::format("expected 1 <= k <= vocab <= V, got k={} and vocab={}", k, vocab));
  const Shape shape{node.in_type(HeadIn::x).shape[0], k};
  return {.out = {{.dtype = DType::i32, .shape = shape}, f32_type(shape)}, .error = ""};
}

Kernel kernel(const NodeView& node) {
  const auto head = std::make_shared<const cpu::Head>(spec_of(node));
  const auto run = [=](const KernelArgs& args) {
    head->run({.x = args.in[HeadIn::x],
               .weight = args.in[HeadIn::weight],
               .labels = args.input<int32_t>(HeadIn::labels),
               .top_ids = args.output<int32_t>(0),
               .top_logps = args.output<float>(1)},
              args.workspace, *args.threads);
  };
  return {.run = run, .workspace_bytes = head->workspace_bytes()};
}

void reference(const ReferenceArgs& args) {
  const cpu::HeadSpec s = spec_of(args.node);
  const auto k = static_cast<size_t>(s.top_k), width = static_cast<size_t>(s.width);
  const double cap = static_cast<double>(s.softcap);
  for (size_t t = 0; t < static_cast<size_t>(s.tokens); ++t) {
    const auto ids = args.out[0].begin() + static_cast<int64_t>(t * k);
    const auto logps = args.out[1].begin() + static_cast<int64_t>(t * k);
    std::iota(ids, ids + s.top_k, 0.0);
    std::fill_n(logps, k, 0.0);
    if (args.in[HeadIn::labels][t] < 0) continue;
    std::vector<double> logits(static_cast<size_t>(s.num_listed)), order(logits.size());
    double sum = 0;
    for (size_t v = 0; v < logits.size(); ++v) {
      for (size_t c = 0; c < width; ++c)
        logits[v] += args.in[HeadIn::x][t * width + c] * args.in[HeadIn::weight][v * width + c];
      if (cap > 0) logits[v] = cap * std::tanh(logits[v] / cap);
      sum += std::exp(logits[v]);
    }
    std::iota(order.begin(), order.end(), 0.0);
    std::ranges::stable_sort(order, [&](double a, double b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    std::copy_n(order.begin(), k, ids);
    std::sort(ids, ids + s.top_k);
    for (size_t j = 0; j < k; ++j)
      args.out[1][t * k + j] = logits[static_cast<size_t>(args.out[0][t * k + j])] - std::log(sum);
  }
}

Cost cost(const NodeView& node) {
  const cpu::HeadSpec s = spec_of(node);
  const auto weights = static_cast<double>(s.width * s.vocab);
  const double chunks = std::ceil(static_cast<double>(s.tokens) / static_cast<double>(s.chunk));
  return {.flops = 2 * static_cast<double>(s.tokens) * weights,
          .bytes = bytes_moved(node) + (chunks - 1) * weights * static_cast<double>(dtype_bytes(s.weight)),
          .kernel = KernelKind::head};
}

Sample sample(const Shape& x, int64_t vocab, int64_t num_listed, int64_t k, double softcap, DType dtype) {
  return {.in = {normal(x, dtype), normal({vocab, x[1]}, dtype), labels_or_none(x[0], vocab)},
          .attrs = {{"rows", int64_t{4}}, {"softcap", softcap}, {"k", k}, {"vocab", num_listed}}};
}
std::vector<Sample> samples() {
  return {sample({7, 5}, 9, 9, 3, 0, DType::f32), sample({20, 9}, 44, 41, 41, 0, DType::f32),
          sample({6, 33}, 1100, 1021, 64, 30, DType::f32), sample({5, 16}, 400, 400, 1, 0, DType::bf16)};
}

}  // namespace

const OpDef head_top_k{.name = "head_top_k",
                       .doc =
                           "head_top_k(x [N, D], weight [V, D], labels i32 [N]): ids i32 [N, k] and "
                           "log-probabilities of the k most likely of the first `vocab` tokens",
                       .inputs = {"x", "weight", "labels"},
                       .infer = infer,
                       .no_vjp_because = "a teacher is not trained",
                       .cpu = kernel,
                       .gpu = true,
                       .reference = reference,
                       .cost = cost,
                       .precision = ir::Precision::compute,
                       .num_lowered = HeadIn::labels,
                       .smaller = half_the_head_rows,
                       .samples = samples};

}  // namespace hearth::ops
