// Checks the installed ROCm and CUDA and the environment variables that affect them.
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "doctor/checks.h"
#include "exec/device/gpu_choice.h"

namespace hearth::doctor {
namespace {

using system::InstalledRuntime;

/// Returns the release of a version, for example "6.4" for "6.4.43483". Libraries of different releases must
/// not be mixed.
std::string release_of(const std::string& version) {
  const std::vector<int> numbers = system::version_numbers(version);
  return numbers.size() < 2 ? version : fmt::format("{}.{}", numbers[0], numbers[1]);
}

std::vector<InstalledRuntime> of_make(const Machine& machine, bool amd) {
  std::vector<InstalledRuntime> chosen;
  std::ranges::copy_if(machine.runtimes, std::back_inserter(chosen),
                       [&](const InstalledRuntime& one) { return (one.name != "CUDA driver") == amd; });
  return chosen;
}

void check_rocm(const Machine& machine, bool shown, Findings& found) {
  const std::vector<InstalledRuntime> installed = of_make(machine, true);
  if (installed.empty() && shown) return;
  if (installed.empty()) {
    found.push_back({.level = Level::broken,
                     .id = "rocm",
                     .what = "there is no HIP runtime (libamdhip64)",
                     .cost = "device=gpu does not work",
                     .fix = "Debian 13: sudo apt install libamdhip64-5; Ubuntu: AMD's packages, sudo apt "
                            "install hip-runtime-amd rocblas"});
    return;
  }
  std::set<std::string> releases;
  for (const InstalledRuntime& runtime : installed) {
    releases.insert(release_of(runtime.version));
    found.push_back(
        {.id = "rocm", .what = fmt::format("{} {} in {}", runtime.name, runtime.version, runtime.path)});
  }
  if (releases.size() < 2) return;
  found.push_back(
      {.level = Level::warning,
       .id = "rocm-mixed",
       .what = fmt::format("several releases of ROCm are installed: {}", fmt::join(releases, ", ")),
       .cost = "a program may load libraries of both, which crashes or computes wrong numbers",
       .fix = "remove all but one, or set ROCM_PATH to the one to use"});
}

/// `shown`: true if the CUDA runtime lists a GPU, so its library is installed somewhere.
void check_cuda(const Machine& machine, bool shown, Findings& found) {
  const std::vector<InstalledRuntime> installed = of_make(machine, false);
  for (const InstalledRuntime& runtime : installed) {
    if (machine.nvidia_version.empty() || runtime.version == machine.nvidia_version) continue;
    found.push_back({.level = Level::broken,
                     .id = "nvidia-mismatch",
                     .what = fmt::format("the kernel's driver is {}, the library {} is {}",
                                         machine.nvidia_version, runtime.path, runtime.version),
                     .cost = "nothing can compute on the GPU",
                     .fix = "restart the machine, as an update of the driver requires; in a container: use "
                            "the host's driver, not one inside"});
  }
  if (installed.empty() && !machine.nvidia_version.empty() && !shown) {
    found.push_back({.level = Level::broken,
                     .id = "nvidia-library",
                     .what = "the driver is installed, but libcuda.so is missing",
                     .cost = "nothing can compute on the GPU",
                     .fix = "Ubuntu: sudo ubuntu-drivers install; Debian: sudo apt install libcuda1; in a "
                            "container: --gpus all"});
  }
}

struct Variable {
  std::string_view name;
  Level level;
  std::string_view cost, fix;
};
/// Environment variables that users copy from the Internet. kSelectors are variables that only select GPUs.
constexpr Variable kVariables[] = {
    {"HSA_ENABLE_SDMA", Level::note, "copies run as kernels and compete with training",
     "unset it unless copies hang"},
    {"HSA_XNACK", Level::note, "no effect on GPUs for desktops", "unset it"},
    {"AMD_SERIALIZE_KERNEL", Level::warning, "every kernel is waited for: training is several times slower",
     "unset it"},
    {"AMD_SERIALIZE_COPY", Level::warning, "every copy is waited for", "unset it"},
    {"AMD_LOG_LEVEL", Level::warning, "the runtime writes a line for each call", "unset it"},
    {"CUDA_LAUNCH_BLOCKING", Level::warning, "every kernel is waited for: training is several times slower",
     "unset it"},
    {"GPU_MAX_HW_QUEUES", Level::note, "copies may wait for kernels", "unset it"},
    {"ROCBLAS_TENSILE_LIBPATH", Level::warning, "rocBLAS loads kernels of another installation", "unset it"},
    {"ROCBLAS_USE_HIPBLASLT", Level::note, "matmuls use another library, which affects autotuning",
     "unset it"},
    {"NVIDIA_TF32_OVERRIDE", Level::warning, "float32 matmuls are rounded differently than the recipe says",
     "unset it"},
};
constexpr std::string_view kSelectors[] = {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                           "GPU_DEVICE_ORDINAL", "CUDA_VISIBLE_DEVICES"};

}  // namespace

void check_runtimes(const Machine& machine, const Program* program, Findings& found) {
  const auto shows = [&](std::string_view name) {
    return program != nullptr && std::ranges::any_of(program->devices, [&](const gpu::DeviceInfo& gpu) {
             return exec::runtime_of(gpu, program->runtimes).name == name;
           });
  };
  const bool wants_rocm = std::ranges::any_of(
      machine.gpus, [](const PciGpu& gpu) { return is_amd(gpu) && gpu.driver == "amdgpu"; });
  if (wants_rocm || !of_make(machine, true).empty()) check_rocm(machine, shows("HIP"), found);
  if (has_nvidia(machine)) check_cuda(machine, shows("CUDA"), found);
}

void check_variables(const Machine& machine, Findings& found) {
  const auto value = [&](std::string_view name) {
    const auto set = machine.variables.find(std::string(name));
    return set == machine.variables.end() ? nullptr : &set->second;
  };
  if (const std::string* version = value("HSA_OVERRIDE_GFX_VERSION");
      version != nullptr && has_amd(machine)) {
    found.push_back({.level = Level::broken,
                     .id = "hsa-override",
                     .what = fmt::format("HSA_OVERRIDE_GFX_VERSION={} is set", *version),
                     .cost = "the driver passes the GPU off as another, whose kernels may compute wrong "
                             "numbers on it or hang the machine",
                     .fix = "unset HSA_OVERRIDE_GFX_VERSION, also in ~/.bashrc and /etc/environment"});
  }
  for (const Variable& variable : kVariables) {
    const std::string* set = value(variable.name);
    if (set == nullptr || set->empty()) continue;
    // The value 0 disables the effect of a variable. For HSA_ENABLE_SDMA, only 0 is a problem.
    if ((*set == "0") != (variable.name == "HSA_ENABLE_SDMA")) continue;
    found.push_back({.level = variable.level,
                     .id = "variables",
                     .what = fmt::format("{}={} is set", variable.name, *set),
                     .cost = std::string(variable.cost),
                     .fix = std::string(variable.fix)});
  }
  for (const std::string_view name : kSelectors) {
    if (const std::string* set = value(name))
      found.push_back({.level = Level::note,
                       .id = "variables",
                       .what = fmt::format("{}={} is set", name, *set),
                       .cost = "programs see only those GPUs, renumbered",
                       .fix = "unset it to see all; device=gpu:ADDRESS names one"});
  }
}

}  // namespace hearth::doctor
