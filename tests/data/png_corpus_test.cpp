#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <iostream>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "data/images/image.h"
#include "shared_data.h"

namespace hearth::data {
namespace {

/// Expected CRC-32 of the decoded pixels by file name, from image-rs's normalize_to_color8 results.
std::map<std::string, uint32_t> expected_checksums(const fs::path& list) {
  std::map<std::string, uint32_t> expected;
  std::ifstream in(list);
  std::string line;
  while (std::getline(in, line)) {
    const size_t colon = line.rfind(": ");
    // Files that the decoder of the list refuses have its error there.
    if (line.find_first_not_of("0123456789", colon + 2) != std::string::npos) continue;
    expected[fs::path(line.substr(0, colon)).filename().string()] =
        static_cast<uint32_t>(std::stoul(line.substr(colon + 2)));
  }
  return expected;
}

struct Tally {
  int right = 0;
  int refused = 0;
};

void check_file(const fs::path& path, const std::map<std::string, uint32_t>& expected, Tally& tally) {
  const std::string name = path.filename().string();
  const MappedFile file(path);
  try {
    const Image image = decode_image(file.bytes(), 0, path.string(), Exif::ignore);
    EXPECT_NE(name[0], 'x') << path << " must be refused";
    const auto at = expected.find(name);
    if (at == expected.end()) return;
    const uint32_t sum =
        static_cast<uint32_t>(crc32(0, image.pixels.data(), static_cast<unsigned>(image.pixels.size())));
    EXPECT_EQ(sum, at->second) << path;
    ++tally.right;
  } catch (const UserError& error) {
    EXPECT_TRUE(std::string_view(error.what()).starts_with(path.string())) << error.what();
    ++tally.refused;
    if (name[0] != 'x') std::cout << "refused: " << error.what() << "\n";
  }
}

TEST(PngCorpus, RightPixelsOrACleanRefusal) {
  HEARTH_SHARED_DATA(root, "corpus_png");
  const auto expected = expected_checksums(root / "results.txt");
  Tally tally;
  for (const auto& entry : fs::recursive_directory_iterator(root))
    if (entry.path().extension() == ".png") check_file(entry.path(), expected, tally);
  // All 22 that are named x* and two whose only fault is the checksum of an unimportant chunk.
  EXPECT_EQ(tally.right, 171);
  EXPECT_EQ(tally.refused, 24);
}

}  // namespace
}  // namespace hearth::data
