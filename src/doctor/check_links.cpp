// Checks the path between GPU and processor: lanes, generation, address range (BAR), errors, and obstacles to
// peer-to-peer copies.
#include <algorithm>

#include "base/text.h"
#include "doctor/checks.h"

namespace hearth::doctor {
namespace {

void check_width(const PciGpu& gpu, const system::PciLink& link, Findings& found) {
  if (link.width == 0 || link.width >= link.device_width) return;
  const bool small_slot = link.slot_width > 0 && link.slot_width < link.device_width;
  found.push_back(
      {.level = Level::warning,
       .id = "pcie-width",
       .subject = gpu.pci_address,
       .what = fmt::format("{} of its {} PCIe lanes are in use{}", link.width, link.device_width,
                           small_slot ? fmt::format("; the slot has {}", link.slot_width) : ""),
       .cost = fmt::format("copies to and from it take {:.0f} times as long: offloading, loading, and the "
                           "all-reduce between GPUs",
                           static_cast<double>(link.device_width) / link.width),
       .fix = small_slot
                  ? "move it to a slot that the processor serves with x16, or x8 for two GPUs"
                  : "seat it again, without a riser; firmware settings may split lanes (bifurcation)"});
}

void check_generation(const PciGpu& gpu, const system::PciLink& link, Findings& found) {
  if (link.slot_speed <= 0 || link.slot_speed >= link.device_speed) return;
  found.push_back(
      {.level = Level::note,
       .id = "pcie-generation",
       .subject = gpu.pci_address,
       .what = fmt::format("its slot runs at {:g} GT/s, the GPU could at {:g}", link.slot_speed,
                           link.device_speed),
       .cost = fmt::format("copies take {:.1f} times as long", link.device_speed / link.slot_speed),
       .fix = "firmware settings: PCIe generation of the slot to Auto; if it is Auto, the board has no "
              "faster slot"});
}

/// Checks the links between the GPU's slot and the processor, such as that of a chipset, which disks and
/// network share.
void check_upstream_links(const PciGpu& gpu, Findings& found) {
  const system::PciLink* slowest = gpu.slowest_link();
  if (slowest == nullptr || slowest == gpu.links.data()) return;
  const double share = slowest->best_bytes_per_second() / gpu.links[0].best_bytes_per_second();
  if (share >= 1) return;
  found.push_back(
      {.level = Level::warning,
       .id = "pcie-shared",
       .subject = gpu.pci_address,
       .what = fmt::format("it is behind a shared bridge with x{} at {:g} GT/s", slowest->width,
                           slowest->best_speed()),
       .cost = fmt::format("copies take {:.0f} times as long, more if others use the bridge", 1 / share),
       .fix = "move it to a slot that is connected to the processor directly, usually the first one"});
}

void check_bar(const PciGpu& gpu, Findings& found) {
  if (gpu.integrated || gpu.visible_bytes == 0 || gpu.visible_bytes >= gpu.memory_bytes) return;
  found.push_back({.level = Level::warning,
                   .id = "resizable-bar",
                   .subject = gpu.pci_address,
                   .what = fmt::format("the processor can address {} of its {}",
                                       human_bytes(gpu.visible_bytes), human_bytes(gpu.memory_bytes)),
                   .cost = "slower copies of small arrays, and no direct ones between two GPUs",
                   .fix = "firmware settings: Above 4G Decoding and Resizable BAR on, CSM off"});
}

void check_errors(const PciGpu& gpu, Findings& found) {
  if (gpu.fatal_errors > 0) {
    found.push_back(
        {.level = Level::warning,
         .id = "pcie-errors",
         .subject = gpu.pci_address,
         .what = fmt::format("its PCIe link had {} fatal errors since the system started", gpu.fatal_errors),
         .cost = "the GPU may vanish in the middle of a run",
         .fix =
             "seat it again, without a riser, or lower the slot's PCIe generation in the firmware settings"});
  } else if (gpu.corrected_errors > 100) {
    found.push_back({.level = Level::note,
                     .id = "pcie-errors",
                     .subject = gpu.pci_address,
                     .what = fmt::format("its PCIe link corrected {} errors since the system started",
                                         gpu.corrected_errors),
                     .cost = "each error causes a retransmission; many of them slow copies down",
                     .fix = "seat it again, or use a better riser"});
  }
}

/// Checks machines with several GPUs for settings that affect peer-to-peer copies.
void check_peers(const Machine& machine, Findings& found) {
  if (num_discrete(machine) < 2) return;
  const bool redirected =
      std::ranges::any_of(machine.gpus, [](const PciGpu& gpu) { return gpu.redirects_peers == true; });
  if (machine.has_iommu && machine.iommu_setting != "pt" && machine.iommu_setting != "off") {
    found.push_back(
        {.level = Level::note,
         .id = "iommu",
         .what = "the IOMMU translates device addresses",
         .cost =
             "none for Hearth, whose GPUs exchange through host memory; direct copies between GPUs may fail",
         .fix = "kernel command line: iommu=pt"});
  }
  if (redirected) {
    found.push_back({.level = Level::note,
                     .id = "acs",
                     .what = "ACS routes traffic between GPUs through the processor",
                     .cost = "none for Hearth, whose GPUs exchange through host memory",
                     .fix = "firmware settings: ACS off, if nothing is passed to virtual machines"});
  }
}

}  // namespace

void check_links(const Machine& machine, Findings& found) {
  for (const PciGpu& gpu : machine.gpus) {
    if (gpu.vanished) continue;
    const size_t before = found.size();
    if (!gpu.links.empty()) {
      check_width(gpu, gpu.links[0], found);
      check_generation(gpu, gpu.links[0], found);
    }
    check_upstream_links(gpu, found);
    const system::PciLink* slowest = gpu.slowest_link();
    if (found.size() == before && slowest != nullptr) {
      found.push_back(
          {.id = "pcie",
           .subject = gpu.pci_address,
           .what = fmt::format("PCIe x{} at {:g} GT/s: {:.1f} GB/s each way at best", slowest->width,
                               slowest->best_speed(), slowest->best_bytes_per_second() * 1e-9)});
    }
    check_bar(gpu, found);
    check_errors(gpu, found);
  }
  check_peers(machine, found);
}

}  // namespace hearth::doctor
