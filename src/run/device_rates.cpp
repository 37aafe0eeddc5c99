#include "run/device_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "engine/gpu_options.h"

namespace hearth::run {
namespace {

/// Returns the GPU's name as its driver reports it; empty if there is no such GPU (opening the GPU later
/// throws the error).
std::string driver_name(const exec::GpuRequest& wish) {
  try {
    return exec::find_gpu(wish.device, wish.number).name;
  } catch (const UserError&) {
    return {};
  }
}

/// Returns the slowest GPU model among all workers, the one with the lowest half-precision rate. `local`:
/// this worker's GPU, an element of cost::known_gpus(). Collective call.
const cost::Device& slowest(const cost::Device& local, distributed::ProcessGroup& group) {
  const std::span<const cost::Device> known = cost::known_gpus();
  const int64_t number = &local - known.data();
  std::vector<int64_t> numbers(static_cast<size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(&number, 1)), std::as_writable_bytes(std::span(numbers)));
  const int64_t chosen = std::ranges::min(numbers, {}, [&](int64_t i) {
    const cost::Device& gpu = known[static_cast<size_t>(i)];
    return std::pair(gpu.half_flops_per_second, i);
  });
  return known[static_cast<size_t>(chosen)];
}

bool has_rates(std::string_view device) {
  return exec::names_gpu(device) && !engine::is_emulated(std::string(device));
}

}  // namespace

const cost::Device* slowest_gpu(const exec::GpuRequest& local, distributed::ProcessGroup& group) {
  return has_rates(local.device) ? &slowest(cost::nearest_gpu(driver_name(local)), group) : nullptr;
}

std::string set_device_rates(engine::EngineOptions& options, distributed::ProcessGroup* group) {
  if (options.backend != exec::Backend::gpu || engine::is_emulated(options.gpu.device)) return {};
  const std::string name = driver_name(options.gpu);
  const cost::Device& local = cost::nearest_gpu(name);
  options.device = group == nullptr ? local : slowest(local, *group);
  if (name.empty() || local.full_name == name) return {};
  return fmt::format("{} is not in the table of GPUs; times are modeled for {}", name, local.full_name);
}

double fraction_of_peak(double flops_per_second, const gpu::DeviceInfo* gpu, DType precision,
                        MatmulPrecision matmul_precision) {
  const cost::Device* model = gpu == nullptr ? nullptr : cost::find_gpu_by_driver_name(gpu->name);
  const double peak = model == nullptr ? 0 : cost::peak_flops_per_second(*model, precision, matmul_precision);
  return peak > 0 ? flops_per_second / peak : 0;
}

}  // namespace hearth::run
