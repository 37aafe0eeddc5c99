// Checks that this user's programs can access the GPU: device files, groups, containers, WSL.
#include <algorithm>

#include "doctor/checks.h"

namespace hearth::doctor {
namespace {

using system::DeviceFile;

bool is_for(const DeviceFile& file, PciGpu::Vendor vendor) {
  return file.path.starts_with("/dev/nvidia") == (vendor == PciGpu::Vendor::nvidia) &&
         file.path != "/dev/dxg";
}

bool has_file(const Machine& machine, std::string_view path) {
  return std::ranges::find(machine.files, path, &DeviceFile::path) != machine.files.end();
}

/// Returns the device file that programs need to compute on a GPU of this vendor.
std::string_view device_file_of(PciGpu::Vendor vendor) {
  return vendor == PciGpu::Vendor::amd ? "/dev/kfd" : "/dev/nvidiactl";
}

/// True if the vendor's kernel driver is loaded; otherwise the checks of its device files are skipped.
bool has_driver(const Machine& machine, PciGpu::Vendor vendor) {
  return std::ranges::any_of(machine.gpus, [&](const PciGpu& gpu) {
    return gpu.vendor == vendor && (gpu.driver == system::driver_name(vendor) || !machine.container.empty());
  });
}

void check_files(const Machine& machine, PciGpu::Vendor vendor, Findings& found) {
  const bool amd = vendor == PciGpu::Vendor::amd, contained = !machine.container.empty();
  if (!has_driver(machine, vendor)) return;
  const std::string pass = amd ? "docker run --device /dev/kfd --device /dev/dri" : "docker run --gpus all";
  const std::string id = contained ? "container-devices" : "device-file";
  if (!has_file(machine, device_file_of(vendor))) {
    const std::string make =
        amd ? "sudo modprobe amdgpu; a kernel without CONFIG_HSA_AMD has none" : "sudo nvidia-modprobe";
    found.push_back({.level = Level::broken,
                     .id = id,
                     .what = contained ? fmt::format("the container ({}) was not given {}", machine.container,
                                                     device_file_of(vendor))
                                       : fmt::format("there is no {}", device_file_of(vendor)),
                     .cost = "no program can compute on the GPU",
                     .fix = contained ? pass : make});
    return;
  }
  if (amd && std::ranges::none_of(machine.files,
                                  [](const DeviceFile& file) { return file.path.starts_with("/dev/dri"); })) {
    found.push_back({.level = Level::broken,
                     .id = id,
                     .what = "there is no /dev/dri/renderD*",
                     .cost = "no program can compute on the GPU",
                     .fix = contained ? pass : "sudo modprobe amdgpu"});
    return;
  }
  const auto closed = std::ranges::find_if(
      machine.files, [&](const DeviceFile& file) { return is_for(file, vendor) && !file.usable; });
  if (closed == machine.files.end()) {
    found.push_back({.id = "permission", .what = fmt::format("you may use {}", device_file_of(vendor))});
    return;
  }
  const std::string groups = amd ? "render,video" : closed->group;
  found.push_back(
      {.level = Level::broken,
       .id = "permission",
       .what = fmt::format("you may not use {}, which belongs to the group {}", closed->path, closed->group),
       .cost = "no program of yours can compute on the GPU",
       .fix = contained ? "docker run --group-add $(getent group render | cut -d: -f3) --group-add video, "
                          "with the host's numbers"
                        : fmt::format("sudo usermod -aG {} $USER, then log in again", groups)});
}

/// Reports GPUs that amdgpu drives but that are missing from its compute topology (/sys/class/kfd).
void check_topology(const Machine& machine, Findings& found) {
  if (!has_file(machine, "/dev/kfd")) return;
  for (const PciGpu& gpu : machine.gpus) {
    if (!is_amd(gpu) || gpu.driver != "amdgpu" || gpu.in_topology || gpu.vanished) continue;
    found.push_back({.level = Level::broken,
                     .id = "not-for-computing",
                     .subject = gpu.pci_address,
                     .what = "the driver offers it for graphics, but not for computing",
                     .cost = "no program can compute on it",
                     .fix = "sudo dmesg | grep -i kfd shows the reason: an old GPU, a slot without PCIe "
                            "atomics, or a kernel older than the GPU"});
  }
}

void check_wsl(const Machine& machine, Findings& found) {
  if (!machine.wsl) return;
  if (!has_file(machine, "/dev/dxg")) {
    found.push_back({.level = Level::broken,
                     .id = "wsl",
                     .what = "WSL shows no GPU: there is no /dev/dxg",
                     .cost = "training runs on the processor (device=cpu)",
                     .fix = "in Windows: wsl --update, a current driver of the GPU, and WSL version 2"});
    return;
  }
  found.push_back(
      {.level = Level::note,
       .id = "wsl",
       .what = "this is WSL: Windows drives the GPU",
       .cost = "one GPU at a time, no sensors, and Windows ends kernels that take too long",
       .fix = "AMD: ROCm for WSL with librocdxg; NVIDIA: only the driver of Windows, none inside WSL"});
}

}  // namespace

void check_access(const Machine& machine, Findings& found) {
  if (!machine.wsl && has_amd(machine)) {
    check_files(machine, PciGpu::Vendor::amd, found);
    check_topology(machine, found);
  }
  if (!machine.wsl && has_nvidia(machine)) check_files(machine, PciGpu::Vendor::nvidia, found);
  check_wsl(machine, found);
}

}  // namespace hearth::doctor
