#include "base/e5m2.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/dtype.h"

namespace hearth {
namespace {

struct Format {
  float (*decode)(uint8_t);
  uint8_t (*encode)(float);
  float (*round)(float);
  float max;
  uint64_t decoded_hash, encoded_hash;  ///< FNV-1a of what ml_dtypes 0.6.0 and torch 2.13 compute
};
float round_to_e4m3(float x) { return e4m3_value(e4m3_code(x)); }
constexpr Format kFormats[] = {
    {f8_e4m3_to_f32, f32_to_f8_e4m3, round_to_e4m3, kMaxE4m3, 0xdad1d9c50f749ca5, 0xa04f78c826093b75},
    {f8_e5m2_to_f32, f32_to_f8_e5m2, round_to_e5m2, kMaxE5m2, 0x6c1e56b6fb09c905, 0x963cb7c740d3d0e5}};

uint32_t bits_of(float value) { return e4m3::bits_as<uint32_t>(value); }

template <typename T>
uint64_t fnv(const std::vector<T>& values) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  for (size_t i = 0; i < values.size() * sizeof(T); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  return hash;
}

TEST(Float8, AllCodesHaveTheValuesOfMlDtypes) {
  for (const Format& format : kFormats) {
    std::vector<uint32_t> values;
    for (int code = 0; code < 256; ++code) {
      const float value = format.decode(static_cast<uint8_t>(code));
      values.push_back(std::isnan(value) ? 0x7fc00000U : bits_of(value));
      if (std::isfinite(value)) {
        EXPECT_EQ(format.encode(value), code);
        EXPECT_EQ(bits_of(format.round(value)), bits_of(value));
      }
    }
    EXPECT_EQ(fnv(values), format.decoded_hash);
  }
}

TEST(Float8, RoundsToTheCodesOfMlDtypes) {
  for (const Format& format : kFormats) {
    std::vector<uint8_t> codes;
    for (const uint32_t low : {0U, 1U, 0xffffU}) {
      for (uint32_t high = 0; high < 65536; ++high) {
        float x = e4m3::bits_as<float>(high << 16 | low);
        if (!std::isfinite(x) || std::fabs(x) > format.max) x = 0;
        codes.push_back(format.encode(x));
        ASSERT_EQ(bits_of(format.round(x)), bits_of(format.decode(codes.back()))) << x;
      }
    }
    EXPECT_EQ(fnv(codes), format.encoded_hash);
  }
}

TEST(E5m2, SaturatesAndKeepsNonFiniteValues) {
  EXPECT_EQ(round_to_e5m2(1e30F), kMaxE5m2);
  EXPECT_EQ(round_to_e5m2(-1.25F * kMaxE5m2), -kMaxE5m2);
  EXPECT_TRUE(std::isnan(round_to_e5m2(std::numeric_limits<float>::infinity())));
  EXPECT_TRUE(std::isnan(round_to_e5m2(NAN)));
}

TEST(E5m2, ScaleIsAPowerOfTwoThatFits) {
  for (const float none : {0.0F, std::numeric_limits<float>::infinity(), NAN}) EXPECT_EQ(e5m2_scale(none), 1);
  for (const float x : {1.0F, 1.5F, 2.0F, 3.0F, 1e-18F, 1e18F}) {
    int exponent = 0;
    EXPECT_EQ(std::frexp(e5m2_scale(x * x), &exponent), 0.5F);
    EXPECT_LT(x / e5m2_scale(x * x), 32768);
    EXPECT_GE(x / e5m2_scale(x * x), 8192);
  }
}

}  // namespace
}  // namespace hearth
