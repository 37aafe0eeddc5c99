#include "hub/quantized_weights.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/run_files.h"
#include "hub/floats.h"
#include "ops/update/dynamic_map.h"
#include "temporary_folder.h"

namespace hearth::hub {
namespace {

using testing::HasSubstr;
using Names = std::vector<std::string>;

/// A folder with tensors and a quantization_config.
class Quantized : public testing::Test {
 protected:
  template <typename T>
  void add(const std::string& name, DType dtype, Shape shape, const std::vector<T>& values) {
    std::vector<std::byte>& bytes = memory_.emplace_back(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    tensors_.push_back({.name = name, .dtype = dtype, .shape = shape, .bytes = bytes});
  }
  io::WeightFiles open(const std::string& settings) {
    std::vector<io::TensorView> views = tensors_;
    for (size_t i = 0; i < views.size(); ++i) views[i].bytes = memory_[i];
    io::write_safetensors(folder_.path() / kModelWeights, views);
    write_file_atomically(folder_.path() / kModelConfig,
                          fmt::format(R"({{"quantization_config": {}}})", settings));
    io::WeightFiles files(folder_.path());
    show_dequantized(files, folder_.path());
    return files;
  }
  std::vector<float> values(const std::string& settings) {
    return floats_of(*open(settings).find("m.weight"));
  }
  std::string error(const std::string& settings) {
    try {
      open(settings);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }
  void replace(const std::string& name, DType dtype, Shape shape) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].name != name) continue;
      tensors_[i].dtype = dtype;
      tensors_[i].shape = shape;
      memory_[i].assign(static_cast<size_t>(shape.num_elements() * dtype_bytes(dtype)), std::byte{0});
    }
  }
  void clear() {
    tensors_.clear();
    memory_.clear();
  }

  TemporaryFolder folder_;
  std::vector<io::TensorView> tensors_;
  std::vector<std::vector<std::byte>> memory_;
};

constexpr const char* kFp8 = R"({"quant_method": "fp8"})";

TEST_F(Quantized, Fp8HasScalesOfBlocks) {
  const int64_t rows = 130, columns = 260;
  std::vector<uint8_t> codes(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i % 100);
  add("m.weight", DType::f8_e4m3, {rows, columns}, codes);
  add<float>("m.weight_scale_inv", DType::f32, {2, 3}, {1, 2, 3, 4, 5, 6});
  add<float>("m.input_scale", DType::f32, {}, {1});
  add<float>("n.weight", DType::f32, {2}, {1, 2});
  const io::WeightFiles files = open(R"({"quant_method": "fp8", "weight_block_size": [128, 128]})");
  EXPECT_EQ(files.names(), (Names{"m.weight", "n.weight"}));
  const std::vector<float> found = floats_of(*files.find("m.weight"));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const auto i = static_cast<size_t>(row * columns + column);
      const auto scale = static_cast<float>(1 + row / 128 * 3 + column / 128);
      ASSERT_EQ(found[i], f8_e4m3_to_f32(codes[i]) * scale) << row << " " << column;
    }
  }
  EXPECT_EQ(floats_of(*files.find("m.weight"), 300, 5),
            std::vector<float>(found.begin() + 300, found.begin() + 305));
}

TEST_F(Quantized, ScalesThatDoNotFitAreRefused) {
  add("m.weight", DType::f8_e4m3, {4, 6}, std::vector<uint8_t>(24, 0x38));
  add<float>("m.weight_scale", DType::f32, {4, 1}, {1, 2, 3, 4});
  EXPECT_EQ(values(kFp8)[12], 3);
  for (const Shape& shape :
       {Shape{2}, Shape{3}, Shape{5}, Shape{4, 4}, Shape{2, 7}, Shape{1, 1, 1}, Shape{0}}) {
    replace("m.weight_scale", DType::f32, shape);
    EXPECT_THAT(error(kFp8), HasSubstr("'m': expected its scales")) << to_string(shape);
  }
  EXPECT_THAT(error(R"({"quant_method": "fp8", "weight_block_size": [128]})"), HasSubstr("block size [128]"));
  replace("m.weight_scale", DType::i32, {4});
  EXPECT_THAT(error(kFp8), HasSubstr("'m': expected its scales"));
  tensors_.pop_back();
  memory_.pop_back();
  EXPECT_THAT(error(kFp8), HasSubstr("'m.weight_scale_inv' is missing"));
}

TEST_F(Quantized, GptqHasZeroPointsAndGroupsInAnyOrder) {
  // A matrix of 8 rows and 8 columns: column c has the code (c + r) % 16 in row r.
  std::vector<uint32_t> codes(8);
  for (uint32_t row = 0; row < 8; ++row) {
    for (uint32_t column = 0; column < 8; ++column) codes[row] |= (column + row) % 16 << (4 * column);
  }
  add("m.qweight", DType::i32, {1, 8}, codes);
  add<uint32_t>("m.qzeros", DType::i32, {2, 1}, {0x77777777U, 0xFFFFFFFFU});
  add<float>("m.scales", DType::f32, {2, 8}, {1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2});
  add<int32_t>("m.g_idx", DType::i32, {8}, {0, 1, 0, 1, 1, 0, 1, 0});
  const std::string settings = R"({"quant_method": "gptq", "bits": 4)";
  const std::vector<float> first = values(settings + "}");
  const std::vector<float> second = values(settings + R"(, "checkpoint_format": "gptq_v2"})");
  constexpr bool kSecondGroup[] = {false, true, false, true, true, false, true, false};
  for (size_t row = 0; row < 8; ++row) {
    for (size_t column = 0; column < 8; ++column) {
      const auto code = static_cast<float>((column + row) % 16);
      // The stored 15 is the zero point 0 of the original format.
      EXPECT_EQ(first[row * 8 + column], kSecondGroup[column] ? 2 * code : code - 8);
      EXPECT_EQ(second[row * 8 + column], kSecondGroup[column] ? 2 * (code - 15) : code - 7);
    }
  }
  replace("m.qzeros", DType::i32, {3, 1});
  EXPECT_THAT(error(settings + "}"), HasSubstr("'m': expected its qzeros to be [2, 1]"));
  replace("m.qzeros", DType::i32, {2, 1});
  EXPECT_THAT(error(R"({"quant_method": "gptq", "bits": 9})"), HasSubstr("9 bits"));
  replace("m.g_idx", DType::i32, {7});
  EXPECT_THAT(error(settings + "}"), HasSubstr("group indices"));
  clear();
  add("m.qweight", DType::i32, {1, 8}, codes);
  add<uint32_t>("m.qzeros", DType::i32, {2, 1}, {0, 0});
  add<float>("m.scales", DType::f32, {2, 8}, std::vector<float>(16, 1));
  add<int32_t>("m.g_idx", DType::i32, {8}, {0, 1, 0, 1, 1, 0, 2, 0});
  EXPECT_THAT(error(settings + "}"), HasSubstr("a group index is 2, but there are 2 groups"));
}

TEST_F(Quantized, PackedCodesStraddleWords) {
  // 32 codes of 3 bits in 3 words: code i is i % 8, whose value is i % 8 - 4.
  std::vector<uint32_t> words(3);
  for (uint32_t i = 0; i < 32; ++i) {
    for (uint32_t bit = 0; bit < 3; ++bit) {
      if ((i % 8 >> bit & 1) != 0) words[(3 * i + bit) / 32] |= 1U << ((3 * i + bit) % 32);
    }
  }
  add("m.weight_packed", DType::i32, {1, 3}, words);
  add<int64_t>("m.weight_shape", DType::i64, {2}, {1, 32});
  add<float>("m.weight_scale", DType::f32, {1, 2}, {1, 3});
  const std::string settings =
      R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
"config_groups": {"group_0": {"weights": {"num_bits": 3}}}})";
  const std::vector<float> found = values(settings);
  for (size_t i = 0; i < 32; ++i)
    EXPECT_EQ(found[i], (static_cast<float>(i % 8) - 4) * (i < 16 ? 1 : 3)) << i;
  replace("m.weight_shape", DType::i64, {2});
  EXPECT_THAT(error(settings), HasSubstr("'m.weight_packed' has no elements"));
}

TEST_F(Quantized, AwqInterleavesRows) {
  // One column; row r has the code r. The positions in a word are those of rows 0, 2, 4, 6, 1, 3, 5, 7.
  add<uint32_t>("m.qweight", DType::i32, {1, 1}, {0x75316420U});
  add<uint32_t>("m.qzeros", DType::i32, {1, 1}, {0x11111111U});
  add<float>("m.scales", DType::f32, {1, 8}, {1, 1, 1, 1, 1, 1, 1, 2});
  EXPECT_EQ(values(R"({"quant_method": "awq", "bits": 4, "version": "GEMM"})"),
            (std::vector<float>{-1, 0, 1, 2, 3, 4, 5, 12}));
  EXPECT_THAT(error(R"({"quant_method": "awq", "version": "gemv"})"),
              HasSubstr("'gemv', which is not supported"));
}

TEST_F(Quantized, BitsandbytesPartsAreCopiedAsStored) {
  const auto& map = ops::dynamic_map(true);
  std::vector<uint8_t> codes(64), absmax = {200, 90};
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 5);
  add("m.weight", DType::u8, {64, 1}, codes);
  add("m.weight.absmax", DType::u8, {2}, absmax);
  add("m.weight.quant_map", DType::f32, {16},
      std::vector(ops::kNormalFloat4.begin(), ops::kNormalFloat4.end()));
  add("m.weight.nested_quant_map", DType::f32, {256}, std::vector(map.begin(), map.end()));
  add<float>("m.weight.nested_absmax", DType::f32, {1}, {0.5F});
  const std::string state = R"({"quant_type": "nf4", "blocksize": 64, "shape": [4, 32], "dtype": "bfloat16",
"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.75})";
  add("m.weight.quant_state.bitsandbytes__nf4", DType::u8, {static_cast<int64_t>(state.size())},
      std::vector<char>(state.begin(), state.end()));
  const std::string settings = R"({"quant_method": "bitsandbytes"})";
  const io::WeightFiles files = open(settings);
  const io::TensorView& view = *files.find("m.weight");
  EXPECT_EQ(files.tensors().size(), 1U);
  EXPECT_EQ(view.shape, Shape({4, 32}));

  std::vector<uint8_t> stored(64), stored_absmax(2);
  float nested = 0, offset = 0;
  void* const parts[] = {stored.data(), stored_absmax.data(), &nested, &offset};
  const auto* quantized = dynamic_cast<const StoredQuantization*>(view.decoder.get());
  ASSERT_NE(quantized, nullptr);
  EXPECT_FALSE(quantized->copy_parts(view, ops::Quantization::int8, parts));
  EXPECT_TRUE(quantized->copy_parts(view, ops::Quantization::nf4, parts));
  EXPECT_EQ(stored, codes);
  EXPECT_EQ(stored_absmax, absmax);
  EXPECT_EQ(nested, 0.5F);
  EXPECT_EQ(offset, 0.75F);
  std::vector<float> wanted(128);
  ops::QuantizedMatrix(ops::Quantization::nf4, 4, 32, parts).read(0, 128, wanted.data());
  EXPECT_EQ(floats_of(view), wanted);
  EXPECT_EQ(floats_of(view, 61, 9), std::vector<float>(wanted.begin() + 61, wanted.begin() + 70));

  replace("m.weight.absmax", DType::u8, {3});
  EXPECT_THAT(error(settings), HasSubstr("does not have the size of [4, 32]"));
}

TEST_F(Quantized, Int8RowsAreCopiedAsStored) {
  add<int8_t>("m.weight", DType::i8, {2, 3}, {127, -127, 5, 1, 0, -3});
  add<float>("m.SCB", DType::f32, {2}, {0.5F, 2});
  const io::WeightFiles files = open(R"({"quant_method": "bitsandbytes"})");
  const io::TensorView& view = *files.find("m.weight");
  std::vector<int8_t> codes(6);
  std::vector<float> scales(2), wanted(6);
  void* const parts[] = {codes.data(), scales.data()};
  EXPECT_TRUE(dynamic_cast<const StoredQuantization&>(*view.decoder)
                  .copy_parts(view, ops::Quantization::int8, parts));
  EXPECT_EQ(codes, (std::vector<int8_t>{127, -127, 5, 1, 0, -3}));
  EXPECT_EQ(scales, (std::vector<float>{0.5F, 2}));
  ops::QuantizedMatrix(ops::Quantization::int8, 2, 3, parts).read(0, 6, wanted.data());
  EXPECT_EQ(floats_of(view), wanted);
}

TEST_F(Quantized, OtherFormatsAreRefusedByName) {
  add<float>("m.weight", DType::f32, {1}, {1});
  EXPECT_THAT(error(R"({"quant_method": "gptq", "checkpoint_format": "marlin"})"), HasSubstr("'marlin'"));
  EXPECT_THAT(error(R"({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"})"),
              HasSubstr("'nvfp4-pack-quantized'"));
  EXPECT_THAT(
      error(R"({"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-24-bitmask"}})"),
      HasSubstr("sparse-24-bitmask"));
  EXPECT_THAT(error(R"({"quant_method": "gptq"})"), HasSubstr("by gptq, but no tensor is quantized"));
}

}  // namespace
}  // namespace hearth::hub
