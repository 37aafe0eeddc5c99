#include "io/gguf_file.h"

#include <gmock/gmock.h>

#include <array>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "io/gguf.h"
#include "temporary_folder.h"

namespace hearth::io {
namespace {

using testing::HasSubstr;

/// Builder of GGUF files, also of damaged ones.
class Bytes {
 public:
  explicit Bytes(uint64_t num_tensors = 0, uint64_t num_keys = 0, uint32_t version = 3) {
    text("GGUF").number(version).number(num_tensors).number(num_keys);
  }
  Bytes& text(std::string_view raw) {
    bytes_ += raw;
    return *this;
  }
  template <typename T>
  Bytes& number(T value) {
    std::array<char, sizeof(T)> raw;
    std::memcpy(raw.data(), &value, sizeof(T));
    bytes_.append(raw.data(), raw.size());
    return *this;
  }
  Bytes& string(std::string_view value) { return number<uint64_t>(value.size()).text(value); }
  /// Adds the header of a tensor.
  Bytes& tensor(std::string_view name, std::vector<uint64_t> axes, uint32_t type, uint64_t offset) {
    string(name).number(static_cast<uint32_t>(axes.size()));
    for (const uint64_t axis : axes) number(axis);
    return number(type).number(offset);
  }
  Bytes& pad() {
    bytes_.resize((bytes_.size() + 31) / 32 * 32);
    return *this;
  }
  GgufContents parse() const { return parse_gguf(std::as_bytes(std::span(bytes_)), "m.gguf"); }
  std::string error() const {
    try {
      parse();
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }

 private:
  std::string bytes_;
};

TEST(GgufFile, HasWhatWasWritten) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "m.gguf";
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  std::vector<float> row(32);
  std::iota(row.begin(), row.end(), 1.0F);
  std::vector<std::byte> block(34);
  quantize_blocks(BlockFormat::q8_0, row, block.data());
  write_gguf(path,
             {{"a.flag", true},
              {"a.count", uint32_t{7}},
              {"a.eps", 1e-6F},
              {"a.name", std::string("x")},
              {"a.ids", std::vector<int32_t>{-1, 5}},
              {"a.scores", std::vector<float>{0.5F}},
              {"a.tokens", std::vector<std::string>{"p", ""}}},
             {{"f", GgufType::f32, {2, 3}}, {"q", GgufType::q8_0, {1, 32}}}, [&](size_t i) {
               return i == 0 ? std::as_bytes(std::span(values)) : std::span<const std::byte>(block);
             });
  const GgufFile file(path);
  EXPECT_TRUE(file.at<bool>("a.flag"));
  EXPECT_EQ(file.at<int64_t>("a.count"), 7);
  EXPECT_EQ(file.at<double>("a.eps"), 1e-6);
  EXPECT_EQ(file.at<std::string>("a.name"), "x");
  EXPECT_EQ(file.at<std::vector<int64_t>>("a.ids"), (std::vector<int64_t>{-1, 5}));
  EXPECT_EQ(file.at<std::vector<double>>("a.scores"), std::vector<double>{0.5});
  EXPECT_EQ(file.at<std::vector<std::string>>("a.tokens"), (std::vector<std::string>{"p", ""}));
  EXPECT_EQ(file.find<bool>("a.none"), nullptr);
  EXPECT_THROW(file.at<bool>("a.none"), UserError);
  EXPECT_THROW(file.find<bool>("a.count"), UserError);

  const TensorView &f = file.tensors()[0], &q = file.tensors()[1];
  EXPECT_EQ(f.name, "f");
  EXPECT_EQ(f.shape, Shape({2, 3}));
  EXPECT_EQ(f.dtype, DType::f32);
  EXPECT_EQ(f.decoder, nullptr);
  EXPECT_EQ(std::memcmp(f.bytes.data(), values.data(), f.bytes.size()), 0);
  EXPECT_EQ(q.dtype, DType::bf16);
  std::vector<float> part(5);
  q.decoder->decode(q, 7, part);
  for (size_t i = 0; i < part.size(); ++i) EXPECT_NEAR(part[i], row[i + 7], 0.13) << i;
}

TEST(GgufFile, DequantizesBlocksOfEachLayout) {
  // Scale 2, then per element the level of its nibble: 8 is 0 in Q4_0; Q4_1 adds the offset 0.5.
  Bytes four(2);
  four.tensor("a", {32}, 2, 0).tensor("b", {32}, 3, 32).pad();
  four.number<uint16_t>(0x4000);
  for (int i = 0; i < 16; ++i) four.number(static_cast<uint8_t>(i | (15 - i) << 4));
  four.pad().number<uint16_t>(0x4000).number<uint16_t>(0x3800);
  for (int i = 0; i < 16; ++i) four.number(static_cast<uint8_t>(i | (15 - i) << 4));
  const GgufContents read = four.parse();
  std::vector<float> a(32), b(32);
  read.tensors[0].decoder->decode(read.tensors[0], 0, a);
  read.tensors[1].decoder->decode(read.tensors[1], 0, b);
  for (int i = 0; i < 32; ++i) {
    const int level = i < 16 ? i : 31 - i;
    EXPECT_EQ(a[static_cast<size_t>(i)], static_cast<float>(2 * (level - 8))) << i;
    EXPECT_EQ(b[static_cast<size_t>(i)], 2.0F * static_cast<float>(level) + 0.5F) << i;
  }
}

TEST(GgufFile, PartsOfBlocksEqualTheirRow) {
  for (const auto& [type, block_bytes] : {std::pair(14U, 210), {12U, 144}, {6U, 22}}) {
    Bytes file(1);
    file.tensor("t", {512}, type, 0).pad();
    for (int i = 0; i < block_bytes * 512 / (type == 6 ? 32 : 256); ++i)
      file.number(static_cast<uint8_t>(i * 37 % 113));
    const GgufContents read = file.parse();
    const TensorView& view = read.tensors[0];
    std::vector<float> whole(512), part(300);
    view.decoder->decode(view, 0, whole);
    view.decoder->decode(view, 131, part);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 131)) << type;
  }
}

TEST(GgufFile, HostileCountsAreRefusedBeforeMemoryIsReserved) {
  constexpr uint64_t kHuge = uint64_t{1} << 62;
  EXPECT_THAT(Bytes(kHuge).error(), HasSubstr("more tensors or metadata keys"));
  EXPECT_THAT(Bytes(0, kHuge).error(), HasSubstr("more tensors or metadata keys"));
  EXPECT_THAT(Bytes(0, 1).number(kHuge).text("01234567").error(), HasSubstr("the header ends too early"));
  const auto array = [&](uint32_t type) {
    return Bytes(0, 1).string("k").number<uint32_t>(9).number(type).number(kHuge).text("0123").error();
  };
  for (const uint32_t type : {0U, 5U, 6U, 8U, 12U})
    EXPECT_THAT(array(type), HasSubstr("larger than the file")) << type;
  for (const uint32_t type : {9U, 13U, 77U}) EXPECT_THAT(array(type), HasSubstr("elements of type")) << type;
  EXPECT_THAT(Bytes(0, 1).string("k").number<uint32_t>(13).text("01234567").error(),
              HasSubstr("unknown type"));
}

TEST(GgufFile, TensorsOutsideTheFileAreRefused) {
  constexpr uint64_t kHuge = uint64_t{1} << 40;
  const auto error = [](std::vector<uint64_t> axes, uint32_t type, uint64_t offset) {
    return Bytes(1).tensor("t", std::move(axes), type, offset).pad().text(std::string(64, 'x')).error();
  };
  EXPECT_EQ(error({16}, 0, 0), "no error");
  EXPECT_THAT(error({17}, 0, 0), HasSubstr("outside the file"));
  EXPECT_THAT(error({8}, 0, 64), HasSubstr("outside the file"));
  EXPECT_THAT(error({8}, 0, 4), HasSubstr("outside the file"));
  EXPECT_THAT(error({8}, 0, ~uint64_t{31}), HasSubstr("outside the file"));
  EXPECT_THAT(error({kHuge, 1}, 0, 0), HasSubstr("is larger than the file"));
  EXPECT_THAT(error({kHuge, kHuge}, 0, 0), HasSubstr("m.gguf: tensor 't': "));
  EXPECT_THAT(error({0}, 0, 0), HasSubstr("an axis of length 0"));
  EXPECT_THAT(error({}, 0, 0), HasSubstr("has 0 axes"));
  EXPECT_THAT(error({1, 1, 1, 1, 1}, 0, 0), HasSubstr("has 5 axes"));
  EXPECT_THAT(error({33}, 2, 0), HasSubstr("rows of 33 elements, but Q4_0 has blocks of 32"));
}

TEST(GgufFile, UnsupportedFilesAreRefusedByName) {
  EXPECT_THAT(Bytes(0, 0, 1).error(), HasSubstr("version 1 is not supported"));
  EXPECT_THAT(Bytes(0, 0, 3U << 24).error(), HasSubstr("big-endian"));
  EXPECT_THAT(Bytes(1).tensor("t", {32}, 23, 0).error(), HasSubstr("'t' has the type IQ4_XS"));
  EXPECT_THAT(Bytes(1).tensor("t", {32}, 99, 0).error(), HasSubstr("'t' has the type 99"));
  EXPECT_THAT(Bytes(0, 1).string("split.count").number<uint32_t>(2).number<uint16_t>(3).error(),
              HasSubstr("one of 3 parts"));
  EXPECT_THAT(Bytes(0, 1).string("general.alignment").number<uint32_t>(4).number<uint32_t>(24).error(),
              HasSubstr("general.alignment is 24"));
  Bytes twice(0, 2);
  for (int i = 0; i < 2; ++i) twice.string("k").number<uint32_t>(0).number<uint8_t>(1);
  EXPECT_THAT(twice.error(), HasSubstr("'k' occurs twice"));
  Bytes same(2);
  for (int i = 0; i < 2; ++i) same.tensor("t", {1}, 0, 0);
  EXPECT_THAT(same.pad().text("0123").error(), HasSubstr("two tensors are named 't'"));
}

}  // namespace
}  // namespace hearth::io
