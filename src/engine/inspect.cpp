#include "engine/inspect.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/graph_builder.h"
#include "engine/plan_builder.h"
#include "engine/runtime.h"

namespace hearth::engine {
namespace {

using ir::ValueId;

bool all_finite(const exec::Executor& executor, ValueId id) {
  const ir::Type& type = executor.graph().type(id);
  if (!is_floating(type.dtype)) return true;
  const void* data = executor.data(id);
  for (int64_t i = 0; i < type.shape.num_elements(); ++i) {
    if (!std::isfinite(load_element(type.dtype, data, i))) return false;
  }
  return true;
}

/// Returns " (its weight NAME is not finite any more)" for a non-finite weight among the node's inputs; empty
/// if there is none.
std::string broken_weight(const exec::Executor& executor, const ir::Node& node) {
  for (const ValueId in : node.inputs) {
    if (in == ir::kNone) continue;
    const ir::Value& value = executor.graph().value(in);
    if (value.role != ir::Role::parameter || value.producer != ir::kNone || all_finite(executor, in))
      continue;
    return fmt::format(" (its weight {} is not finite any more)", value.name);
  }
  return "";
}

/// Returns the index of the first row of an input that contains a non-finite number; -1 if there is none.
int64_t broken_row(const ir::Type& type, const void* data) {
  if (!is_floating(type.dtype)) return -1;
  const int64_t count = type.shape.num_elements();
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(load_element(type.dtype, data, i))) return i / (count / type.shape[0]);
  }
  return -1;
}

}  // namespace

Inspector::Inspector(Engine& engine) : engine_(engine), runtime_(*engine.runtime_), plan_(runtime_.plan()) {}

std::string Inspector::find_not_finite(const MicroBatch& given, int64_t step, int64_t index) {
  const MicroBatch batch = runtime_.sorted(given);
  const exec::Program program = compile_gradients(plan_, batch.shape(), runtime_.checks());
  for (size_t i = 0; i < plan_.input_names.size(); ++i) {
    const ValueId input = *program.graph.find(plan_.input_names[i]);
    const int64_t row = broken_row(program.graph.type(input), batch.arrays[i].data);
    if (row >= 0) return fmt::format("the data ({} of row {} of its micro-batch)", plan_.input_names[i], row);
  }
  const ScratchMemory scratch(runtime_.memory(), program);
  exec::Executor executor(program);
  executor.bind(scratch.places());
  executor.set_scalar(kInverseSamples, static_cast<float>(1.0 / static_cast<double>(batch.num_rows)));
  ProgramInputs inputs(executor, plan_.input_names);
  inputs.bind(batch, step, index);
  std::string found;
  runtime_.memory().sync_gpu();
  executor.run_with(runtime_.threads(), [&](size_t node, double) {
    if (!found.empty()) return;
    const ir::Node& made = program.graph.nodes[node];
    for (const ValueId out : made.outputs) {
      if (!found.empty() || all_finite(executor, out)) continue;
      found = fmt::format("{} of {}{}", made.op->name, made.name, broken_weight(executor, made));
    }
  });
  return found;
}

std::vector<double> Inspector::profile(const MicroBatch& batch, int num_steps) {
  exec::Executor& executor = runtime_.executor(plan_.step.at(batch.shape()));
  std::vector<double> best(executor.graph().nodes.size(), 1e9);
  runtime_.memory().sync_gpu();
  for (int i = 0; i < num_steps; ++i) {
    executor.run_with(runtime_.threads(),
                      [&](size_t node, double seconds) { best[node] = std::min(best[node], seconds); });
  }
  for (double& seconds : best) seconds = seconds == 1e9 ? 0 : seconds;
  return best;
}

void Inspector::record(gpu::Event& event) { runtime_.memory().gpu()->record(event); }

bool Inspector::is_recorded() { return runtime_.executor(plan_.train_program()).is_recorded(); }

void Inspector::gradients(const MicroBatch& batch, int64_t num_samples,
                          const std::function<void(const nn::Tensor&, std::span<const float>)>& take) {
  const exec::Program program = compile_gradients(plan_, batch.shape(), runtime_.checks());
  const ScratchMemory scratch(runtime_.memory(), program);
  exec::Executor executor(program);
  executor.bind(scratch.places());
  const std::vector<std::byte> kept(engine_.state().begin(), engine_.state().end());
  executor.set_scalar(kInverseSamples, static_cast<float>(1.0 / static_cast<double>(num_samples)));
  ProgramInputs inputs(executor, plan_.input_names);
  inputs.bind(runtime_.sorted(batch), 0, 0);
  runtime_.run(executor);
  const double scale = loss_scale(engine_);
  size_t position = kFirstOther;
  for (const nn::Tensor& tensor : plan_.tensors) {
    if (!tensor.trainable) continue;
    const auto* memory = static_cast<const float*>(executor.data(program.graph.outputs[position++]));
    std::vector<float> file(static_cast<size_t>(tensor.layout.file_shape.num_elements()));
    nn::to_file_order(tensor.layout, memory, file.data());
    for (float& value : file) value = static_cast<float>(value / scale);
    take(tensor, file);
  }
  std::copy(kept.begin(), kept.end(), engine_.state().begin());
}

}  // namespace hearth::engine
