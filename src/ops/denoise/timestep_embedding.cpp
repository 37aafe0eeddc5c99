#include "ops/denoise/denoise.h"
#include "ops/denoise/timestep_formula.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

Inferred infer(const NodeView& node) {
  const Type& t = node.in_type(0);
  if (t.dtype != DType::f32 || t.shape.rank() != 1) return refuse_type("t", "f32[B]", t);
  const int64_t size = node.attrs.integer("size"), shift = node.attrs.integer_or("shift", 0);
  if (size / 2 - shift < 1 || shift < 0)
    return refuse(fmt::format("expected size >= {}, got {}", 2 * shift + 2, size));
  if (!(node.attrs.real_or("max_period", 10000) > 0)) return refuse("expected max_period > 0");
  return {.out = {f32_type({t.shape[0], size})}, .error = ""};
}

template <typename T>
void fill(const TimestepFormula& formula, int64_t count, int64_t size, const T* t, T* out) {
  for (int64_t i = 0; i < count * size; ++i)
    out[i] = static_cast<T>(formula.element(static_cast<float>(t[i / size]), i % size));
}

Kernel kernel(const NodeView& node) {
  const Type& out = node.out_type(0);
  return {.run = [formula = TimestepFormula(node.attrs), count = out.shape[0],
                  size = out.shape[1]](const KernelArgs& args) {
    fill(formula, count, size, args.input<float>(0), args.output<float>(0));
  }};
}
void reference(const ReferenceArgs& args) {
  const Shape& out = args.node.out_type(0).shape;
  fill(TimestepFormula(args.node.attrs), out[0], out[1], args.in[0].data(), args.out[0].data());
}

std::vector<Sample> samples() {
  const auto sample = [](const Shape& t, int64_t size, int64_t cos_first, int64_t shift, double period) {
    return Sample{
        .in = {normal(t)},
        .attrs = {{"size", size}, {"cos_first", cos_first}, {"shift", shift}, {"max_period", period}}};
  };
  return {sample({3}, 8, 1, 0, 10000), sample({2}, 256, 0, 1, 10000), sample({5}, 7, 1, 1, 300),
          sample({1}, 2, 1, 0, 10000)};
}

Cost cost(const NodeView& node) {
  Cost cost = cost_per_element(node, 40);
  cost.kernel = KernelKind::timestep_embedding;
  return cost;
}

}  // namespace

const OpDef timestep_embedding{
    .name = "timestep_embedding",
    .doc = "timestep_embedding(t f32 [B]){size, cos_first, shift, max_period}: sinusoids of t, f32 [B, size]",
    .inputs = {"t"},
    .infer = infer,
    .no_vjp_because = "timesteps are sampled, not learned",
    .cpu = kernel,
    .gpu = true,
    .reference = reference,
    .cost = cost,
    .precision = ir::Precision::full,
    .samples = samples};

}  // namespace hearth::ops
