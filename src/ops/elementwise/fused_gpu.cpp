#include <iterator>

#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/formulas.h"
#include "ops/elementwise/program.h"
#include "ops/gpu_support.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// A step's result is a formula of two values: inputs first, then results in order.
struct GpuStep {
  int formula;  ///< of Formulas
  int a, b;
  float parameter;
};
struct GpuProgram {
  int num_inputs;
  int num_steps;
  GpuStep steps[kMaxSteps];
};
template <typename T>
struct GpuInputs {
  const T* at[kMaxInputs];
};

template <class... F>
RT_DEVICE float apply(FormulaList<F...>, int formula, float a, float b, float p) {
  float result = 0;
  int place = 0;
  ((place++ == formula ? void(result = F()(a, b, p)) : void()), ...);
  return result;
}

/// The steps of an element one after another. A thread's values lie in a column of shared memory, and the
/// program there too: what a variable indexes cannot stay in registers.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    run_program(GpuInputs<T> in, T* out, int64_t count, GpuProgram given) {
  RT_SHARED(program, GpuProgram);
  RT_DYNAMIC_SHARED(float, values);
  if (threadIdx.x == 0) program = given;
  rt::sync_block();
  float* own = values + threadIdx.x;
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    for (int k = 0; k < kMaxInputs; ++k) {
      if (k < given.num_inputs) own[k * kBlockThreads] = rt::to_float(in.at[k][i]);
    }
    float result = 0;
    for (int s = 0; s < given.num_steps; ++s) {
      const GpuStep& step = program.steps[s];
      result = apply(Formulas(), step.formula, own[step.a * kBlockThreads], own[step.b * kBlockThreads],
                     step.parameter);
      own[(given.num_inputs + s) * kBlockThreads] = result;
    }
    out[i] = rt::from_float<T>(result);
  }
}

int formula_of(const ir::OpDef& op) {
  const auto names = formula_names();
  return static_cast<int>(std::find(names.begin(), names.end(), op.name) - names.begin());
}

GpuProgram program_of(const NodeView& node) {
  GpuProgram made{.num_inputs = static_cast<int>(std::ssize(node.in)), .num_steps = 0, .steps = {}};
  const auto place = [&](int operand) { return operand >= 0 ? operand : made.num_inputs - 1 - operand; };
  for (const ElementwiseStep& step : parse_program(node.attrs.text("program"))) {
    const bool binary = step.op->inputs.size() > 1;
    made.steps[made.num_steps++] = {.formula = formula_of(*step.op),
                                    .a = place(step.operands[0]),
                                    .b = place(step.operands[binary ? 1 : 0]),
                                    .parameter = step.parameter};
  }
  return made;
}

template <typename T>
ir::Kernel make(const NodeView& node) {
  const int64_t count = node.in_type(0).shape.num_elements();
  const auto run = [count, program = program_of(node)](const KernelArgs& args) {
    GpuInputs<T> in{};
    for (int k = 0; k < program.num_inputs; ++k) in.at[k] = input_of<T>(args, static_cast<size_t>(k));
    const int64_t value_bytes = kBlockThreads * int64_t{sizeof(float)};
    rt::launch(
        run_program<T>,
        {num_stride_blocks(count), kBlockThreads, (program.num_inputs + program.num_steps) * value_bytes},
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
