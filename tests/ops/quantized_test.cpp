#include "ops/matmul/quantized.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/dtype.h"
#include "ops/update/dynamic_map.h"

namespace hearth::ops {
namespace {

/// FNV-1a over bytes: what bitsandbytes 0.50.2 gave on a CPU (Linux, torch 2.13.0) was hashed in the same
/// way.
uint64_t fnv(const void* data, size_t num_bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto* bytes = static_cast<const uint8_t*>(data);
  for (size_t i = 0; i < num_bytes; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  return hash;
}
template <typename T>
uint64_t fnv(const std::vector<T>& values) {
  return fnv(values.data(), values.size() * sizeof(T));
}

constexpr int64_t kRows = 300, kColumns = 128, kCount = kRows * kColumns;

/// Exact in f32 wherever it is computed.
std::vector<float> matrix() {
  std::vector<float> values(kCount);
  for (int64_t i = 0; i < kCount; ++i)
    values[static_cast<size_t>(i)] = static_cast<float>((i * 7919 % 2003 - 1001) * (1 + i / 64 % 5)) / 8192;
  return values;
}

/// Memory for a stored matrix.
struct Stored {
  Quantization kind;
  int64_t rows, columns;
  std::vector<std::vector<uint8_t>> memory;
  std::vector<void*> parts;

  Stored(Quantization kind_of, int64_t num_rows, int64_t num_columns)
      : kind(kind_of), rows(num_rows), columns(num_columns) {
    for (const QuantizedPart& part : quantized_parts(kind, rows, columns))
      memory.emplace_back(static_cast<size_t>(part.type.num_bytes()));
    for (auto& part : memory) parts.push_back(part.data());
  }
  void fill(const std::vector<float>& values) {
    Quantizer quantizer(kind, rows, columns, parts);
    for (int64_t at = 0; at < rows * columns; at += quantizer.piece())
      quantizer.add(at, values.data() + at, std::min(quantizer.piece(), rows * columns - at));
    quantizer.finish();
  }
  std::vector<float> read() const {
    std::vector<float> values(static_cast<size_t>(rows * columns));
    QuantizedMatrix(kind, rows, columns, parts).read(0, rows * columns, values.data());
    return values;
  }
  float number(size_t part, size_t index) const {
    float value = 0;
    std::memcpy(&value, memory[part].data() + index * sizeof(float), sizeof(float));
    return value;
  }
};

TEST(DynamicMap, IsThatOfBitsandbytesBitByBit) {
  EXPECT_EQ(fnv(dynamic_map(true).data(), 1024), 0xd677f22a96665bc4);
  EXPECT_EQ(fnv(dynamic_map(false).data(), 1024), 0x43811b16730a873e);
}

TEST(Quantized, Nf4IsThatOfBitsandbytesBitByBit) {
  Stored stored(Quantization::nf4, kRows, kColumns);
  stored.fill(matrix());
  EXPECT_EQ(fnv(stored.memory[0]), 0xc9dc312c3ce58e3d);
  EXPECT_EQ(fnv(stored.memory[1]), 0xd2ce4cf43e742436);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(stored.number(2, i), 0x1.fbbbd8p-3F);
  EXPECT_EQ(stored.number(3, 0), 0x1.73c214p-2F);
  EXPECT_EQ(fnv(stored.read()), 0x5724728a5ede4f1b);
}

TEST(Quantized, Int8IsThatOfBitsandbytesBitByBit) {
  Stored stored(Quantization::int8, kRows, kColumns);
  stored.fill(matrix());
  EXPECT_EQ(fnv(stored.memory[0]), 0xcb80ecfcdf7f61de);
  EXPECT_EQ(fnv(stored.memory[1]), 0x47292af6ad410593);
  EXPECT_EQ(fnv(stored.read()), 0x783972e231590b0e);
}

TEST(Quantized, Fp8KeepsEveryValueOfE4M3TimesAPowerOfTwo) {
  Stored stored(Quantization::fp8, 3, 256);
  std::vector<float> values;
  for (const float factor : {1.0F, 0x1p-9F, 0x1p30F}) {
    for (int code = 0; code < 256; ++code) {
      const bool is_number = (code & 0x7F) != 0x7F;
      values.push_back(is_number ? factor * f8_e4m3_to_f32(static_cast<uint8_t>(code)) : 0.0F);
    }
  }
  stored.fill(values);
  EXPECT_EQ(stored.read(), values);
}

TEST(Quantized, Fp8RoundsToTheNearestWithinItsRowsPowerOfTwo) {
  Stored stored(Quantization::fp8, 2, 1 << 12);
  std::vector<float> values;
  for (int i = 0; i < 2 << 12; ++i)
    values.push_back(std::sin(static_cast<float>(i)) * std::exp2(-static_cast<float>(i % 13)));
  values[0] = 1.76F;  // above 448 / 2^8
  stored.fill(values);
  EXPECT_EQ(stored.number(1, 0), 0x1p-7F);
  EXPECT_EQ(stored.number(1, 1), 0x1p-8F);
  const std::vector<float> found = stored.read();
  for (size_t i = 0; i < values.size(); ++i) {
    const float scale = stored.number(1, i >> 12);
    EXPECT_EQ(found[i], f8_e4m3_to_f32(f32_to_f8_e4m3(values[i] / scale)) * scale) << i;
  }
}

TEST(Quantized, IsReadInAnyPieces) {
  for (const Quantization kind : kQuantizations) {
    Stored stored(kind, 7, 33);
    std::vector<float> values = matrix();
    values.resize(231);
    stored.fill(values);
    const std::vector<float> whole = stored.read();
    const QuantizedMatrix matrix(kind, 7, 33, stored.parts);
    for (const int64_t count : {1, 5, 40, 100}) {
      for (int64_t begin = 0; begin + count <= 231; begin += 13) {
        std::vector<float> piece(static_cast<size_t>(count));
        matrix.read(begin, count, piece.data());
        EXPECT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + begin)) << begin << " " << count;
      }
    }
  }
}

TEST(Quantized, ZerosStayZeros) {
  for (const Quantization kind : kQuantizations) {
    Stored stored(kind, 4, 64);
    std::vector<float> values(256);
    std::fill_n(values.begin(), 64, 0.7F);
    stored.fill(values);
    const std::vector<float> found = stored.read();
    EXPECT_TRUE(std::all_of(found.begin() + 64, found.end(), [](float value) { return value == 0; }))
        << quantization_name(kind);
  }
}

/// More elements than one piece holds: what lies in the second is as near as what lies in the first.
TEST(Quantized, SeveralPiecesAreOneMatrix) {
  constexpr int64_t kMany = 1100, kWidth = 1000;
  std::vector<float> values(kMany * kWidth);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i % 9973));
  for (const auto& [kind, most] : {std::pair(Quantization::nf4, 0.17F), std::pair(Quantization::int8, 0.004F),
                                   std::pair(Quantization::fp8, 0.0313F)}) {
    Stored stored(kind, kMany, kWidth);
    stored.fill(values);
    const std::vector<float> found = stored.read();
    float worst = 0;
    for (size_t i = 0; i < values.size(); ++i) worst = std::max(worst, std::abs(found[i] - values[i]));
    EXPECT_LT(worst, most) << quantization_name(kind);
  }
}

}  // namespace
}  // namespace hearth::ops
