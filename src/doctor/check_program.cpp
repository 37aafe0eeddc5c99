// Checks that this program has a runtime module for the vendor of each GPU, kernels for its architecture, and
// a matmul library.
#include <algorithm>

#include "doctor/checks.h"
#include "exec/device/gpu_choice.h"

namespace hearth::doctor {
namespace {

void check_runtime(const Program& program, bool amd, Findings& found) {
  const std::string_view wanted = amd ? "HIP" : "CUDA";
  const auto runtime = std::ranges::find(program.runtimes, wanted, &gpu::Runtime::name);
  if (runtime == program.runtimes.end()) {
    found.push_back({.level = Level::broken,
                     .id = "module",
                     .what = fmt::format("this Hearth was built without {}", wanted),
                     .cost = "device=gpu does not work",
                     .fix = fmt::format("tools/build --gpu {}", amd ? "hip" : "cuda")});
    return;
  }
  const bool shows = std::ranges::any_of(program.devices, [&](const gpu::DeviceInfo& gpu) {
    return exec::runtime_of(gpu, program.runtimes).name == wanted;
  });
  if (!shows) {
    found.push_back({.level = Level::broken,
                     .id = "runtime",
                     .what = fmt::format("{} shows no GPU{}{}", wanted, runtime->fault.empty() ? "" : ": ",
                                         runtime->fault),
                     .cost = "device=gpu does not work",
                     .fix = amd ? "rocminfo shows details (Debian: sudo apt install rocminfo)"
                                : "nvidia-smi shows details"});
  }
  if (runtime->library.empty()) {
    found.push_back({.level = Level::warning,
                     .id = "matmul-library",
                     .what = fmt::format("{} is missing", amd ? "rocBLAS" : "cuBLASLt"),
                     .cost = "only Hearth's own matmul kernels are used, which are slower for large matmuls",
                     .fix = amd ? "Debian: sudo apt install librocblas0; Ubuntu: sudo apt install rocblas"
                                : "sudo apt install libcublas-13-0, or of your CUDA's version"});
  }
}

}  // namespace

void check_program(const Machine& machine, const Program& program, Findings& found) {
  if (!program.fault.empty()) {
    found.push_back({.level = Level::broken,
                     .id = "runtime",
                     .what = program.fault,
                     .cost = "device=gpu does not work, and programs that try may hang",
                     .fix = "sudo dmesg | tail -50; usually only a restart helps"});
    return;
  }
  if (has_amd(machine)) check_runtime(program, true, found);
  if (has_nvidia(machine)) check_runtime(program, false, found);
  for (size_t i = 0; i < program.devices.size(); ++i) {
    const gpu::DeviceInfo& gpu = program.devices[i];
    const gpu::Runtime& runtime = exec::runtime_of(gpu, program.runtimes);
    const bool has = exec::has_kernels_for(runtime.architectures, gpu.architecture);
    found.push_back(
        {.level = has ? Level::ok : Level::broken,
         .id = has ? "device" : "kernels",
         .subject = gpu.pci_address,
         .what =
             has ? fmt::format("device=gpu:{}: {}, {}, {}", i, gpu.name, gpu.architecture, gpu.driver_version)
                 : fmt::format("this Hearth has no kernels for {}, {}", gpu.architecture, gpu.name),
         .cost = has ? "" : "device=gpu does not work on it",
         .fix = has ? "" : exec::build_command(runtime, gpu.architecture)});
  }
}

}  // namespace hearth::doctor
