// /sys describes a PCIe link at both of its ends: at the device (or upstream port) below, and at the
// downstream (or root) port above. An AMD GPU contains two more ports. The link between them and the GPU
// stays on the board and may be wider and faster than that of the slot, so it is ignored when the bandwidth
// to the CPU is determined.
#include "system/pci_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "backend/gpu/device.h"

namespace hearth::system {
namespace {

/// Known GPUs: PCI device id, architecture and name, from the kernel's list (amdgpu_drv.c) and libdrm's
/// amdgpu.ids.
struct KnownGpu {
  std::string_view id, architecture, name;
};
constexpr std::array kKnownGpus = {
    KnownGpu{"731f", "gfx1010", "Radeon RX 5600 or 5700"},
    KnownGpu{"73a5", "gfx1030", "Radeon RX 6950 XT"},
    KnownGpu{"73bf", "gfx1030", "Radeon RX 6800, 6800 XT or 6900 XT"},
    KnownGpu{"73df", "gfx1031", "Radeon RX 6700, 6750 or 6800M"},
    KnownGpu{"73ff", "gfx1032", "Radeon RX 6600"},
    KnownGpu{"743f", "gfx1034", "Radeon RX 6400 or 6500 XT"},
    KnownGpu{"744c", "gfx1100", "Radeon RX 7900 XT, XTX or GRE"},
    KnownGpu{"7448", "gfx1100", "Radeon Pro W7900"},
    KnownGpu{"745e", "gfx1100", "Radeon Pro W7800"},
    KnownGpu{"747e", "gfx1101", "Radeon RX 7700 XT or 7800 XT"},
    KnownGpu{"7470", "gfx1101", "Radeon Pro W7700"},
    KnownGpu{"7480", "gfx1102", "Radeon RX 7600"},
    KnownGpu{"15bf", "gfx1103", "Radeon 780M (integrated)"},
    KnownGpu{"164e", "gfx1036", "Radeon Graphics of Ryzen 7000 (integrated)"},
    KnownGpu{"13c0", "gfx1036", "Radeon Graphics of Ryzen 9000 (integrated)"},
    KnownGpu{"150e", "gfx1150", "Radeon 890M (integrated)"},
    KnownGpu{"1586", "gfx1151", "Radeon 8050S or 8060S of Strix Halo (integrated)"},
    KnownGpu{"7550", "gfx1201", "Radeon RX 9070 or 9070 XT"},
    KnownGpu{"7551", "gfx1201", "Radeon AI PRO R9700"},
    KnownGpu{"7590", "gfx1200", "Radeon RX 9060 XT"},
};

/// Returns, for each GPU's PCI address, the architecture that the compute driver reports in its topology.
std::map<std::string, std::string> read_topology(Tree& tree) {
  std::map<std::string, std::string> architectures;
  const std::string nodes = "sys/class/kfd/kfd/topology/nodes";
  for (const std::string& node : tree.list(nodes)) {
    const auto value = [&](std::string_view name) {
      return tree.number(fmt::format("{}/{}/properties", nodes, node), name).value_or(0);
    };
    if (value("simd_count") == 0) continue;
    const int64_t place = value("location_id");
    architectures[fmt::format("{:04x}:{:02x}:{:02x}.{}", value("domain"), place >> 8 & 0xff,
                              place >> 3 & 0x1f, place & 7)] = gfx_name(value("gfx_target_version"));
  }
  return architectures;
}

/// Returns the number in a speed such as "16.0 GT/s PCIe".
double speed_in(const std::string& text) {
  double speed = 0;
  std::from_chars(text.data(), text.data() + text.size(), speed);
  return speed;
}

bool has_link(Tree& tree, const fs::path& folder) {
  return tree.exists((folder / "current_link_width").string());
}

PciLink read_link(Tree& tree, const fs::path& lower, const fs::path& upper) {
  const auto width = [&](const fs::path& end, const char* file) {
    // Larger numbers mean unknown: a link that is down reports 63 or 255 lanes.
    constexpr int64_t kMaxLanes = 32;
    const int64_t lanes = tree.number((end / file).string()).value_or(0);
    return static_cast<int>(lanes > kMaxLanes ? 0 : lanes);
  };
  const auto speed = [&](const fs::path& end, const char* file) {
    return speed_in(tree.line((end / file).string()));
  };
  PciLink link{.address = lower.filename().string(),
               .width = width(lower, "current_link_width"),
               .speed = speed(lower, "current_link_speed"),
               .device_width = width(lower, "max_link_width"),
               .slot_width = width(upper, "max_link_width"),
               .device_speed = speed(lower, "max_link_speed"),
               .slot_speed = speed(upper, "max_link_speed")};
  if (const int above = width(upper, "current_link_width"); above > 0)
    link.width = std::min(link.width, above);
  return link;
}

std::vector<PciLink> read_links(Tree& tree, const std::string& gpu) {
  const auto is_amd = [&](const fs::path& end) { return tree.line((end / "vendor").string()) == "0x1002"; };
  std::vector<PciLink> links;
  for (fs::path lower = gpu; has_link(tree, lower);) {
    const fs::path upper = lower.parent_path();
    if (!has_link(tree, upper) || !is_amd(lower) || !is_amd(upper))
      links.push_back(read_link(tree, lower, upper));
    lower = upper.parent_path();
  }
  return links;
}

/// Returns true if the bridge redirects requests between devices below it to the root, by ACS (PCI Express
/// Base Specification, section 7.7.11). nullopt if that cannot be read: only the user root can read more than
/// 256 bytes of the configuration.
std::optional<bool> redirects_peers(Tree& tree, const std::string& bridge) {
  const std::string& config = tree.text(bridge + "/config");
  const auto word = [&](size_t at, int bytes) {
    uint32_t value = 0;
    for (int i = 0; i < bytes; ++i)
      value |= static_cast<uint32_t>(static_cast<unsigned char>(config[at + static_cast<size_t>(i)]))
               << 8 * i;
    return value;
  };
  constexpr uint32_t kAcs = 0x000d, kRedirect = 0x0c;
  size_t at = 0x100;
  for (int hops = 0; hops < 64 && at >= 0x100 && at + 8 <= config.size(); ++hops) {
    const uint32_t head = word(at, 4);
    if ((head & 0xffff) == kAcs) return (word(at + 6, 2) & kRedirect) != 0;
    at = head >> 20;
  }
  return std::nullopt;
}

std::optional<double> watts_in(Tree& tree, const std::string& path) {
  const std::optional<int64_t> microwatts = tree.number(path);
  return microwatts ? std::optional(static_cast<double>(*microwatts) * 1e-6) : std::nullopt;
}

void read_power(Tree& tree, PciGpu& gpu) {
  for (const std::string& sensor : tree.list(gpu.folder + "/hwmon")) {
    const std::string folder = gpu.folder + "/hwmon/" + sensor;
    if (const auto cap = watts_in(tree, folder + "/power1_cap")) gpu.power_cap_watts = cap;
    if (const auto cap = watts_in(tree, folder + "/power1_cap_default")) gpu.default_power_cap_watts = cap;
  }
}

std::optional<PciGpu::Vendor> vendor_of(Tree& tree, const std::string& device) {
  constexpr std::string_view kDisplay = "0x03";
  if (!tree.line(device + "/class").starts_with(kDisplay)) return std::nullopt;
  const std::string vendor = tree.line(device + "/vendor");
  if (vendor == "0x1002") return PciGpu::Vendor::amd;
  if (vendor == "0x10de") return PciGpu::Vendor::nvidia;
  return std::nullopt;
}

void read_amd(Tree& tree, PciGpu& gpu) {
  const auto bytes = [&](const char* file) { return tree.number(gpu.folder + "/" + file).value_or(0); };
  gpu.memory_bytes = bytes("mem_info_vram_total");
  gpu.used_bytes = bytes("mem_info_vram_used");
  gpu.visible_bytes = bytes("mem_info_vis_vram_total");
  gpu.shared_bytes = bytes("mem_info_gtt_total");
  for (const std::string& file : tree.list(gpu.folder + "/fw_version")) {
    const std::string name = file.substr(0, file.rfind("_fw_version"));
    if (const auto version = tree.number(gpu.folder + "/fw_version/" + file)) gpu.firmware[name] = *version;
  }
  gpu.performance_level = tree.line(gpu.folder + "/power_dpm_force_performance_level");
  read_power(tree, gpu);
}

PciGpu read_gpu(Tree& tree, const std::string& address, PciGpu::Vendor vendor,
                const std::map<std::string, std::string>& topology) {
  PciGpu gpu{.vendor = vendor, .pci_address = address};
  gpu.folder = tree.resolved("sys/bus/pci/devices/" + address);
  const std::string id = tree.line(gpu.folder + "/device");
  gpu.device_id = id.starts_with("0x") ? id.substr(2) : id;
  gpu.driver = tree.link_name(gpu.folder + "/driver");
  const auto known = std::ranges::find(kKnownGpus, gpu.device_id, &KnownGpu::id);
  if (vendor == PciGpu::Vendor::amd && known != kKnownGpus.end()) {
    gpu.name = known->name;
    gpu.architecture = known->architecture;
  }
  if (const auto found = topology.find(address); found != topology.end()) {
    gpu.architecture = found->second;
    gpu.in_topology = true;
  }
  gpu.integrated = hearth::gpu::is_integrated({.architecture = gpu.architecture});
  const std::string& config = tree.text(gpu.folder + "/config");
  gpu.vanished = config.size() >= 4 && config.starts_with("\xff\xff\xff\xff");
  if (vendor == PciGpu::Vendor::amd) read_amd(tree, gpu);
  if (!gpu.integrated) gpu.links = read_links(tree, gpu.folder);
  gpu.num_displays = num_displays(tree, gpu.folder);
  gpu.fatal_errors = tree.number(gpu.folder + "/aer_dev_fatal", "TOTAL_ERR_FATAL").value_or(0);
  gpu.corrected_errors = tree.number(gpu.folder + "/aer_dev_correctable", "TOTAL_ERR_COR").value_or(0);
  if (!gpu.links.empty()) {
    const fs::path top = gpu.folder.substr(0, gpu.folder.find(gpu.links.back().address));
    gpu.redirects_peers = redirects_peers(tree, top.parent_path().string());
  }
  gpu.numa_node = tree.number(gpu.folder + "/numa_node");
  return gpu;
}

}  // namespace

std::string_view vendor_name(PciGpu::Vendor vendor) {
  return vendor == PciGpu::Vendor::amd ? "AMD" : "NVIDIA";
}
std::string_view driver_name(PciGpu::Vendor vendor) {
  return vendor == PciGpu::Vendor::amd ? "amdgpu" : "nvidia";
}

std::string PciGpu::title() const {
  return name.empty() ? fmt::format("{} GPU {}", vendor_name(vendor), device_id) : name;
}

double PciLink::best_speed() const {
  return slot_speed > 0 ? std::min(device_speed, slot_speed) : device_speed;
}

double PciLink::best_bytes_per_second() const {
  // Line coding takes 2 of 10 bits in PCIe 1 and 2 (8b/10b), and 2 of 130 bits from PCIe 3 on (128b/130b).
  const double encoding = best_speed() < 8 ? 0.8 : 128.0 / 130;
  return width * best_speed() * 1e9 / 8 * encoding;
}

const PciLink* PciGpu::slowest_link() const {
  const auto found = std::ranges::min_element(links, {}, &PciLink::best_bytes_per_second);
  return found == links.end() || found->width == 0 ? nullptr : &*found;
}

int num_displays(Tree& tree, const std::string& gpu) {
  int count = 0;
  for (const std::string& card : tree.list(gpu + "/drm")) {
    if (!card.starts_with("card")) continue;
    const std::string folder = fmt::format("{}/drm/{}", gpu, card);
    for (const std::string& connector : tree.list(folder)) {
      if (!connector.starts_with(card)) continue;
      if (tree.line(fmt::format("{}/{}/status", folder, connector)) == "connected") ++count;
    }
  }
  return count;
}

std::string gfx_name(int64_t target_version) {
  return fmt::format("gfx{}{:x}{:x}", target_version / 10000, target_version / 100 % 100,
                     target_version % 100);
}

std::vector<PciGpu> list_pci_gpus(Tree& tree) {
  const std::map<std::string, std::string> topology = read_topology(tree);
  std::vector<PciGpu> gpus;
  for (const std::string& address : tree.list("sys/bus/pci/devices")) {
    const auto vendor = vendor_of(tree, "sys/bus/pci/devices/" + address);
    if (vendor) gpus.push_back(read_gpu(tree, address, *vendor, topology));
  }
  return gpus;
}

}  // namespace hearth::system
