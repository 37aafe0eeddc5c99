#include "run/stage_devices.h"

#include <algorithm>

#include "base/error.h"
#include "cost/device.h"
#include "exec/device/gpu_choice.h"

namespace hearth::run {

passes::StageDevice stage_device(const recipe::Recipe& recipe, int device) {
  passes::StageDevice found{.speed = 0};
  if (recipe.device == recipe::kCpu) return found;
  try {
    const gpu::DeviceInfo gpu = exec::find_gpu(recipe.device, device);
    found.memory_bytes = gpu.memory_bytes;
    if (const cost::Device* model = cost::find_gpu_by_driver_name(gpu.name))
      found.speed = cost::peak_flops_per_second(*model, DType::f32);
  } catch (const UserError&) {
    // Ignores the error, which is reported when the engine opens the GPU. This worker must still take part in
    // the collective that follows.
  }
  return found;
}

std::vector<passes::StageDevice> gather_stage_devices(const passes::StageDevice& local,
                                                      distributed::ProcessGroup& group) {
  std::vector<passes::StageDevice> all(static_cast<size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(&local, 1)), std::as_writable_bytes(std::span(all)));
  if (std::ranges::any_of(all, [](const auto& device) { return device.speed <= 0; })) {
    for (passes::StageDevice& device : all) device.speed = 1;
  }
  return all;
}

}  // namespace hearth::run
