#include "io/gguf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/dtype.h"
#include "temporary_folder.h"

namespace hearth::io {
namespace {

constexpr int64_t kQ8Bytes = 34, kQ4Bytes = 18;

std::vector<std::byte> quantized(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() / 32 * kQ8Bytes);
  quantize_blocks(BlockFormat::q8_0, values, bytes.data());
  return bytes;
}

float scale_of(const std::vector<std::byte>& block) {
  f16 scale;
  std::memcpy(&scale, block.data(), sizeof scale);
  return to_f32(scale);
}

int level(const std::vector<std::byte>& block, size_t i) { return static_cast<int8_t>(block[2 + i]); }

TEST(Gguf, Q8BlockHasTheScaleAndTheRoundedLevels) {
  std::vector<float> values(32, 0.0F);
  values[0] = -127;
  values[1] = 2.5F;  // Away from zero, as ggml rounds.
  values[2] = -2.5F;
  values[3] = 0.49F;
  values[31] = 126.6F;
  const std::vector<std::byte> block = quantized(values);
  EXPECT_EQ(scale_of(block), 1);
  EXPECT_EQ(level(block, 0), -127);
  EXPECT_EQ(level(block, 1), 3);
  EXPECT_EQ(level(block, 2), -3);
  EXPECT_EQ(level(block, 3), 0);
  EXPECT_EQ(level(block, 31), 127);
}

TEST(Gguf, Q8BlocksOfZerosAndOfNextToNothingAreZero) {
  for (const float value : {0.0F, std::numeric_limits<float>::denorm_min()}) {
    const std::vector<std::byte> block = quantized(std::vector<float>(32, value));
    EXPECT_TRUE(std::ranges::all_of(block, [](std::byte byte) { return byte == std::byte{0}; })) << value;
  }
}

TEST(Gguf, Q8BlocksStandAlone) {
  std::vector<float> values(64, 1.0F);
  std::fill(values.begin() + 32, values.end(), 1000.0F);
  const std::vector<std::byte> both = quantized(values);
  const std::vector<std::byte> second(both.begin() + kQ8Bytes, both.end());
  EXPECT_NEAR(scale_of(both), 1 / 127.0, 1e-5);
  EXPECT_NEAR(scale_of(second), 1000 / 127.0, 1e-2);
  EXPECT_EQ(level(both, 5), 127);
  EXPECT_EQ(level(second, 5), 127);
}

TEST(Gguf, Q4BlockHasTheSignedScaleAndPackedCodes) {
  std::vector<float> values(32, 0.0F);
  values[0] = 4;   // The first of the two largest magnitudes sets the sign of the scale, -0.5.
  values[1] = -4;  // 8 is not a code; 7 is the largest.
  values[2] = 1.2F;
  values[16] = -1.2F;
  values[17] = 3.5F;
  std::vector<std::byte> block(kQ4Bytes);
  quantize_blocks(BlockFormat::q4_0, values, block.data());
  EXPECT_EQ(scale_of(block), -0.5F);
  const auto codes = [&](size_t i) { return std::to_integer<int>(block[2 + i]); };
  EXPECT_EQ(codes(0), (8 - 8) + 16 * (8 + 2));
  EXPECT_EQ(codes(1), 15 + 16 * (8 - 7));
  EXPECT_EQ(codes(2), (8 - 2) + 16 * 8);
  EXPECT_EQ(codes(3), 8 + 16 * 8);
}

TEST(Gguf, RowBytes) {
  EXPECT_EQ(gguf_row_bytes(GgufType::f32, 7), 28);
  EXPECT_EQ(gguf_row_bytes(GgufType::f16, 7), 14);
  EXPECT_EQ(gguf_row_bytes(GgufType::bf16, 7), 14);
  EXPECT_EQ(gguf_row_bytes(GgufType::q8_0, 64), 68);
  EXPECT_EQ(gguf_row_bytes(GgufType::q4_0, 64), 36);
}

template <typename T>
T at(const std::string& bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

TEST(Gguf, FileIsHeaderThenAlignedData) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a.gguf";
  const std::vector<float> first = {1, 2, 3, 4, 5, 6}, second = {7};
  const std::vector<GgufTensor> tensors = {{.name = "ab", .type = GgufType::f32, .shape = {2, 3}},
                                           {.name = "c", .type = GgufType::f32, .shape = {1}}};
  write_gguf(path, {{"k", uint32_t{9}}, {"l", std::vector<std::string>{"x", "yz"}}}, tensors,
             [&](size_t i) { return std::as_bytes(std::span(i == 0 ? first : second)); });
  const std::string bytes = read_file(path);
  EXPECT_EQ(bytes.substr(0, 4), "GGUF");
  EXPECT_EQ(at<uint32_t>(bytes, 4), 3U);
  EXPECT_EQ(at<uint64_t>(bytes, 8), 2U);
  EXPECT_EQ(at<uint64_t>(bytes, 16), 2U);
  // Key of one letter, type 4, value.
  EXPECT_EQ(at<uint64_t>(bytes, 24), 1U);
  EXPECT_EQ(bytes[32], 'k');
  EXPECT_EQ(at<uint32_t>(bytes, 33), 4U);
  EXPECT_EQ(at<uint32_t>(bytes, 37), 9U);
  // "l": an array (9) of two strings (8).
  EXPECT_EQ(at<uint32_t>(bytes, 50), 9U);
  EXPECT_EQ(at<uint32_t>(bytes, 54), 8U);
  EXPECT_EQ(at<uint64_t>(bytes, 58), 2U);
  // "ab": two axes, the columns first; type 0 at 0.
  const size_t info = 66 + 9 + 10;
  EXPECT_EQ(bytes.substr(info + 8, 2), "ab");
  EXPECT_EQ(at<uint32_t>(bytes, info + 10), 2U);
  EXPECT_EQ(at<uint64_t>(bytes, info + 14), 3U);
  EXPECT_EQ(at<uint64_t>(bytes, info + 22), 2U);
  EXPECT_EQ(at<uint32_t>(bytes, info + 30), 0U);
  EXPECT_EQ(at<uint64_t>(bytes, info + 34), 0U);
  // "c" is after 24 bytes, on the next multiple of 32.
  const size_t next = info + 42;
  EXPECT_EQ(at<uint64_t>(bytes, next + 8 + 1 + 4 + 8 + 4), 32U);
  const size_t data = (next + 33 + 31) / 32 * 32;
  EXPECT_EQ(at<float>(bytes, data), 1);
  EXPECT_EQ(at<float>(bytes, data + 20), 6);
  EXPECT_EQ(at<float>(bytes, data + 32), 7);
  EXPECT_EQ(bytes.size(), data + 64);
}

}  // namespace
}  // namespace hearth::io
