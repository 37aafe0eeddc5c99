// Checks the kernel drivers, their parameters, and settings that prevent a driver from being loaded.
#include <cstdlib>

#include "doctor/checks.h"

namespace hearth::doctor {
namespace {

void check_driver(const Machine& machine, const PciGpu& gpu, Findings& found) {
  const bool amd = is_amd(gpu);
  const std::string_view wanted = system::driver_name(gpu.vendor);
  if (gpu.driver == wanted) {
    const std::string& version = amd ? machine.amdgpu_version : machine.nvidia_version;
    found.push_back({.id = "driver",
                     .subject = gpu.pci_address,
                     .what = version.empty() ? fmt::format("{} of Linux {}", wanted, machine.kernel)
                                             : fmt::format("{} {}", wanted, version)});
    return;
  }
  if (gpu.driver == "vfio-pci") {
    found.push_back({.level = Level::note,
                     .id = "driver",
                     .subject = gpu.pci_address,
                     .what = "it is reserved for virtual machines (vfio-pci)",
                     .cost = "this system cannot use it"});
    return;
  }
  // In a container the PCI bus may be visible without the links to drivers.
  if (gpu.driver.empty() && !machine.container.empty()) return;
  std::string fix = amd ? "sudo modprobe amdgpu; Debian: sudo apt install firmware-amd-graphics"
                        : "Ubuntu: sudo ubuntu-drivers install; Debian: sudo apt install nvidia-driver";
  if (gpu.driver == "nouveau") fix += ", then restart";
  if (amd && machine.amdgpu_is_blocked)
    fix = "remove the line 'blacklist amdgpu' from /etc/modprobe.d, then restart";
  if (machine.secure_boot == true && gpu.driver != "nouveau" && (!amd || !machine.amdgpu_version.empty()))
    fix +=
        "; Secure Boot is on: enroll the key that signed the module (sudo mokutil --import "
        "/var/lib/dkms/mok.pub)";
  found.push_back({.level = Level::broken,
                   .id = "driver",
                   .subject = gpu.pci_address,
                   .what = fmt::format("its driver is {}; Hearth needs {}",
                                       gpu.driver.empty() ? "missing" : gpu.driver, wanted),
                   .cost = "nothing can compute on it",
                   .fix = std::move(fix)});
}

void check_secure_boot(const Machine& machine, Findings& found) {
  // Only modules built on this machine (by DKMS) have a version. Those of the kernel are signed, so that
  // Secure Boot loads them.
  if (machine.secure_boot != true || (machine.amdgpu_version.empty() && machine.nvidia_version.empty()))
    return;
  found.push_back({.level = Level::note,
                   .id = "secure-boot",
                   .what = "Secure Boot is on, and the driver was built on this machine",
                   .cost = "after an update of the kernel the driver may not load",
                   .fix = "sudo mokutil --list-enrolled shows whether the driver's key is enrolled"});
}

/// Parameters of amdgpu that users set and forget. The default -1 lets the driver decide.
struct Parameter {
  std::string_view name, value;
  Level level;
  std::string_view what, cost, fix;
};
constexpr Parameter kParameters[] = {
    {"runpm", "1", Level::note, "the GPU is switched off when idle",
     "a wait of seconds at each start, and hangs on some boards", "kernel command line: amdgpu.runpm=0"},
    {"gpu_recovery", "0", Level::warning, "the driver does not reset a GPU that hangs",
     "the first fault ends the run until the machine is restarted; Hearth's supervisor cannot continue it",
     "remove amdgpu.gpu_recovery=0 from the kernel command line or /etc/modprobe.d"},
    {"dpm", "0", Level::warning, "the driver leaves the clocks as they are",
     "a fraction of the GPU's speed, and no sensors", "remove amdgpu.dpm=0"},
    {"vm_fault_stop", "2", Level::note, "the GPU stops at the first page fault", "it must be reset by hand",
     "remove amdgpu.vm_fault_stop=2"},
};

void check_parameters(const Machine& machine, Findings& found) {
  for (const Parameter& parameter : kParameters) {
    const auto set = machine.amdgpu_parameters.find(std::string(parameter.name));
    if (set == machine.amdgpu_parameters.end() || set->second != parameter.value) continue;
    found.push_back({.level = parameter.level,
                     .id = "amdgpu-parameters",
                     .what = fmt::format("amdgpu.{}={}: {}", parameter.name, parameter.value, parameter.what),
                     .cost = std::string(parameter.cost),
                     .fix = std::string(parameter.fix)});
  }
  // Bit 14 of ppfeaturemask allows overdrive (changing clocks and voltages); it is off by default.
  constexpr int64_t kOverdrive = 0x4000;
  const auto mask = machine.amdgpu_parameters.find("ppfeaturemask");
  if (mask == machine.amdgpu_parameters.end()) return;
  const int64_t bits = std::strtoll(mask->second.c_str(), nullptr, 0);
  if ((bits & kOverdrive) == 0) return;
  found.push_back({.level = Level::note,
                   .id = "amdgpu-parameters",
                   .what = fmt::format("amdgpu.ppfeaturemask={}: clocks and voltages may have been changed",
                                       mask->second),
                   .cost = "undervolted GPUs hang or compute wrong numbers under loads that games never make",
                   .fix = "reset them in the tool that set them, or remove amdgpu.ppfeaturemask"});
}

}  // namespace

void check_drivers(const Machine& machine, Findings& found) {
  for (const PciGpu& gpu : machine.gpus)
    if (!gpu.vanished) check_driver(machine, gpu, found);
  check_secure_boot(machine, found);
  if (has_amd(machine)) check_parameters(machine, found);
}

}  // namespace hearth::doctor
