#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "system/tree.h"

namespace hearth::system {

/// A PCIe link between a GPU and the CPU, as its two ends describe it.
struct PciLink {
  std::string address;  ///< PCI address of the end on the side of the GPU: "0000:03:00.0"
  int width = 0;        ///< current number of lanes; 0: unknown
  double speed = 0;     ///< current GT/s per lane; an idle GPU reduces it
  /// Max number of lanes of the end on the side of the GPU, and of the other end; 0: unknown.
  int device_width = 0, slot_width = 0;
  double device_speed = 0, slot_speed = 0;

  /// Returns the highest GT/s per lane that both ends support.
  double best_speed() const;
  /// Returns the bytes per second in each direction with the current number of lanes at best_speed(), without
  /// the bits of line coding.
  double best_bytes_per_second() const;
};

/// A GPU as described by files in /sys, without libraries of its vendor.
struct PciGpu {
  enum class Vendor : uint8_t { amd, nvidia };
  Vendor vendor = Vendor::amd;
  std::string pci_address;  ///< "0000:03:00.0"
  /// Path relative to the root of the tree: "sys/devices/pci0000:00/0000:00:01.1/0000:03:00.0".
  std::string folder;
  std::string device_id;  ///< PCI device id in hexadecimal: "744c"
  std::string name;       ///< "Radeon RX 7900 XT, XTX or GRE" for known device ids; otherwise empty
  std::string driver;     ///< kernel driver: "amdgpu"; empty: none
  /// "gfx1100": from the compute driver's topology in /sys/class/kfd, otherwise by device id; empty: unknown.
  std::string architecture;
  bool in_topology = false;  ///< True if the compute driver lists the GPU in its topology
  bool integrated = false;   ///< True if the GPU shares the CPU's memory
  bool vanished = false;     ///< True if the GPU no longer responds on its bus
  int64_t memory_bytes = 0;  ///< size of the GPU's memory; 0: unknown
  int64_t used_bytes = 0;
  int64_t visible_bytes = 0;   ///< part of the GPU's memory that the CPU can address (BAR size); 0: unknown
  int64_t shared_bytes = 0;    ///< host memory that the driver allows the GPU to use (GTT)
  std::vector<PciLink> links;  ///< links from the GPU to the CPU, without those on the GPU's own board
  std::map<std::string, int64_t> firmware;  ///< firmware versions by name: "mes", "smc"
  std::string performance_level;            ///< setting of the driver for clocks: "auto"
  std::optional<double> power_cap_watts, default_power_cap_watts;
  int num_displays = 0;      ///< number of connected displays
  int64_t fatal_errors = 0;  ///< number of fatal PCIe errors since boot, counted by the kernel
  int64_t corrected_errors = 0;
  std::optional<bool> redirects_peers;  ///< True if ACS redirects peer-to-peer traffic through the CPU
  std::optional<int64_t> numa_node;

  /// Returns the name if it is known, otherwise text such as "NVIDIA GPU 2335".
  std::string title() const;
  /// Returns the slowest link to the CPU; null if none is known.
  const PciLink* slowest_link() const;
};

/// Returns "AMD" or "NVIDIA".
std::string_view vendor_name(PciGpu::Vendor vendor);
/// Returns the name of the kernel driver for computing: "amdgpu", "nvidia".
std::string_view driver_name(PciGpu::Vendor vendor);

/// Returns the AMD and NVIDIA GPUs on the PCI bus, sorted by address.
std::vector<PciGpu> list_pci_gpus(Tree& tree);

/// Returns the number of displays connected to a GPU; `folder` is PciGpu::folder.
int num_displays(Tree& tree, const std::string& folder);

/// Returns the name of an architecture given its version number in the topology: "gfx90a" for 90010.
std::string gfx_name(int64_t target_version);

}  // namespace hearth::system
