#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "system/tree.h"

namespace hearth::system {

/// A link on the way from a GPU to the processor, as both of its ends show it.
struct PciLink {
  std::string address;                   ///< of the lower end: "0000:03:00.0"
  int width = 0;                         ///< lanes in use; 0: not known
  double speed = 0;                      ///< GT/s of a lane as it is now: idle GPUs lower it
  int device_width = 0, slot_width = 0;  ///< most lanes of the lower and the upper end; 0: not known
  double device_speed = 0, slot_speed = 0;

  /// GT/s that both ends can.
  double best_speed() const;
  /// Bytes a second each way at that speed with the lanes in use, after the link's encoding.
  double best_bytes_per_second() const;
};

/// A GPU as the kernel shows it in /sys: no vendor's library is asked.
struct PciGpu {
  enum class Vendor : uint8_t { amd, nvidia };
  Vendor vendor = Vendor::amd;
  std::string pci_address;  ///< "0000:03:00.0"
  std::string folder;       ///< below the root: "sys/devices/pci0000:00/0000:00:01.1/0000:03:00.0"
  std::string device_id;    ///< "744c"
  std::string name;         ///< "Radeon RX 7900 XT, XTX or GRE", of known device ids; else empty
  std::string driver;       ///< of the kernel: "amdgpu"; empty: none
  /// "gfx1100", from the topology of /sys/class/kfd, else of known device ids; empty: not known.
  std::string architecture;
  bool in_topology = false;  ///< the compute driver has it
  bool integrated = false;   ///< shares the processor's memory
  bool vanished = false;     ///< it answers nothing on its bus any more
  int64_t memory_bytes = 0;  ///< 0: not known
  int64_t used_bytes = 0;
  int64_t visible_bytes = 0;   ///< what the processor can address of its memory; 0: not known
  int64_t shared_bytes = 0;    ///< what the driver lets it use of the host's memory (GTT)
  std::vector<PciLink> links;  ///< from the GPU upward; what never leaves the GPU's own board is left out
  std::map<std::string, int64_t> firmware;  ///< versions by name: "mes", "smc"
  std::string performance_level;            ///< "auto"
  std::optional<double> power_cap_watts, default_power_cap_watts;
  int num_displays = 0;      ///< that are connected to it
  int64_t fatal_errors = 0;  ///< PCIe errors since boot, by the kernel's count
  int64_t corrected_errors = 0;
  std::optional<bool> redirects_peers;  ///< ACS sends what GPUs send each other through the processor
  std::optional<int64_t> numa_node;

  /// The name, or "NVIDIA GPU 2335".
  std::string title() const;
  /// The slowest link of the way; null where none is known.
  const PciLink* slowest_link() const;
};

/// "AMD", "NVIDIA"; the kernel's driver that computes on its GPUs: "amdgpu", "nvidia".
std::string_view vendor_name(PciGpu::Vendor vendor);
std::string_view driver_name(PciGpu::Vendor vendor);

/// AMD's and NVIDIA's GPUs, by address.
std::vector<PciGpu> list_pci_gpus(Tree& tree);

/// "gfx90a" of 90010, as the topology has it.
std::string gfx_name(int64_t target_version);

}  // namespace hearth::system
