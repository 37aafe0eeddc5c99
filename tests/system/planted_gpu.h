#pragma once

#include <fstream>
#include <string>
#include <string_view>

#include "base/file.h"
#include "temporary_folder.h"

namespace hearth::system {

/// A tree with the files of one RX 7900 XT at work.
class PlantedGpu {
 public:
  static constexpr const char* kAddress = "0000:03:00.0";

  explicit PlantedGpu(const std::string& address = kAddress) : device_("sys/bus/pci/devices/" + address) {
    for (const auto& [file, text] :
         {std::pair("vendor", "0x1002\n"), std::pair("gpu_busy_percent", "99\n"),
          std::pair("mem_info_vram_total", "21458059264\n"), std::pair("mem_info_vram_used", "17179869184\n"),
          std::pair("pcie_replay_count", "2\n"),
          std::pair("aer_dev_correctable", "RxErr 3\nBadTLP 4\nTOTAL_ERR_COR 7\n"),
          std::pair("aer_dev_nonfatal", "Undefined 1\nTOTAL_ERR_NONFATAL 1\n"),
          std::pair("aer_dev_fatal", "Undefined 0\nTOTAL_ERR_FATAL 0\n"),
          std::pair("ras/umc_err_count", "ue: 0\nce: 4\n")})
      plant_device(file, text);
    for (const auto& [file, text] :
         {std::pair("temp1_label", "edge\n"), std::pair("temp1_input", "61000\n"),
          std::pair("temp1_crit", "100000\n"), std::pair("temp1_emergency", "105000\n"),
          std::pair("temp2_label", "junction\n"), std::pair("temp2_input", "83000\n"),
          std::pair("temp2_crit", "110000\n"), std::pair("temp3_label", "mem\n"),
          std::pair("temp3_input", "76000\n"), std::pair("temp3_emergency", "105000\n"),
          std::pair("power1_average", "290000000\n"), std::pair("power1_cap", "315000000\n"),
          std::pair("freq1_label", "sclk\n"), std::pair("freq1_input", "2400000000\n"),
          std::pair("freq2_label", "mclk\n"), std::pair("freq2_input", "1249000000\n"),
          std::pair("fan1_input", "1650\n")})
      plant_hwmon(file, text);
  }

  const fs::path& root() const { return folder_.path(); }
  fs::path hwmon() const { return root() / device_ / "hwmon/hwmon4"; }
  void plant_device(const fs::path& file, std::string_view text) const { plant_file(device_ / file, text); }
  void plant_hwmon(const fs::path& file, std::string_view text) const {
    plant_file(device_ / "hwmon/hwmon4" / file, text);
  }
  void plant_file(const fs::path& file, std::string_view text) const {
    fs::create_directories((root() / file).parent_path());
    const fs::path whole = root() / file, part = whole.string() + ".part";
    std::ofstream(part) << text;
    fs::rename(part, whole);
  }

 private:
  TemporaryFolder folder_;
  fs::path device_;
};

}  // namespace hearth::system
