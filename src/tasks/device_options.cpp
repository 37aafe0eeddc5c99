#include "tasks/device_options.h"

#include <algorithm>

namespace hearth::tasks {
exec::GpuRequest gpu_of(const recipe::Recipe& recipe, int device) {
  exec::GpuRequest request{.device = recipe.device, .number = device, .record = recipe.record};
  request.reserve_bytes = recipe.reserve > 0 ? std::optional(recipe.reserve) : std::nullopt;
  return request;
}

encoders::Compute compute_of(const recipe::Recipe& recipe, int device) {
  encoders::Compute compute{.num_threads = recipe::num_threads(recipe),
                            .winograd = std::ranges::count(recipe.passes.off, recipe::kWinograd) == 0,
                            .self_test = recipe.self_test};
  if (recipe.device != recipe::kCpu) compute.gpu = gpu_of(recipe, device);
  return compute;
}

}  // namespace hearth::tasks
