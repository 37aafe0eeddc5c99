#include "engine/plan.h"

#include <algorithm>

#include "cost/seconds.h"
#include "exec/device/gpu.h"

namespace hearth::engine {

std::vector<const exec::Program*> Plan::programs() const {
  std::vector<const exec::Program*> all;
  for (const auto* kind : {&step, &accumulate, &evaluate}) {
    for (const auto& [shape, program] : *kind) all.push_back(&program);
  }
  for (const ShardLevel& level : levels) all.insert(all.end(), {&level.save, &level.add});
  if (prune) all.push_back(&*prune);
  if (outer) all.push_back(&*outer);
  for (const auto& [key, program] : stage.single_micro) all.push_back(&program);
  return all;
}

int64_t Plan::gpu_bytes() const {
  exec::ProgramMemory::Requirements needs;
  for (const exec::Program* program : programs()) needs.cover(*program);
  return exec::Gpu::needed_bytes(*layout, needs);
}

// With Parallel::pipeline, flops_per_update is counted before recomputation is planned, so nothing is
// subtracted.
double Plan::model_flops() const {
  if (options.parallel == Parallel::pipeline) return flops_per_update;
  return flops_per_update - static_cast<double>(options.accumulate) * recompute.extra_flops;
}

double Plan::allowed_seconds() const {
  double longest = 0;
  for (const exec::Program* program : programs()) longest = std::max(longest, program->seconds());
  return exec::allowed_seconds(static_cast<double>(options.accumulate) * longest);
}

double Plan::evaluation_seconds(BatchShape shape) const {
  return 10 * cost::simulate(evaluate.at(shape).graph, options.device).seconds;
}

}  // namespace hearth::engine
