#include "system/sensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "system/gpu_metrics.h"
#include "system/tree.h"

namespace hearth::system {
namespace {

constexpr std::array<const char*, 3> kLabels = {"edge", "junction", "mem"};
/// Max number of sensors of one kind (such as temp1, temp2, ...) in a hwmon folder.
constexpr int kMaxInputs = 16;

std::string text_of(const fs::path& path) { return read_start(path.native()); }

std::optional<int64_t> read_number(const fs::path& path) { return number_of(text_of(path)); }

void put(const fs::path& path, double scale, float& member) {
  if (const auto number = read_number(path))
    member = static_cast<float>(scale * static_cast<double>(*number));
}

void add(std::optional<int64_t> count, int64_t& total) {
  if (count && *count >= 0) total = std::max<int64_t>(0, total) + *count;
}

/// Returns the number at the end of the last line whose name starts with `name`; lines have the form "NAME
/// COUNT" or "NAME: COUNT".
std::optional<int64_t> count_of(std::string_view text, std::string_view name) {
  std::optional<int64_t> count;
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    const size_t blank = line.find_last_of(" \t");
    if (line.starts_with(name) && blank != line.npos) count = number_of(line.substr(blank));
  }
  return count;
}

fs::path find_hwmon(const fs::path& device) {
  std::error_code error;
  fs::path found;
  for (const fs::directory_entry& entry : fs::directory_iterator(device / "hwmon", error)) {
    if (found.empty() || entry.path() < found) found = entry.path();
  }
  return found;
}

/// Returns the number N for which the hwmon file KIND{N}_label contains `label`; 0 if there is none.
int find_input(const fs::path& hwmon, std::string_view kind, std::string_view label) {
  for (int i = 1; i <= kMaxInputs; ++i) {
    if (trimmed(text_of(hwmon / fmt::format("{}{}_label", kind, i))) == label) return i;
  }
  return 0;
}

void read_temperature(const fs::path& hwmon, int number, float& celsius, float& limit) {
  if (number == 0) return;
  constexpr double kMilli = 1e-3;
  put(hwmon / fmt::format("temp{}_input", number), kMilli, celsius);
  for (const char* kind : {"crit", "emergency"}) {
    if (!(limit > 0)) put(hwmon / fmt::format("temp{}_{}", number, kind), kMilli, limit);
  }
  if (!(limit > 0)) limit = GpuReading::kUnknown;
}

void read_power(const fs::path& hwmon, GpuReading& reading) {
  constexpr double kMicro = 1e-6;
  put(hwmon / "power1_input", kMicro, reading.power);
  put(hwmon / "power1_average", kMicro, reading.power);
  put(hwmon / "power1_cap", kMicro, reading.power_limit);
  if (!(reading.power_limit > 0)) reading.power_limit = GpuReading::kUnknown;
}

void read_clocks(const fs::path& hwmon, GpuReading& reading) {
  constexpr double kMega = 1e-6;
  for (const auto& [label, member] :
       {std::pair("sclk", &GpuReading::clock), std::pair("mclk", &GpuReading::memory_clock)}) {
    if (const int number = find_input(hwmon, "freq", label); number > 0)
      put(hwmon / fmt::format("freq{}_input", number), kMega, reading.*member);
  }
}

void read_link(const fs::path& device, GpuReading& reading) {
  add(read_number(device / "pcie_replay_count"), reading.pcie_errors);
  for (const auto& [file, total] :
       {std::pair("aer_dev_correctable", "TOTAL_ERR_COR"),
        std::pair("aer_dev_nonfatal", "TOTAL_ERR_NONFATAL"), std::pair("aer_dev_fatal", "TOTAL_ERR_FATAL")})
    add(count_of(text_of(device / file), total), reading.pcie_errors);
}

void read_ecc(const fs::path& device, GpuReading& reading) {
  const std::string text = text_of(device / "ras/umc_err_count");
  for (const char* kind : {"ue", "ce"}) add(count_of(text, kind), reading.memory_errors);
}

/// Copies those values of `other` that are unknown in `reading`.
void fill(GpuReading& reading, const GpuReading& other) {
  for (const auto member :
       {&GpuReading::edge, &GpuReading::junction, &GpuReading::memory, &GpuReading::edge_limit,
        &GpuReading::junction_limit, &GpuReading::memory_limit, &GpuReading::power, &GpuReading::power_limit,
        &GpuReading::clock, &GpuReading::memory_clock, &GpuReading::fan, &GpuReading::fan_percent,
        &GpuReading::busy})
    if (std::isnan(reading.*member)) reading.*member = other.*member;
  for (const auto member : {&GpuReading::memory_used_bytes, &GpuReading::memory_bytes,
                            &GpuReading::pcie_errors, &GpuReading::memory_errors})
    if (reading.*member < 0) reading.*member = other.*member;
  reading.throttle |= other.throttle;
}

}  // namespace

float take_impossible_value(GpuReading& reading, float busy) {
  constexpr float kColdest = -20, kHottest = 130, kMaxPower = 2000, kMinPower = 1, kAllBusy = 99;
  float impossible = GpuReading::kUnknown;
  const auto check = [&](float& value, bool cannot_be) {
    if (!cannot_be) return;
    if (std::isnan(impossible)) impossible = value;
    value = GpuReading::kUnknown;
  };
  for (float* const value : {&reading.edge, &reading.junction, &reading.memory})
    check(*value, *value < kColdest || *value > kHottest || *value == 0 || *value == 127);
  check(reading.power,
        reading.power < 0 || reading.power > kMaxPower || (reading.power < kMinPower && busy >= kAllBusy));
  return impossible;
}

Sensors::Sensors(fs::path root, std::span<const std::string> pci_addresses, std::string nvml)
    : nvml_library_(std::move(nvml)) {
  for (const std::string& address : pci_addresses) gpus_.push_back(find(root, address));
}

Sensors::Gpu Sensors::find(const fs::path& root, const std::string& address) {
  Gpu gpu{.address = address, .device = root / "sys/bus/pci/devices" / address};
  gpu.hwmon = find_hwmon(gpu.device);
  const std::string vendor = text_of(gpu.device / "vendor");
  gpu.amd = vendor.starts_with("0x1002");
  gpu.nvidia = vendor.starts_with("0x10de");
  for (size_t i = 0; i < kLabels.size(); ++i) gpu.temperatures[i] = find_input(gpu.hwmon, "temp", kLabels[i]);
  return gpu;
}

std::vector<GpuSample> Sensors::read(std::span<const uint32_t> left_out, const Before& before) {
  std::vector<GpuSample> samples;
  for (size_t i = 0; i < gpus_.size(); ++i) {
    GpuSample sample{.reading = {.address = gpu_address(gpus_[i].address)}, .impossible_values = {}};
    sample.impossible_values.fill(GpuReading::kUnknown);
    for (size_t k = 0; k < kNumSensors; ++k) {
      const auto sensor = static_cast<Sensor>(k);
      if ((left_out[i] & bit(sensor)) != 0) continue;
      before(i, sensor);
      GpuReading part = read_sensor(gpus_[i], sensor);
      const float busy = std::isnan(sample.reading.busy) ? part.busy : sample.reading.busy;
      sample.impossible_values[k] = take_impossible_value(part, busy);
      fill(sample.reading, part);
    }
    samples.push_back(sample);
  }
  return samples;
}

GpuReading Sensors::read_sensor(const Gpu& gpu, Sensor sensor) {
  GpuReading part;
  switch (sensor) {
    case Sensor::busy:
      put(gpu.device / "gpu_busy_percent", 1, part.busy);
      break;
    case Sensor::edge:
      read_temperature(gpu.hwmon, gpu.temperatures[0], part.edge, part.edge_limit);
      break;
    case Sensor::junction:
      read_temperature(gpu.hwmon, gpu.temperatures[1], part.junction, part.junction_limit);
      break;
    case Sensor::memory:
      read_temperature(gpu.hwmon, gpu.temperatures[2], part.memory, part.memory_limit);
      break;
    case Sensor::power:
      read_power(gpu.hwmon, part);
      break;
    case Sensor::clocks:
      read_clocks(gpu.hwmon, part);
      break;
    case Sensor::fan:
      put(gpu.hwmon / "fan1_input", 1, part.fan);
      break;
    case Sensor::memory_use:
      part.memory_used_bytes = read_number(gpu.device / "mem_info_vram_used").value_or(-1);
      part.memory_bytes = read_number(gpu.device / "mem_info_vram_total").value_or(-1);
      break;
    case Sensor::link:
      read_link(gpu.device, part);
      break;
    case Sensor::ecc:
      read_ecc(gpu.device, part);
      break;
    case Sensor::gpu_metrics:
      return parse_gpu_metrics(text_of(gpu.device / "gpu_metrics")).value_or(part);
    case Sensor::nvml:
      if (!gpu.nvidia) break;
      if (!nvml_) nvml_.emplace(nvml_library_);
      return nvml_->read(gpu.address).value_or(part);
  }
  return part;
}

}  // namespace hearth::system
