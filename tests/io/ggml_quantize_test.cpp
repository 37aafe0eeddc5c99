#include "io/ggml_quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "io/gguf.h"

namespace hearth::io {
namespace {

std::vector<std::byte> quantized(GgufType type, const std::vector<float>& values) {
  std::vector<std::byte> blocks(static_cast<size_t>(gguf_row_bytes(type, std::ssize(values))));
  quantize_gguf(type, values, blocks.data());
  return blocks;
}

std::vector<float> stored(GgufType type, const std::vector<float>& values) {
  std::vector<float> out(values.size());
  dequantize_gguf(type, quantized(type, values).data(), out);
  return out;
}

/// Root mean square of the rounding errors, relative to that of the values.
double relative_error(GgufType type, const std::vector<float>& values) {
  const std::vector<float> found = stored(type, values);
  double error = 0, norm = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    error += std::pow(found[i] - values[i], 2);
    norm += std::pow(values[i], 2);
  }
  return std::sqrt(error / norm);
}

std::vector<float> normal_values(float scale, float mean = 0) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(mean, scale);
  std::vector<float> values(16 * 256);
  for (float& value : values) value = normal(random);
  return values;
}

constexpr std::array kTypes = {GgufType::q4_0, GgufType::q5_0, GgufType::q5_1, GgufType::q8_0,
                               GgufType::q4_K, GgufType::q5_K, GgufType::q6_K};

TEST(GgmlQuantize, MoreBitsHaveSmallerErrors) {
  const std::vector<float> values = normal_values(0.02F);
  const auto error = [&](GgufType type) { return relative_error(type, values); };
  EXPECT_LT(error(GgufType::q4_K), 0.95 * error(GgufType::q4_0));
  EXPECT_LT(error(GgufType::q5_K), 0.95 * error(GgufType::q5_0));
  EXPECT_LT(error(GgufType::q5_0), 0.6 * error(GgufType::q4_0));
  EXPECT_LT(error(GgufType::q6_K), 0.6 * error(GgufType::q5_K));
  EXPECT_LT(error(GgufType::q8_0), 0.5 * error(GgufType::q6_K));
  EXPECT_LT(error(GgufType::q4_K), 0.08);
}

TEST(GgmlQuantize, TypesWithAMinimumStoreShiftedValues) {
  const std::vector<float> values = normal_values(0.02F, -1);
  EXPECT_LT(relative_error(GgufType::q4_K, values), 0.1 * relative_error(GgufType::q4_0, values));
  EXPECT_LT(relative_error(GgufType::q5_1, values), 0.1 * relative_error(GgufType::q5_0, values));
}

TEST(GgmlQuantize, ValuesOnTheGridAreStoredExactly) {
  std::vector<float> values(256);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 32) - 16;
  EXPECT_EQ(stored(GgufType::q5_0, values), values);
  EXPECT_EQ(stored(GgufType::q5_1, values), values);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 63 * (static_cast<float>(i % 16) - 5);
  EXPECT_EQ(stored(GgufType::q4_K, values), values);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 63 * (static_cast<float>(i % 32) - 9);
  EXPECT_EQ(stored(GgufType::q5_K, values), values);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7 % 64) - 32;
  for (size_t part = 0; part < values.size(); part += 16) values[part] = -32;
  EXPECT_EQ(stored(GgufType::q6_K, values), values);
}

TEST(GgmlQuantize, PartsOfASuperBlockHaveTheirOwnScale) {
  std::vector<float> values = normal_values(1);
  values.resize(256);
  for (size_t i = 0; i < 32; ++i) values[i] *= 0.05F;
  for (const GgufType type : {GgufType::q4_K, GgufType::q5_K, GgufType::q6_K}) {
    const std::vector<float> found = stored(type, values);
    for (size_t i = 0; i < 32; ++i) EXPECT_NEAR(found[i], values[i], 0.02) << i;
  }
}

TEST(GgmlQuantize, ExtremeBlocksStayFinite) {
  for (const GgufType type : kTypes) {
    for (const float value : {0.0F, 1e-30F, -1e-30F, 1e-9F, 1.0F, -3.0F, max_magnitude(type)}) {
      std::vector<float> values(256, value);
      values[77] = value / 2;
      const double tolerance = std::fabs(value) < 1e-5 ? 1e-5 : std::fabs(value) / 10;
      const std::vector<float> found = stored(type, values);
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(found[i], values[i], tolerance) << static_cast<int>(type) << " " << value;
    }
  }
}

TEST(GgmlQuantize, WritesNoOtherType) {
  for (const GgufType type : kTypes) EXPECT_TRUE(is_written_in_blocks(type));
  for (const GgufType type : {GgufType::f32, GgufType::bf16, GgufType::q4_1, GgufType::q2_K, GgufType::q3_K})
    EXPECT_FALSE(is_written_in_blocks(type));
}

}  // namespace
}  // namespace hearth::io
