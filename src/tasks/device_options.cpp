#include "tasks/device_options.h"

#include <algorithm>

namespace hearth::tasks {
exec::GpuRequest gpu_of(const recipe::Recipe& recipe, int device) {
  return {
      .device = recipe.device, .number = device, .reserve_bytes = recipe.reserve, .record = recipe.record};
}

encoders::Compute compute_of(const recipe::Recipe& recipe, int device) {
  encoders::Compute compute{.num_threads = recipe::num_threads(recipe),
                            .winograd = std::ranges::count(recipe.passes.off, recipe::kWinograd) == 0,
                            .self_test = recipe.self_test};
  if (recipe.device != recipe::kCpu) compute.gpu = gpu_of(recipe, device);
  return compute;
}

}  // namespace hearth::tasks
