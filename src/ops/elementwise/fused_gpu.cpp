#include <iterator>

#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/formulas.h"
#include "ops/elementwise/program.h"
#include "ops/gpu_support.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// A step of a chain: applies a formula to the values in slots a and b and stores the result in slot `to`.
/// Inputs are in the first slots; results reuse the slots of values that no later step reads.
struct GpuStep {
  int formula;  ///< index in Formulas
  int a, b, to;
  float parameter;
};
struct GpuProgram {
  int num_inputs;
  int num_steps;
  int num_slots;
  GpuStep steps[kMaxSteps];
};
template <typename T>
struct GpuInputs {
  const T* at[kMaxInputs];
};

/// Number of elements that a thread computes at a time.
constexpr int kLaneElements = 4;
using Values = rt::Vec<float, kLaneElements>;

template <class F>
RT_DEVICE bool apply_to(Values& result, const Values& a, const Values& b, float p) {
  RT_UNROLL
  for (int e = 0; e < kLaneElements; ++e) result.at[e] = F()(a.at[e], b.at[e], p);
  return true;
}
/// Applies formula number `formula` to all elements of a thread; branches on the formula once, not per
/// element.
template <class... F>
RT_DEVICE Values apply(FormulaList<F...>, int formula, const Values& a, const Values& b, float p) {
  Values result = {};
  int formula_index = 0;
  static_cast<void>(((formula_index++ == formula && apply_to<F>(result, a, b, p)) || ...));
  return result;
}

/// Runs all steps on kLaneElements elements per thread at a time. The slots are in shared memory, because
/// arrays with dynamic indices cannot be kept in registers.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    run_program(GpuInputs<T> in, T* out, int64_t count, GpuProgram program) {
  RT_DYNAMIC_SHARED(float, shared);
  const auto slot = [local = shared + threadIdx.x * kLaneElements](int i) {
    return local + i * kLaneElements * kBlockThreads;
  };
  for (int64_t at = first_element() * kLaneElements; at < count; at += element_stride() * kLaneElements) {
    for (int k = 0; k < program.num_inputs; ++k) {
      const auto input = load_before<kLaneElements>(count, in.at[k], at);
      Values values;
      RT_UNROLL
      for (int e = 0; e < kLaneElements; ++e) values.at[e] = rt::to_float(input.at[e]);
      rt::store(slot(k), values);
    }
    Values result = {};
    for (int s = 0; s < program.num_steps; ++s) {
      const GpuStep& step = program.steps[s];
      result = apply(Formulas(), step.formula, rt::load<float, kLaneElements>(slot(step.a)),
                     rt::load<float, kLaneElements>(slot(step.b)), step.parameter);
      rt::store(slot(step.to), result);
    }
    rt::Vec<T, kLaneElements> made;
    RT_UNROLL
    for (int e = 0; e < kLaneElements; ++e) made.at[e] = rt::from_float<T>(result.at[e]);
    store_before(count, out, at, made);
  }
}

int formula_of(const ir::OpDef& op) {
  const auto names = formula_names();
  return static_cast<int>(std::find(names.begin(), names.end(), op.name) - names.begin());
}

GpuProgram program_of(const NodeView& node) {
  const std::vector<ElementwiseStep> steps = parse_program(node.attrs.text("program"));
  const int num_inputs = static_cast<int>(std::ssize(node.in)),
            num_steps = static_cast<int>(std::ssize(steps));
  GpuProgram made{.num_inputs = num_inputs, .num_steps = num_steps, .num_slots = num_inputs, .steps = {}};
  // Values are numbered: inputs first, then the results of the steps.
  const auto value_of = [&](int operand) { return operand >= 0 ? operand : num_inputs - 1 - operand; };
  int slot_of[kMaxInputs + kMaxSteps], last_step[kMaxInputs + kMaxSteps] = {};
  for (int s = 0; s < num_steps; ++s) {
    const ElementwiseStep& step = steps[static_cast<size_t>(s)];
    const bool binary = step.op->inputs.size() > 1;
    made.steps[s] = {.formula = formula_of(*step.op),
                     .a = value_of(step.operands[0]),
                     .b = value_of(step.operands[binary ? 1 : 0]),
                     .to = 0,
                     .parameter = step.parameter};
    last_step[made.steps[s].a] = last_step[made.steps[s].b] = s;
  }
  for (int k = 0; k < num_inputs; ++k) slot_of[k] = k;
  for (int s = 0; s < num_steps; ++s) {
    GpuStep& step = made.steps[s];
    const int a = step.a, b = step.b, result = num_inputs + s;
    step.a = slot_of[a];
    step.b = slot_of[b];
    step.to = last_step[a] == s ? step.a : last_step[b] == s ? step.b : made.num_slots++;
    slot_of[result] = step.to;
  }
  return made;
}

template <typename T>
ir::Kernel make(const NodeView& node) {
  const int64_t count = node.in_type(0).shape.num_elements();
  const auto run = [count, program = program_of(node)](const KernelArgs& args) {
    GpuInputs<T> in{};
    for (int k = 0; k < program.num_inputs; ++k) in.at[k] = input_of<T>(args, static_cast<size_t>(k));
    rt::launch(run_program<T>,
               {num_stride_blocks(ceil_div(count, kLaneElements)), kBlockThreads,
                program.num_slots * kBlockThreads * int64_t{sizeof(Values)}},
               args.stream->handle(), in, output_of<T>(args, 0), count, program);
  };
  return {.run = run};
}

ir::Kernel fused_elementwise_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype, [&](auto x) { return make<decltype(x)>(node); });
}

const GpuKernels kKernels = {{.op = "fused_elementwise", .one = fused_elementwise_gpu}};

}  // namespace
}  // namespace hearth::ops
