#include "system/gpu_metrics.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <string>

namespace hearth::system {
namespace {

/// The bytes of one, every number not there but those that are put.
class Metrics {
 public:
  Metrics(uint8_t format, uint8_t content, uint16_t size) : bytes_(size, '\xff') {
    put(0, size);
    put(2, format);
    put(3, content);
  }
  template <typename T>
  Metrics& put(size_t offset, T value) {
    std::memcpy(bytes_.data() + offset, &value, sizeof(value));
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

using U16 = uint16_t;
using U32 = uint32_t;
using U64 = uint64_t;

/// As an RX 7900 XT at work has it.
Metrics navi31() {
  return Metrics(1, 3, 120)
      .put<U16>(4, 61)
      .put<U16>(6, 83)
      .put<U16>(8, 76)
      .put<U16>(16, 99)
      .put<U16>(22, 290)
      .put<U16>(54, 2400)
      .put<U16>(58, 1249)
      .put<U16>(72, 1650)
      .put<U64>(112, 0);
}

TEST(GpuMetrics, OfADiscreteGpu) {
  const auto reading = parse_gpu_metrics(navi31().bytes());
  ASSERT_TRUE(reading);
  EXPECT_EQ(reading->edge, 61);
  EXPECT_EQ(reading->junction, 83);
  EXPECT_EQ(reading->memory, 76);
  EXPECT_EQ(reading->busy, 99);
  EXPECT_EQ(reading->power, 290);
  EXPECT_EQ(reading->clock, 2400);
  EXPECT_EQ(reading->memory_clock, 1249);
  EXPECT_EQ(reading->fan, 1650);
  EXPECT_EQ(reading->throttle, 0U);
  EXPECT_EQ(reading->pcie_errors, -1);
}

TEST(GpuMetrics, WhatHasAllBitsSetIsNotThere) {
  const auto reading = parse_gpu_metrics(Metrics(1, 3, 120).bytes());
  ASSERT_TRUE(reading);
  EXPECT_TRUE(std::isnan(reading->edge) && std::isnan(reading->power) && std::isnan(reading->fan));
  EXPECT_EQ(reading->throttle, 0U);
}

TEST(GpuMetrics, ThrottleReasonsWithoutTheHotspotsBit) {
  const auto words = [](uint64_t status) {
    return throttle_words(parse_gpu_metrics(navi31().put<U64>(112, status).bytes())->throttle);
  };
  EXPECT_EQ(words(U64{1} << 36), "");
  EXPECT_EQ(words(1 | U64{1} << 36), "power");
  EXPECT_EQ(words(U64{1} << 34), "temperature");
  EXPECT_EQ(words(U64{1} << 16 | U64{1} << 47), "current, external");
}

TEST(GpuMetrics, EveryVersionHasItsPlaces) {
  struct Case {
    uint8_t format, content;
    uint16_t size, hottest, power, clock;
  };
  for (const Case& one :
       {Case{1, 0, 80, 18, 34, 54}, Case{1, 1, 96, 6, 22, 54}, Case{1, 2, 104, 6, 22, 54},
        Case{1, 4, 288, 4, 10, 240}, Case{1, 5, 360, 4, 10, 312}, Case{1, 6, 384, 4, 10, 336},
        Case{1, 6, 2000, 4, 10, 264}, Case{1, 7, 3000, 4, 10, 296}, Case{1, 8, 3872, 4, 10, 296}}) {
    const auto reading = parse_gpu_metrics(Metrics(one.format, one.content, one.size)
                                               .put<U16>(one.hottest, 84)
                                               .put<U16>(one.power, 301)
                                               .put<U16>(one.clock, 2300)
                                               .bytes());
    ASSERT_TRUE(reading) << int{one.format} << "." << int{one.content};
    EXPECT_EQ(reading->hottest(), 84) << int{one.format} << "." << int{one.content};
    EXPECT_EQ(reading->power, 301);
    EXPECT_EQ(reading->clock, 2300);
  }
}

TEST(GpuMetrics, IntegratedGpusCountInSmallerUnits) {
  struct Case {
    uint8_t format, content;
    uint16_t size, edge, busy, power;
  };
  for (const Case& one : {Case{2, 0, 120, 16, 40, 44}, Case{2, 1, 120, 4, 28, 40}, Case{2, 2, 128, 4, 28, 40},
                          Case{2, 3, 152, 4, 28, 40}, Case{2, 4, 168, 4, 28, 40}}) {
    const auto reading = parse_gpu_metrics(Metrics(one.format, one.content, one.size)
                                               .put<U16>(one.edge, 8750)
                                               .put<U16>(one.busy, 9900)
                                               .put<U16>(one.power, 54000)
                                               .bytes());
    ASSERT_TRUE(reading) << int{one.format} << "." << int{one.content};
    EXPECT_FLOAT_EQ(reading->hottest(), 87.5F) << int{one.format} << "." << int{one.content};
    EXPECT_FLOAT_EQ(reading->busy, 99);
    EXPECT_FLOAT_EQ(reading->power, 54);
  }
  const auto strix = parse_gpu_metrics(
      Metrics(3, 0, 264).put<U16>(4, 9100).put<U32>(112, 120000).put<U16>(174, 2850).bytes());
  ASSERT_TRUE(strix);
  EXPECT_FLOAT_EQ(strix->hottest(), 91);
  EXPECT_FLOAT_EQ(strix->power, 120);
  EXPECT_EQ(strix->clock, 2850);
}

TEST(GpuMetrics, ReplaysOfTheLink) {
  EXPECT_EQ(parse_gpu_metrics(Metrics(1, 7, 3000).put<U64>(112, 17).bytes())->pcie_errors, 17);
  EXPECT_EQ(parse_gpu_metrics(Metrics(1, 4, 288).put<U64>(88, 5).bytes())->pcie_errors, 5);
}

TEST(GpuMetrics, NothingOfWhatIsNone) {
  EXPECT_FALSE(parse_gpu_metrics(""));
  EXPECT_FALSE(parse_gpu_metrics("\x78"));
  EXPECT_FALSE(parse_gpu_metrics(navi31().bytes().substr(0, 119)));
  EXPECT_FALSE(parse_gpu_metrics(Metrics(1, 3, 104).bytes()));
  EXPECT_FALSE(parse_gpu_metrics(Metrics(4, 0, 200).bytes()));
  EXPECT_FALSE(parse_gpu_metrics(navi31().put<U16>(0, 121).bytes()));
}

}  // namespace
}  // namespace hearth::system
