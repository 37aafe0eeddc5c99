#include "engine/gpu_options.h"

#include "base/process.h"

namespace hearth::engine {

bool is_emulated(std::string_view device) { return device.starts_with("emulated"); }

void use_gpu(EngineOptions& options, exec::GpuRequest gpu, SelfTestMode self_test) {
  using When = SelfTestMode;
  const bool emulated = is_emulated(gpu.device);
  if (emulated) gpu.reserve_bytes = 0;
  if (emulated && self_test == When::once) self_test = When::never;
  const fs::path cache = user_cache_folder();
  if (!emulated && !cache.empty()) gpu.recordings = cache / "recordings.json";
  options.backend = exec::Backend::gpu;
  options.gpu = std::move(gpu);
  options.device = emulated ? cost::emulated_gpu(options.precision) : cost::default_gpu();
  options.self_test = {.when = self_test, .folder = cache};
  // Matmuls on an emulated GPU are autotuned only in tests that request a matmul library.
  if (!emulated || !exec::driver_of(options.gpu.device).runtime().library.empty())
    options.matmul_cache = gpu::WinnerFile::default_path();
}

}  // namespace hearth::engine
