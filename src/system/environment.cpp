#include "system/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "backend/gpu/modules.h"
#include "exec/device/gpu_choice.h"

namespace hearth::system {
namespace {

using Vendor = PciGpu::Vendor;

bool is_for(const DeviceFile& file, Vendor vendor) {
  return file.path.starts_with("/dev/nvidia") == (vendor == Vendor::nvidia);
}

/// What has to be there for a GPU of that make.
std::string_view way_in(Vendor vendor) { return vendor == Vendor::amd ? "/dev/kfd" : "/dev/nvidiactl"; }

void judge_driver(const PciGpu& gpu, std::vector<Hindrance>& found) {
  const std::string_view wanted = gpu.vendor == Vendor::amd ? "amdgpu" : "nvidia";
  if (gpu.driver == wanted || gpu.driver == "vfio-pci") return;
  found.push_back({fmt::format("the kernel's driver of {} is {}, not {}", gpu.pci_address,
                               gpu.driver.empty() ? "missing" : gpu.driver, wanted),
                   gpu.vendor == Vendor::amd
                       ? "sudo modprobe amdgpu; Debian: sudo apt install firmware-amd-graphics"
                       : "Ubuntu: sudo ubuntu-drivers install; Debian: sudo apt install nvidia-driver"});
}

void judge_link(const PciGpu& gpu, std::vector<Hindrance>& found) {
  if (gpu.link_width == 0 || gpu.link_width >= gpu.most_link_width) return;
  found.push_back(
      {fmt::format("{} has {} of its {} PCIe lanes: copies to and from it take {:.0f} times as long",
                   gpu.pci_address, gpu.link_width, gpu.most_link_width,
                   static_cast<double>(gpu.most_link_width) / gpu.link_width),
       "move it to a slot that the processor serves (the first one, as a rule)"});
}

void judge_files(const Environment& environment, Vendor vendor, std::vector<Hindrance>& found) {
  const bool amd = vendor == Vendor::amd;
  const auto& files = environment.files;
  if (std::ranges::find(files, way_in(vendor), &DeviceFile::path) == files.end()) {
    found.push_back(
        {fmt::format("there is no {}", way_in(vendor)),
         amd ? "sudo modprobe amdgpu; in a container: docker run --device /dev/kfd --device /dev/dri"
             : "sudo nvidia-modprobe; in a container: docker run --gpus all"});
  }
  for (const DeviceFile& file : files) {
    if (file.usable || !is_for(file, vendor)) continue;
    found.push_back({fmt::format("you may not use {}, which belongs to the group {}", file.path, file.group),
                     fmt::format("sudo usermod -aG {} $USER, then log in again; in a container: --group-add",
                                 amd ? "render,video" : file.group)});
    return;
  }
}

void judge_program(const Environment& environment, Vendor vendor, std::vector<Hindrance>& found) {
  const bool amd = vendor == Vendor::amd;
  const std::string_view wanted = amd ? "HIP" : "CUDA";
  const auto runtime = std::ranges::find(environment.runtimes, wanted, &gpu::Runtime::name);
  if (runtime == environment.runtimes.end()) {
    found.push_back({fmt::format("this Hearth was built without {}", wanted),
                     fmt::format("tools/build --gpu {}", amd ? "hip" : "cuda")});
    return;
  }
  if (std::ranges::none_of(environment.devices, [&](const gpu::DeviceInfo& gpu) {
        return exec::runtime_of(gpu, environment.runtimes).name == wanted;
      })) {
    found.push_back(
        {fmt::format("{} shows no GPU{}{}", wanted, runtime->fault.empty() ? "" : ": ", runtime->fault),
         amd ? "rocminfo says more (Debian: sudo apt install rocminfo)" : "nvidia-smi says more"});
  }
  if (runtime->library.empty()) {
    found.push_back({fmt::format("{} is missing: matmuls are left to Hearth's own kernels alone",
                                 amd ? "rocBLAS" : "cuBLASLt"),
                     amd ? "Debian: sudo apt install librocblas0; Ubuntu: sudo apt install rocblas"
                         : "sudo apt install libcublas-13-0, or of your CUDA's version"});
  }
}

void judge_kernels(const Environment& environment, std::vector<Hindrance>& found) {
  for (const gpu::DeviceInfo& gpu : environment.devices) {
    const gpu::Runtime& runtime = exec::runtime_of(gpu, environment.runtimes);
    if (exec::has_kernels_for(runtime.architectures, gpu.architecture)) continue;
    found.push_back({fmt::format("this Hearth has no kernels for {}, {} at {}", gpu.architecture, gpu.name,
                                 gpu.pci_address),
                     exec::build_command(runtime, gpu.architecture)});
  }
}

}  // namespace

Environment look_around(const fs::path& root, const Identity& identity) {
  const char* gfx_override = std::getenv("HSA_OVERRIDE_GFX_VERSION");
  return {.runtimes = gpu::runtimes(),
          .devices = gpu::list_devices(),
          .gpus = list_pci_gpus(root),
          .files = list_device_files(root, identity),
          .gfx_override = gfx_override == nullptr ? "" : gfx_override};
}

std::vector<Hindrance> hindrances(const Environment& environment) {
  std::vector<Hindrance> found;
  const auto& gpus = environment.gpus;
  if (gpus.empty()) {
    found.push_back({"there is no AMD or NVIDIA GPU on the PCI bus",
                     "lspci | grep -E 'VGA|3D|Display'; device=cpu needs none"});
  }
  if (!gpus.empty() && std::ranges::all_of(gpus, &PciGpu::integrated)) {
    found.push_back({"the only GPUs share the processor's memory",
                     fmt::format("name one to use it: device=gpu:{}", gpus[0].pci_address)});
  }
  for (const PciGpu& gpu : gpus) {
    judge_driver(gpu, found);
    judge_link(gpu, found);
  }
  for (const Vendor vendor : {Vendor::amd, Vendor::nvidia}) {
    if (std::ranges::find(gpus, vendor, &PciGpu::vendor) == gpus.end()) continue;
    judge_files(environment, vendor, found);
    judge_program(environment, vendor, found);
  }
  judge_kernels(environment, found);
  const std::string warning = exec::override_warning(environment.gfx_override.c_str());
  if (!warning.empty()) found.push_back({warning, "unset HSA_OVERRIDE_GFX_VERSION"});
  return found;
}

}  // namespace hearth::system
