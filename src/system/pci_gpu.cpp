#include "system/pci_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <sstream>

#include "base/text.h"
#include "exec/device/gpu_choice.h"

namespace hearth::system {
namespace {

/// The first line of a file in /sys; empty where there is none.
std::string line_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return "";
  std::string text;
  try {
    text = read_file(path, 1 << 20);
  } catch (const std::exception&) {
    return "";  // Drivers refuse some of their files.
  }
  return std::string(trimmed(text.substr(0, text.find('\n'))));
}

int64_t number_in(const fs::path& path) {
  const std::string text = line_of(path);
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// "NAME NUMBER" lines.
std::map<std::string, int64_t> properties_of(const fs::path& path) {
  std::map<std::string, int64_t> all;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return all;
  std::istringstream text(read_file(path, 1 << 20));
  std::string name;
  int64_t number = 0;
  while (text >> name >> number) all[name] = number;
  return all;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> all;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) all.push_back(entry.path());
  std::ranges::sort(all);
  return all;
}

/// Architecture by address.
std::map<std::string, std::string> read_topology(const fs::path& root) {
  std::map<std::string, std::string> architectures;
  for (const fs::path& node : entries_of(root / "sys/class/kfd/kfd/topology/nodes")) {
    const auto properties = properties_of(node / "properties");
    const auto value = [&](const char* name) {
      const auto found = properties.find(name);
      return found == properties.end() ? 0 : found->second;
    };
    if (value("simd_count") == 0) continue;
    const int64_t place = value("location_id");
    architectures[fmt::format("{:04x}:{:02x}:{:02x}.{}", value("domain"), place >> 8 & 0xff,
                              place >> 3 & 0x1f, place & 7)] = gfx_name(value("gfx_target_version"));
  }
  return architectures;
}

/// Folders of the GPU and of the bridges between it and the processor.
std::vector<fs::path> way_to_processor(const fs::path& device) {
  std::vector<fs::path> way;
  std::error_code error;
  for (fs::path at = fs::canonical(device, error); fs::exists(at / "current_link_width", error);
       at = at.parent_path())
    way.push_back(at);
  return way;
}

void read_link(const fs::path& device, PciGpu& gpu) {
  gpu.most_link_width = static_cast<int>(number_in(device / "max_link_width"));
  for (const fs::path& piece : way_to_processor(device)) {
    const auto width = static_cast<int>(number_in(piece / "current_link_width"));
    if (width == 0 || (gpu.link_width != 0 && width >= gpu.link_width)) continue;
    gpu.link_width = width;
    gpu.link_speed = line_of(piece / "current_link_speed");
  }
}

std::optional<PciGpu::Vendor> vendor_of(const fs::path& device) {
  constexpr std::string_view kDisplay = "0x03";
  if (!line_of(device / "class").starts_with(kDisplay)) return std::nullopt;
  const std::string vendor = line_of(device / "vendor");
  if (vendor == "0x1002") return PciGpu::Vendor::amd;
  if (vendor == "0x10de") return PciGpu::Vendor::nvidia;
  return std::nullopt;
}

}  // namespace

std::string gfx_name(int64_t target_version) {
  return fmt::format("gfx{}{:x}{:x}", target_version / 10000, target_version / 100 % 100,
                     target_version % 100);
}

std::vector<PciGpu> list_pci_gpus(const fs::path& root) {
  const auto architectures = read_topology(root);
  std::vector<PciGpu> gpus;
  for (const fs::path& device : entries_of(root / "sys/bus/pci/devices")) {
    const auto vendor = vendor_of(device);
    if (!vendor) continue;
    PciGpu gpu{.vendor = *vendor, .pci_address = device.filename().string()};
    const std::string id = line_of(device / "device");
    gpu.device_id = id.starts_with("0x") ? id.substr(2) : id;
    std::error_code error;
    const fs::path driver = fs::read_symlink(device / "driver", error);
    if (!error) gpu.driver = driver.filename().string();
    if (const auto found = architectures.find(gpu.pci_address); found != architectures.end())
      gpu.architecture = found->second;
    gpu.memory_bytes = number_in(device / "mem_info_vram_total");
    gpu.integrated = exec::is_integrated({.architecture = gpu.architecture});
    read_link(device, gpu);
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

}  // namespace hearth::system
