#include "ops/elementwise/elementwise.h"

#include <array>

#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "ops/elementwise/formulas.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

template <class F>
HEARTH_CLONES void tile(const float* a, const float* b, float* out, int64_t count, float p, float) {
  for (int64_t i = 0; i < count; ++i) out[i] = F()(a[i], b[i], p);
}

template <class F>
void reference(const ReferenceArgs& args) {
  const std::vector<double>& a = args.in[0];
  const std::vector<double>& b = args.in.size() > 1 ? args.in[1] : a;
  const double p = formula_parameter(args.node.attrs);
  for (size_t i = 0; i < a.size(); ++i) args.out[0][i] = F()(a[i], b[i], p);
}

/// Returns a kernel that calls run_tile on tiles of up to kTile f32 elements, converted from and to the
/// inputs' dtype.
Kernel elementwise_kernel(const NodeView& node, decltype(OpDef::elementwise) run_tile) {
  const DType dtype = node.in[0].dtype;
  const int64_t count = node.in[0].shape.num_elements();
  const bool binary = node.in.size() > 1;
  const auto p = static_cast<float>(formula_parameter(node.attrs));
  return {.run = [=](const KernelArgs& args) {
    args.threads->parallel_for(count, kGrain, [&](Range range) {
      alignas(64) float scratch[3][kTile];
      for (int64_t i = range.begin; i < range.end; i += kTile) {
        const int64_t n = std::min(kTile, range.end - i);
        const float* a = cpu::as_f32(dtype, args.in[0], i, n, scratch[0]);
        const float* b = binary ? cpu::as_f32(dtype, args.in[1], i, n, scratch[1]) : a;
        float* out = dtype == DType::f32 ? args.output<float>(0) + i : scratch[2];
        run_tile(a, b, out, n, p, 0);
        cpu::store_f32(dtype, out, args.out[0], i, n);
      }
    });
  }};
}

template <class F>
Kernel kernel(const NodeView& node) {
  return elementwise_kernel(node, tile<F>);
}

Inferred infer_unary(const NodeView& node) {
  if (!is_floating(node.in[0].dtype)) return refuse("expected a floating input");
  return same_as_first(node);
}

Inferred infer_binary(const NodeView& node) {
  if (node.in[0] != node.in[1]) {
    return refuse(fmt::format("expected both inputs to have one type, got {} and {}",
                              to_string(node.in[0].shape), to_string(node.in[1].shape)));
  }
  return infer_unary(node);
}

using Vjp = std::vector<ValueId> (*)(const VjpContext&);
ValueId dy(const VjpContext& c) { return c.grad_out[0]; }
ValueId in(const VjpContext& c, size_t i) { return c.node.inputs[i]; }
ValueId out(const VjpContext& c) { return c.node.outputs[0]; }

/// Gradient of maximum and minimum: passes dy to input 0 where in(first) > in(second), otherwise to input 1.
std::vector<ValueId> select_vjp(const VjpContext& c, size_t first, size_t second) {
  const ValueId mask = emit(c, "greater", {in(c, first), in(c, second)});
  const ValueId taken = emit(c, "mul", {dy(c), mask});
  return {taken, emit(c, "sub", {dy(c), taken})};
}

struct Row {
  std::string_view name;
  std::string_view doc;
  std::span<const std::string_view> inputs;
  decltype(OpDef::elementwise) tile;
  Kernel (*cpu)(const NodeView&);
  size_t formula;  ///< index in Formulas
  void (*reference)(const ReferenceArgs&);
  Vjp vjp;
  SampleInput::Fill fill = SampleInput::Fill::normal;
};

template <class F>
constexpr Row row(std::string_view name, std::string_view doc, std::span<const std::string_view> inputs,
                  Vjp vjp, SampleInput::Fill fill = SampleInput::Fill::normal) {
  return {name, doc, inputs, tile<F>, kernel<F>, Formulas::index<F>(), reference<F>, vjp, fill};
}

using Ids = std::vector<ValueId>;
constexpr auto kPositive = SampleInput::Fill::positive;

/// Input names of unary ops, binary ops, gradients computed from the output, and gradients computed from the
/// input.
constexpr std::string_view kOne[] = {"a"};
constexpr std::string_view kTwo[] = {"a", "b"};
constexpr std::string_view kOfOutput[] = {"dy", "y"};
constexpr std::string_view kOfInput[] = {"dy", "x"};

const std::array kRows = {
    row<Add>("add", "a + b", kTwo,
             [](const VjpContext& c) -> Ids {
               return {dy(c), dy(c)};
             }),
    row<Sub>("sub", "a - b", kTwo,
             [](const VjpContext& c) -> Ids {
               return {dy(c), emit(c, "neg", {dy(c)})};
             }),
    row<Mul>("mul", "a * b", kTwo,
             [](const VjpContext& c) -> Ids {
               return {emit(c, "mul", {dy(c), in(c, 1)}), emit(c, "mul", {dy(c), in(c, 0)})};
             }),
    row<Div>(
        "div", "a / b", kTwo,
        [](const VjpContext& c) -> Ids {
          const ValueId da = emit(c, "div", {dy(c), in(c, 1)});
          return {da, emit(c, "neg", {emit(c, "mul", {da, out(c)})})};
        },
        kPositive),
    row<Maximum>("maximum", "the larger of a and b", kTwo,
                 [](const VjpContext& c) -> Ids { return select_vjp(c, 0, 1); }),
    row<Minimum>("minimum", "the smaller of a and b", kTwo,
                 [](const VjpContext& c) -> Ids { return select_vjp(c, 1, 0); }),
    row<Greater>("greater", "1 where a > b, else 0", kTwo, nullptr),
    row<Neg>("neg", "-a", kOne, [](const VjpContext& c) -> Ids { return {emit(c, "neg", {dy(c)})}; }),
    row<Abs>("abs", "|a|", kOne,
             [](const VjpContext& c) -> Ids {
               return {emit(c, "mul", {dy(c), emit(c, "sign", {in(c, 0)})})};
             }),
    row<Sign>("sign", "-1, 0 or 1", kOne, nullptr),
    row<Exp>("exp", "e^a", kOne,
             [](const VjpContext& c) -> Ids {
               return {emit(c, "mul", {dy(c), out(c)})};
             }),
    row<Log>(
        "log", "natural logarithm", kOne,
        [](const VjpContext& c) -> Ids {
          return {emit(c, "div", {dy(c), in(c, 0)})};
        },
        kPositive),
    row<Sqrt>(
        "sqrt", "square root", kOne,
        [](const VjpContext& c) -> Ids {
          return {emit(c, "scale", {emit(c, "div", {dy(c), out(c)})}, {{"factor", 0.5}})};
        },
        kPositive),
    row<Rsqrt>(
        "rsqrt", "1 / sqrt(a)", kOne,
        [](const VjpContext& c) -> Ids {
          const ValueId cube = emit(c, "mul", {emit(c, "square", {out(c)}), out(c)});
          return {emit(c, "scale", {emit(c, "mul", {dy(c), cube})}, {{"factor", -0.5}})};
        },
        kPositive),
    row<Square>("square", "a^2", kOne,
                [](const VjpContext& c) -> Ids {
                  return {emit(c, "scale", {emit(c, "mul", {dy(c), in(c, 0)})}, {{"factor", 2.0}})};
                }),
    row<Reciprocal>(
        "reciprocal", "1 / a", kOne,
        [](const VjpContext& c) -> Ids {
          return {emit(c, "neg", {emit(c, "mul", {dy(c), emit(c, "square", {out(c)})})})};
        },
        kPositive),
    row<Relu>("relu", "max(a, 0)", kOne,
              [](const VjpContext& c) -> Ids {
                return {emit(c, "relu_grad", {dy(c), out(c)})};
              }),
    row<Tanh>("tanh", "hyperbolic tangent", kOne,
              [](const VjpContext& c) -> Ids {
                return {emit(c, "tanh_grad", {dy(c), out(c)})};
              }),
    row<Sigmoid>("sigmoid", "1 / (1 + e^-a)", kOne,
                 [](const VjpContext& c) -> Ids {
                   return {emit(c, "sigmoid_grad", {dy(c), out(c)})};
                 }),
    row<Silu>("silu", "a * sigmoid(a)", kOne,
              [](const VjpContext& c) -> Ids {
                return {emit(c, "silu_grad", {dy(c), in(c, 0)})};
              }),
    row<Gelu>("gelu", "a * normal cdf(a), exact (erf)", kOne,
              [](const VjpContext& c) -> Ids {
                return {emit(c, "gelu_grad", {dy(c), in(c, 0)})};
              }),
    row<GeluTanh>("gelu_tanh", "a * sigmoid(2 u), u = sqrt(2 / pi) (a + 0.044715 a^3)", kOne,
                  [](const VjpContext& c) -> Ids {
                    return {emit(c, "gelu_tanh_grad", {dy(c), in(c, 0)})};
                  }),
    row<Softplus>("softplus", "log(1 + e^a)", kOne,
                  [](const VjpContext& c) -> Ids {
                    return {emit(c, "softplus_grad", {dy(c), in(c, 0)})};
                  }),
    row<HardSigmoid>("hardsigmoid", "a / 6 + 1 / 2, clamped to [0, 1]", kOne,
                     [](const VjpContext& c) -> Ids {
                       return {emit(c, "hardsigmoid_grad", {dy(c), in(c, 0)})};
                     }),
    row<HardSwish>("hardswish", "a * hardsigmoid(a)", kOne,
                   [](const VjpContext& c) -> Ids {
                     return {emit(c, "hardswish_grad", {dy(c), in(c, 0)})};
                   }),
    row<Scale>("scale", "a * factor", kOne,
               [](const VjpContext& c) -> Ids { return {emit(c, "scale", {dy(c)}, c.node.attrs)}; }),
    row<AddScalar>("add_scalar", "a + value", kOne, [](const VjpContext& c) -> Ids { return {dy(c)}; }),
    row<Copy>("copy", "a", kOne, [](const VjpContext& c) -> Ids { return {dy(c)}; }),
    row<ReluGrad>("relu_grad", "dy where y > 0", kOfOutput, nullptr),
    row<TanhGrad>("tanh_grad", "dy * (1 - y^2)", kOfOutput, nullptr),
    row<SigmoidGrad>("sigmoid_grad", "dy * y * (1 - y)", kOfOutput, nullptr),
    row<SiluGrad>("silu_grad", "dy * d silu(x)", kOfInput, nullptr),
    row<GeluGrad>("gelu_grad", "dy * d gelu(x)", kOfInput, nullptr),
    row<GeluTanhGrad>("gelu_tanh_grad", "dy * d gelu_tanh(x)", kOfInput, nullptr),
    row<SoftplusGrad>("softplus_grad", "dy * sigmoid(x)", kOfInput, nullptr),
    row<HardSigmoidGrad>("hardsigmoid_grad", "dy * d hardsigmoid(x)", kOfInput, nullptr),
    row<HardSwishGrad>("hardswish_grad", "dy * d hardswish(x)", kOfInput, nullptr),
};

std::vector<Sample> samples_of(const Row& row) {
  std::vector<Sample> samples;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Sample sample;
    for (size_t i = 0; i < row.inputs.size(); ++i) sample.in.push_back(filled(row.fill, {3, 1031}, dtype));
    if (row.name == "scale") sample.attrs.set("factor", -1.5);
    if (row.name == "add_scalar") sample.attrs.set("value", 0.25);
    samples.push_back(std::move(sample));
  }
  samples[0].in.assign(row.inputs.size(), filled(row.fill, {7}));
  samples.push_back(samples[0]);
  samples.back().in.assign(row.inputs.size(), filled(row.fill, {2, 3, 5}));
  return samples;
}

template <size_t index>
std::vector<Sample> samples() {
  return samples_of(kRows[index]);
}

template <size_t... index>
std::array<OpDef, sizeof...(index)> make_defs(std::index_sequence<index...>) {
  constexpr auto def = [](const Row& row, std::vector<Sample> (*make_samples)()) {
    return OpDef{.name = row.name,
                 .doc = row.doc,
                 .inputs = {row.inputs.begin(), row.inputs.end()},
                 .infer = row.inputs.size() == 2 ? infer_binary : infer_unary,
                 .vjp = row.vjp,
                 .no_vjp_because = row.vjp == nullptr ? "it is part of a gradient, or a step function" : "",
                 .cpu = row.cpu,
                 .gpu = true,
                 .reference = row.reference,
                 .cost = [](const NodeView& node) { return cost_per_element(node, 1); },
                 .may_work_in_place = true,
                 .elementwise = row.tile,
                 .samples = make_samples};
  };
  return {def(kRows[index], samples<index>)...};
}

}  // namespace

std::span<const OpDef> elementwise_ops() {
  static const std::array<OpDef, kRows.size()> defs = make_defs(std::make_index_sequence<kRows.size()>());
  return defs;
}

std::span<const std::string_view, Formulas::kCount> formula_names() {
  static const std::array<std::string_view, Formulas::kCount> names = [] {
    std::array<std::string_view, Formulas::kCount> all;
    for (const Row& row : kRows) all[row.formula] = row.name;
    return all;
  }();
  return names;
}

const OpDef& elementwise_op(std::string_view name) {
  const auto found = std::ranges::find(elementwise_ops(), name, &OpDef::name);
  if (found == elementwise_ops().end()) internal_error("there is no elementwise op '{}'", name);
  return *found;
}

double formula_parameter(const Attrs& attrs) {
  if (attrs.contains("factor")) return attrs.real("factor");
  return attrs.contains("value") ? attrs.real("value") : 0.0;
}

}  // namespace hearth::ops
