#include <cstring>

#include "backend/cpu/convert.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/program.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

Inferred infer(const NodeView& node) {
  for (const Type& type : node.in) {
    if (type != node.in[0]) return refuse("expected all inputs to have one type");
  }
  const auto steps = parse_program(node.attrs.text("program"));
  if (steps.empty() || std::ssize(steps) > kMaxSteps) return refuse("expected a program of 1 to 16 steps");
  return same_as_first(node);
}

/// Runs all steps on one tile of `count` elements; results[s] is the result of step s. Tiles are small, so
/// that intermediate results stay in the cache.
void run_tile(const std::vector<ElementwiseStep>& steps, const float* const* inputs, float (*results)[kTile],
              int64_t count) {
  for (size_t s = 0; s < steps.size(); ++s) {
    const auto operand = [&](int index) { return index >= 0 ? inputs[index] : results[-1 - index]; };
    const float* a = operand(steps[s].operands[0]);
    const float* b = steps[s].op->inputs.size() > 1 ? operand(steps[s].operands[1]) : a;
    steps[s].op->elementwise(a, b, results[s], count, steps[s].parameter, 0);
  }
}

Kernel kernel(const NodeView& node) {
  const auto steps = parse_program(node.attrs.text("program"));
  const DType dtype = node.in[0].dtype;
  const int64_t count = node.in[0].shape.num_elements();
  const size_t num_inputs = node.in.size();
  return {.run = [=](const KernelArgs& args) {
    args.threads->parallel_for(count, kGrain, [&](Range range) {
      alignas(64) float scratch[kMaxInputs][kTile];
      alignas(64) float results[kMaxSteps][kTile];
      for (int64_t i = range.begin; i < range.end; i += kTile) {
        const int64_t n = std::min(kTile, range.end - i);
        const float* inputs[kMaxInputs];
        for (size_t k = 0; k < num_inputs; ++k) inputs[k] = cpu::as_f32(dtype, args.in[k], i, n, scratch[k]);
        run_tile(steps, inputs, results, n);
        cpu::store_f32(dtype, results[steps.size() - 1], args.out[0], i, n);
      }
    });
  }};
}

void reference(const ReferenceArgs& args) {
  std::vector<std::vector<double>> results;
  for (const ElementwiseStep& step : parse_program(args.node.attrs.text("program"))) {
    std::vector<std::vector<double>> in;
    for (size_t k = 0; k < step.op->inputs.size(); ++k) {
      const int operand = step.operands[k];
      in.push_back(operand >= 0 ? args.in[static_cast<size_t>(operand)]
                                : results[static_cast<size_t>(-1 - operand)]);
    }
    std::vector<std::vector<double>> out(1, std::vector<double>(in[0].size()));
    Attrs attrs;
    attrs.set(step.op->name == "scale" ? "factor" : "value", static_cast<double>(step.parameter));
    step.op->reference(
        {.node = {.attrs = attrs, .in = args.node.in, .out = args.node.out}, .in = in, .out = out});
    results.push_back(std::move(out[0]));
  }
  args.out[0] = results.back();
}

std::vector<Sample> samples() {
  const Attrs three = {{"program", std::string("add(i0,i1);relu(t0);scale(t1,0.5)")}};
  const Attrs two = {{"program", std::string("mul(i0,i1);add(t0,i2)")}};
  const Attrs last = {
      {"program", std::string("silu_grad(i2,i0);sub(i1,t0);gelu(t1);mul(t0,t2);add_scalar(t3,-0.25)")}};
  // `values` and `slopes` contain every formula.
  const Attrs values = {
      {"program",
       std::string(
           "tanh(i0);sigmoid(t0);sqrt(t1);exp(t2);log(t3);reciprocal(t4);rsqrt(t5);div(t6,t5);sub(t7,t1);"
           "neg(t8);abs(t9);square(t10);gelu_tanh(t11);silu(t12);minimum(t13,i1);maximum(t14,i2)")}};
  const Attrs slopes = {
      {"program",
       std::string(
           "tanh(i0);tanh_grad(i1,t0);sigmoid(i2);sigmoid_grad(t1,t2);gelu_tanh_grad(t3,i0);gelu_grad(t4,i1);"
           "relu_grad(t5,i2);copy(t6);sign(i0);add(t7,t8);greater(i1,i2);add(t9,t10)")}};
  const auto all = [](const Shape& shape, const Attrs& program, DType dtype) {
    return Sample{.in = {normal(shape, dtype), normal(shape, dtype), normal(shape, dtype)}, .attrs = program};
  };
  return {all({3, 1000}, values, DType::f32),
          all({5, 7}, slopes, DType::f32),
          all({5, 7}, values, DType::bf16),
          all({3, 1000}, slopes, DType::bf16),
          {.in = {normal({3, 1000}), normal({3, 1000})}, .attrs = three},
          {.in = {normal({5003}), normal({5003}), normal({5003})}, .attrs = two},
          {.in = {normal({5, 7}, DType::bf16), normal({5, 7}, DType::bf16)}, .attrs = three},
          {.in = {normal({300}, DType::f16), normal({300}, DType::f16), normal({300}, DType::f16)},
           .attrs = last}};
}

}  // namespace

const OpDef fused_elementwise{
    .name = "fused_elementwise",
    .doc = "a chain of elementwise ops in one loop (attribute `program`)",
    .inputs = {"x+"},
    .max_inputs = kMaxInputs,
    .infer = infer,
    .no_vjp_because = "ops are fused after the backward pass",
    .cpu = kernel,
    .gpu = true,
    .reference = reference,
    .cost =
        [](const NodeView& node) {
          return cost_per_element(node,
                                  static_cast<double>(parse_program(node.attrs.text("program")).size()));
        },
    .may_work_in_place = true,
    .samples = samples};

}  // namespace hearth::ops
