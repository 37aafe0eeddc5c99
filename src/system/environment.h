#pragma once

#include <string>
#include <vector>

#include "backend/gpu/device.h"
#include "system/device_file.h"
#include "system/pci_gpu.h"

namespace hearth::system {

/// What decides whether this program can use the machine's GPUs.
struct Environment {
  std::vector<gpu::Runtime> runtimes;    ///< that this program has a module for
  std::vector<gpu::DeviceInfo> devices;  ///< that they show
  std::vector<PciGpu> gpus;              ///< that the kernel shows
  std::vector<DeviceFile> files;
  std::string gfx_override;  ///< HSA_OVERRIDE_GFX_VERSION
};
/// Of the tree below `root`; runtimes and devices are those of this process.
Environment look_around(const fs::path& root, const Identity& identity);

/// Something that keeps a GPU from being used, or from being used well, and the line that fixes it.
struct Hindrance {
  std::string what;
  std::string remedy;
};
std::vector<Hindrance> hindrances(const Environment& environment);

}  // namespace hearth::system
