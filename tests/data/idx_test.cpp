#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "data/dataset.h"
#include "data/idx.h"
#include "files.h"
#include "shared_data.h"

namespace hearth::data {
namespace {

using testing::HasSubstr;

constexpr const char* kImages = "train-images-idx3-ubyte";
constexpr const char* kLabels = "train-labels-idx1-ubyte";
constexpr std::string_view kPixels = "abcdefghijkl";  // three images of 2 x 2

void put_dataset(const fs::path& folder, const char* ending, std::string (*pack)(std::string_view)) {
  put_file(folder / (std::string(kImages) + ending), pack(idx_file({3, 2, 2}, kPixels)));
  put_file(folder / (std::string(kLabels) + ending), pack(idx_file({3}, "\1\2\3")));
}

void expect_images(const Dataset& dataset) {
  ASSERT_EQ(dataset.size(), 3);
  EXPECT_EQ(dataset.image_size(), 2);
  EXPECT_EQ(dataset.channels(), 1);
  std::array<uint8_t, 4> pixels{};
  int32_t label = 0;
  dataset.read(1, pixels.data(), &label);
  EXPECT_EQ(std::string(pixels.begin(), pixels.end()), "efgh");
  EXPECT_EQ(label, 2);
}

TEST(Idx, PlainAndCompressed) {
  const TemporaryFolder plain;
  put_dataset(plain.path(), "", [](std::string_view text) { return std::string(text); });
  expect_images(*open_dataset({.kind = "idx", .path = plain.path()}));
  const TemporaryFolder packed;
  put_dataset(packed.path(), ".gz", gzip);
  expect_images(*open_dataset({.kind = "idx", .path = packed.path()}));
}

TEST(Idx, RefusesWhatLies) {
  const auto parse = [](const std::string& file) {
    return error_of([&] { parse_idx(bytes_of(file), "f"); });
  };
  const std::string good = idx_file({3, 2, 2}, kPixels);
  EXPECT_EQ(parse(good), "no error");
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_NE(parse(good.substr(0, size)), "no error") << size;
  EXPECT_EQ(parse(good + "x"), "f: expected 12 bytes after the header, found 13");
  EXPECT_EQ(parse(idx_file({4, 2, 2}, kPixels)), "f: expected 16 bytes after the header, found 12");
  EXPECT_THAT(parse(idx_file({0xffffffff, 0xffffffff, 0xffffffff}, kPixels)), HasSubstr("fit memory"));
  EXPECT_THAT(parse(std::string("\0\0\x0d\3", 4) + good.substr(4)), HasSubstr("magic number"));
}

TEST(Idx, RefusesDamagedGzip) {
  const auto inflate = [](const std::string& file) {
    return error_of([&] { inflate_idx(bytes_of(file), "f"); });
  };
  const std::string good = gzip(idx_file({3, 2, 2}, kPixels));
  EXPECT_EQ(inflate(good), "no error");
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_NE(inflate(good.substr(0, size)), "no error") << size;
  EXPECT_NE(inflate(good + "x"), "no error");
  std::string wrong = good;
  wrong[wrong.size() - 6] = static_cast<char>(wrong[wrong.size() - 6] ^ 1);
  EXPECT_THAT(inflate(wrong), HasSubstr("damaged"));
}

TEST(Idx, AGzipBombIsStoppedByItsHeader) {
  const auto inflate = [](const std::string& file) {
    return error_of([&] { inflate_idx(bytes_of(file), "f"); });
  };
  const std::string zeros(4 << 20, '\0');
  EXPECT_EQ(inflate(gzip(idx_file({3, 2, 2}, zeros))), "f: expected 12 bytes after the header, found more");
  EXPECT_THAT(inflate(gzip(idx_file({4000000000, 1000, 1000}, zeros))),
              HasSubstr("compressed bytes can hold"));
}

TEST(Idx, RefusesFilesThatDoNotFitTogether) {
  const TemporaryFolder folder;
  const auto open = [&] { return error_of([&] { open_dataset({.kind = "idx", .path = folder.path()}); }); };
  EXPECT_THAT(open(), HasSubstr("expected the file train-images-idx3-ubyte"));
  put_file(folder.path() / kImages, idx_file({3, 2, 2}, kPixels));
  put_file(folder.path() / kLabels, idx_file({2}, "\1\2"));
  EXPECT_THAT(open(), HasSubstr("expected 3 labels, one for each image, found 2"));
  put_file(folder.path() / kImages, idx_file({3, 4}, kPixels));
  EXPECT_THAT(open(), HasSubstr("expected square images"));
  EXPECT_EQ(check_dataset({.kind = "idx", .path = folder.path()}).faults.size(), 1U);
}

TEST(Idx, RealMnist) {
  HEARTH_SHARED_DATA(root, "mnist");
  const auto train = open_dataset({.kind = "idx", .path = root, .split = "train"});
  const auto test = open_dataset({.kind = "idx", .path = root, .split = "test"});
  EXPECT_EQ(train->size(), 60000);
  EXPECT_EQ(test->image_size(), 28);
  const DatasetCheck check = check_dataset(*test);
  EXPECT_EQ(check.per_class, (std::vector<int64_t>{980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009}));
}

/// `count` records whose bytes are 0, 1, 2, ... after the label.
std::string cifar_file(int count, char label) {
  std::string file;
  for (int i = 0; i < count; ++i) {
    file.push_back(label);
    for (int k = 0; k < 3072; ++k) file.push_back(static_cast<char>(k / 1024 * 100 + k % 50));
  }
  return file;
}

TEST(Cifar10, PlanesBecomePixels) {
  const TemporaryFolder folder;
  for (int i = 1; i <= 5; ++i)
    put_file(folder.path() / ("data_batch_" + std::to_string(i) + ".bin"),
             cifar_file(2, static_cast<char>(i)));
  const auto dataset = open_dataset({.kind = "cifar10", .path = folder.path()});
  ASSERT_EQ(dataset->size(), 10);
  std::vector<uint8_t> pixels(3072);
  int32_t label = 0;
  dataset->read(7, pixels.data(), &label);
  EXPECT_EQ(label, 4);
  EXPECT_EQ((std::array{pixels[3], pixels[4], pixels[5]}), (std::array<uint8_t, 3>{1, 125, 249}));
}

TEST(Cifar10, RefusesDamage) {
  const TemporaryFolder folder;
  const DatasetOptions options{.kind = "cifar10", .path = folder.path(), .split = "test"};
  EXPECT_THAT(error_of([&] { open_dataset(options); }), HasSubstr("test_batch.bin"));
  put_file(folder.path() / "test_batch.bin", cifar_file(2, 1).substr(1));
  EXPECT_THAT(error_of([&] { open_dataset(options); }), HasSubstr("whole records of 3073 bytes"));
  put_file(folder.path() / "test_batch.bin", cifar_file(1, 1) + cifar_file(1, 10));
  const DatasetCheck check = check_dataset(options);
  ASSERT_EQ(check.faults.size(), 1U);
  EXPECT_THAT(check.faults[0], HasSubstr("expected a label from 0 to 9 in record 1, found 10"));
  EXPECT_EQ(check.per_class[1], 1);
}

}  // namespace
}  // namespace hearth::data
