// Checks the GPUs: presence, response, power limits, and other users.
#include <fmt/ranges.h>

#include "base/text.h"
#include "doctor/checks.h"

namespace hearth::doctor {
namespace {

constexpr double kSignificantShare = 0.1;  // as a fraction of a GPU's memory or power

std::string described(const PciGpu& gpu) {
  std::string text = gpu.title();
  if (!gpu.architecture.empty()) text += ", " + gpu.architecture;
  if (gpu.memory_bytes > 0) text += ", " + human_bytes(gpu.memory_bytes);
  return text;
}

void check_presence(const Machine& machine, Findings& found) {
  if (machine.gpus.empty() && machine.wsl) return;  // WSL exposes its GPU through another file.
  if (machine.gpus.empty()) {
    found.push_back({.level = Level::note,
                     .id = "no-gpu",
                     .what = "there is no GPU of AMD's or NVIDIA's on the PCI bus",
                     .cost = "training runs on the processor (device=cpu)",
                     .fix = "lspci | grep -E 'VGA|3D|Display'; in a virtual machine: pass the GPU through"});
    return;
  }
  for (const PciGpu& gpu : machine.gpus)
    found.push_back({.id = "gpu", .subject = gpu.pci_address, .what = described(gpu)});
  if (num_discrete(machine) == 0) {
    found.push_back({.level = Level::note,
                     .id = "integrated-gpu",
                     .subject = machine.gpus[0].pci_address,
                     .what = "the only GPU shares the processor's memory",
                     .cost = "device=gpu does not select it automatically",
                     .fix = fmt::format("name it: device=gpu:{}", machine.gpus[0].pci_address)});
  } else if (machine.gpus[0].integrated) {
    found.push_back({.level = Level::note,
                     .id = "integrated-gpu",
                     .subject = machine.gpus[0].pci_address,
                     .what = "the first GPU shares the processor's memory",
                     .cost = "none here: device=gpu takes the first one with memory of its own; other "
                             "programs may take this one"});
  }
}

void check_answers(const PciGpu& gpu, Findings& found) {
  if (!gpu.vanished) return;
  found.push_back({.level = Level::broken,
                   .id = "gpu-vanished",
                   .subject = gpu.pci_address,
                   .what = "the GPU no longer responds on its bus",
                   .cost = "nothing can use it until it is powered off",
                   .fix = "sudo poweroff, wait a minute, switch on; if it happens again: check power cables, "
                          "riser and slot"});
}

/// Reports settings that reduce a GPU's speed.
void check_power(const PciGpu& gpu, Findings& found) {
  if (gpu.power_cap_watts && gpu.default_power_cap_watts &&
      *gpu.power_cap_watts < (1 - kSignificantShare) * *gpu.default_power_cap_watts) {
    found.push_back({.level = Level::note,
                     .id = "power-cap",
                     .subject = gpu.pci_address,
                     .what = fmt::format("the power limit is {:.0f} W, {:.0f} W by default",
                                         *gpu.power_cap_watts, *gpu.default_power_cap_watts),
                     .cost = "lower clocks under load",
                     .fix = fmt::format("echo {:.0f} | sudo tee /{}/hwmon/hwmon*/power1_cap",
                                        *gpu.default_power_cap_watts * 1e6, gpu.folder)});
  }
  if (gpu.performance_level == "low" || gpu.performance_level == "profile_standard" ||
      gpu.performance_level.starts_with("profile_min")) {
    found.push_back(
        {.level = Level::warning,
         .id = "performance-level",
         .subject = gpu.pci_address,
         .what = fmt::format("the clocks are held at '{}'", gpu.performance_level),
         .cost = "a fraction of the GPU's speed",
         .fix = fmt::format("echo auto | sudo tee /{}/power_dpm_force_performance_level", gpu.folder)});
  }
}

void check_users(const PciGpu& gpu, Findings& found) {
  if (gpu.num_displays > 0 && !gpu.integrated) {
    found.push_back(
        {.level = Level::note,
         .id = "display",
         .subject = gpu.pci_address,
         .what = fmt::format("{} display{} connected to it", gpu.num_displays,
                             gpu.num_displays == 1 ? " is" : "s are"),
         .cost = "the desktop takes part of its memory, and a kernel that hangs freezes it",
         .fix = "connect displays to the processor's own graphics, or leave memory free: reserve=1GiB"});
  }
  if (gpu.memory_bytes > 0 &&
      static_cast<double>(gpu.used_bytes) > kSignificantShare * static_cast<double>(gpu.memory_bytes)) {
    found.push_back({.level = Level::note,
                     .id = "memory-in-use",
                     .subject = gpu.pci_address,
                     .what = fmt::format("{} of {} of its memory are in use", human_bytes(gpu.used_bytes),
                                         human_bytes(gpu.memory_bytes)),
                     .cost = "memory plans use only what is free",
                     .fix = "end the programs that use it: sudo fuser -v /dev/kfd /dev/dri/renderD*"});
  }
}

}  // namespace

void check_gpus(const Machine& machine, Findings& found) {
  check_presence(machine, found);
  for (const PciGpu& gpu : machine.gpus) {
    check_answers(gpu, found);
    check_power(gpu, found);
    check_users(gpu, found);
  }
  if (!machine.gpu_programs.empty()) {
    found.push_back(
        {.level = Level::note,
         .id = "gpu-in-use",
         .what = fmt::format("other programs compute on the GPU: {}", fmt::join(machine.gpu_programs, ", ")),
         .cost = "memory and time are shared with them"});
  }
}

}  // namespace hearth::doctor
