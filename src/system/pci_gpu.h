#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"

namespace hearth::system {

/// A GPU as the kernel shows it in /sys: no vendor's library is asked.
struct PciGpu {
  enum class Vendor : uint8_t { amd, nvidia };
  Vendor vendor = Vendor::amd;
  std::string pci_address;  ///< "0000:03:00.0"
  std::string device_id;    ///< "744c"
  std::string driver;       ///< of the kernel: "amdgpu"; empty: none
  std::string
      architecture;  ///< "gfx1100", from the topology of /sys/class/kfd; empty where that does not say
  int64_t memory_bytes = 0;  ///< 0: unknown
  bool integrated = false;
  /// The narrowest piece of the way to the processor: a GPU's own link may be wider than its slot.
  int link_width = 0;
  int most_link_width = 0;  ///< that the GPU could have
  std::string link_speed;   ///< "16.0 GT/s PCIe"; idle GPUs lower it
};

/// AMD's and NVIDIA's GPUs below `root` ("/"; tests plant trees), by address.
std::vector<PciGpu> list_pci_gpus(const fs::path& root);

/// "gfx90a" of 90010, as the topology has it.
std::string gfx_name(int64_t target_version);

}  // namespace hearth::system
