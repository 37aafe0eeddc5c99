#include "system/sensors.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdlib>
#include <thread>

#include "system/planted_gpu.h"
#include "system/sampler.h"

namespace hearth::system {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Sensing : public testing::Test {
 protected:
  ~Sensing() override { unsetenv("FAKE_NVML"); }
  GpuReading read(const std::string& address) {
    Sensors sensors(planted_.root(), std::vector{address}, HEARTH_FAKE_NVML);
    const uint32_t left_out = 0;
    return sensors.read({&left_out, 1}, [](size_t, Sensor) {})[0].reading;
  }
  /// Samples until `end` is true, at most for a minute.
  void sample(Sampler& sampler, const std::function<bool()>& end) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!end() && std::chrono::steady_clock::now() < until) {
      sampler.look();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    EXPECT_TRUE(end());
  }
  Sampler open_sampler(double timeout_seconds = 30) {
    return {{.root = planted_.root(),
             .nvml = HEARTH_FAKE_NVML,
             .seconds = 0.01,
             .timeout_seconds = timeout_seconds},
            [this](const std::string& text) { said_.push_back(text); }};
  }

  PlantedGpu planted_;
  std::vector<std::string> said_;
};

TEST_F(Sensing, HwmonByLabel) {
  const GpuReading reading = read(PlantedGpu::kAddress);
  EXPECT_EQ(reading.name(), PlantedGpu::kAddress);
  EXPECT_FLOAT_EQ(reading.edge, 61);
  EXPECT_FLOAT_EQ(reading.junction, 83);
  EXPECT_FLOAT_EQ(reading.memory, 76);
  EXPECT_FLOAT_EQ(reading.edge_limit, 100);
  EXPECT_FLOAT_EQ(reading.junction_limit, 110);
  // It has no critical temperature, and an emergency one.
  EXPECT_FLOAT_EQ(reading.memory_limit, 105);
  EXPECT_FLOAT_EQ(reading.power, 290);
  EXPECT_FLOAT_EQ(reading.power_limit, 315);
  EXPECT_FLOAT_EQ(reading.clock, 2400);
  EXPECT_FLOAT_EQ(reading.memory_clock, 1249);
  EXPECT_FLOAT_EQ(reading.fan, 1650);
  EXPECT_FLOAT_EQ(reading.busy, 99);
  EXPECT_EQ(reading.memory_bytes, 21458059264);
  EXPECT_EQ(reading.memory_used_bytes, 17179869184);
  EXPECT_EQ(reading.pcie_errors, 2 + 7 + 1);
  EXPECT_EQ(reading.memory_errors, 0 + 4);
  EXPECT_EQ(short_text(reading), "83C 290W");
}

TEST_F(Sensing, NewerPartsNameTheirPowerOtherwise) {
  fs::remove(planted_.hwmon() / "power1_average");
  planted_.plant_hwmon("power1_input", "120000000\n");
  EXPECT_FLOAT_EQ(read(PlantedGpu::kAddress).power, 120);
}

TEST_F(Sensing, GpuMetricsSayWhatHwmonDoesNot) {
  std::string metrics(120, '\xff');
  metrics[0] = 120;
  metrics[1] = 0;
  metrics[2] = 1;
  metrics[3] = 3;
  metrics[6] = 91;
  metrics[7] = 0;
  metrics.replace(112, 8, std::string("\1\0\0\0\x10\0\0\0", 8));
  planted_.plant_device("gpu_metrics", metrics);
  EXPECT_FLOAT_EQ(read(PlantedGpu::kAddress).junction, 83);
  EXPECT_EQ(throttle_words(read(PlantedGpu::kAddress).throttle), "power");
  planted_.plant_hwmon("temp2_label", "other\n");
  EXPECT_FLOAT_EQ(read(PlantedGpu::kAddress).junction, 91);
}

TEST_F(Sensing, OfAGpuThatIsNotThereNothing) {
  const GpuReading reading = read("0000:99:00.0");
  EXPECT_TRUE(std::isnan(reading.hottest()) && std::isnan(reading.power));
  EXPECT_EQ(short_text(reading), "");
}

TEST_F(Sensing, Nvml) {
  planted_.plant_file("sys/bus/pci/devices/0000:41:00.0/vendor", "0x10de\n");
  const GpuReading reading = read("0000:41:00.0");
  EXPECT_EQ(reading.hottest(), 79);
  EXPECT_EQ(reading.edge_limit, 87);
  EXPECT_FLOAT_EQ(reading.power, 301.5F);
  EXPECT_FLOAT_EQ(reading.power_limit, 350);
  EXPECT_EQ(reading.clock, 1980);
  EXPECT_EQ(reading.memory_clock, 10501);
  EXPECT_EQ(reading.fan_percent, 64);
  EXPECT_EQ(reading.busy, 97);
  EXPECT_EQ(reading.memory_bytes, 25769803776);
  EXPECT_EQ(reading.memory_used_bytes, 20000000000);
  EXPECT_EQ(reading.pcie_errors, 3);
  EXPECT_EQ(reading.memory_errors, 6);
  EXPECT_EQ(throttle_words(reading.throttle), "power, temperature");
}

TEST_F(Sensing, NvmlThatFails) {
  setenv("FAKE_NVML", "fail_power", 1);
  const auto reading = Nvml(HEARTH_FAKE_NVML).read("0000:41:00.0");
  ASSERT_TRUE(reading);
  EXPECT_TRUE(std::isnan(reading->power));
  EXPECT_EQ(reading->edge, 79);
  EXPECT_FALSE(Nvml(HEARTH_FAKE_NVML).read("0000:42:00.0"));
  setenv("FAKE_NVML", "fail", 1);
  EXPECT_EQ(Nvml(HEARTH_FAKE_NVML).fault(), "Driver Not Loaded");
  EXPECT_FALSE(Nvml(HEARTH_FAKE_NVML).read("0000:41:00.0"));
  EXPECT_THAT(Nvml("libnowhere.so.1").fault(), HasSubstr("libnowhere.so.1"));
}

TEST_F(Sensing, WhatCannotBeIsALie) {
  const auto lie = [](float GpuReading::*member, float value, float busy = 0) {
    GpuReading reading;
    reading.*member = value;
    const float found = take_impossible_value(reading, busy);
    EXPECT_EQ(std::isnan(reading.*member), !std::isnan(found));
    return found;
  };
  for (const float celsius : {-40.F, 0.F, 127.F, 131.F, 255.F, 6553.5F})
    EXPECT_EQ(lie(&GpuReading::junction, celsius), celsius);
  for (const float celsius : {-10.F, 25.F, 110.F, 126.F})
    EXPECT_TRUE(std::isnan(lie(&GpuReading::edge, celsius)));
  EXPECT_EQ(lie(&GpuReading::power, 2500), 2500);
  EXPECT_EQ(lie(&GpuReading::power, 0, 100), 0);
  EXPECT_TRUE(std::isnan(lie(&GpuReading::power, 0, 20)));
  EXPECT_TRUE(std::isnan(lie(&GpuReading::power, 450, 100)));
}

TEST_F(Sensing, TheSamplerFollowsWhatChanges) {
  Sampler sampler = open_sampler();
  sampler.watch({PlantedGpu::kAddress});
  EXPECT_THAT(sampler.readings(), IsEmpty());
  sample(sampler, [&] { return !sampler.readings().empty() && sampler.readings()[0].junction == 83; });
  planted_.plant_hwmon("temp2_input", "95500\n");
  sample(sampler, [&] { return sampler.readings()[0].junction == 95.5F; });
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(Sensing, ASensorThatHangsIsLeftOutAndTheOthersGoOn) {
  fs::remove(planted_.hwmon() / "power1_average");
  mkfifo((planted_.hwmon() / "power1_average").c_str(), 0600);
  Sampler sampler = open_sampler(0.2);
  sampler.watch({PlantedGpu::kAddress});
  sample(sampler, [&] { return !sampler.readings().empty(); });
  EXPECT_FLOAT_EQ(sampler.readings()[0].junction, 83);
  EXPECT_TRUE(std::isnan(sampler.readings()[0].power));
  EXPECT_THAT(said_, ElementsAre("disabled a sensor, the power of GPU 0000:03:00.0: it does not respond"));
}

TEST_F(Sensing, AVendorsLibraryThatHangsIsLeftOutToo) {
  setenv("FAKE_NVML", "hang", 1);
  planted_.plant_file("sys/bus/pci/devices/0000:41:00.0/vendor", "0x10de\n");
  Sampler sampler = open_sampler(0.2);
  sampler.watch({PlantedGpu::kAddress, "0000:41:00.0"});
  sample(sampler, [&] { return !sampler.readings().empty(); });
  EXPECT_FLOAT_EQ(sampler.readings()[0].junction, 83);
  EXPECT_TRUE(std::isnan(sampler.readings()[1].edge));
  EXPECT_THAT(said_, ElementsAre("disabled a sensor, NVML of GPU 0000:41:00.0: it does not respond"));
}

TEST_F(Sensing, ALiarIsNamedOnceAndLeftOut) {
  planted_.plant_hwmon("temp2_input", "-40000\n");
  Sampler sampler = open_sampler();
  sampler.watch({PlantedGpu::kAddress});
  int num_samples = 0;
  sample(sampler, [&] { return (num_samples += sampler.look() ? 1 : 0) == 8; });
  EXPECT_TRUE(std::isnan(sampler.readings()[0].junction));
  EXPECT_FLOAT_EQ(sampler.readings()[0].edge, 61);
  EXPECT_THAT(
      said_,
      ElementsAre(
          "disabled a sensor, the junction temperature of GPU 0000:03:00.0: it reports an impossible value, "
          "-40"));
}

TEST_F(Sensing, ErrorsThatGrowAreSaid) {
  Sampler sampler = open_sampler();
  sampler.watch({PlantedGpu::kAddress});
  sample(sampler, [&] { return !sampler.readings().empty(); });
  planted_.plant_device("pcie_replay_count", "5\n");
  sample(sampler, [&] { return !said_.empty(); });
  planted_.plant_device("ras/umc_err_count", "ue: 1\nce: 4\n");
  sample(sampler, [&] { return said_.size() == 2; });
  EXPECT_THAT(said_, ElementsAre("GPU 0000:03:00.0: 3 PCIe errors since monitoring started",
                                 "GPU 0000:03:00.0: 1 memory error since monitoring started"));
}

}  // namespace
}  // namespace hearth::system
