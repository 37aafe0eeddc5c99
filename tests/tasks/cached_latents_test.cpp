#include "tasks/diffuse/cached_latents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "base/error.h"
#include "npz_writer.h"
#include "tasks/diffuse/kohya_latents.h"
#include "temporary_folder.h"

namespace hearth::tasks {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <typename Call>
std::string sentence_of(Call&& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

void put_bytes(const fs::path& path, std::string_view bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

/// A image of one color.
void put_plain(const fs::path& path, Extent size, uint8_t value) {
  data::Image image{.height = size.height, .width = size.width, .channels = 3};
  image.pixels.assign(static_cast<size_t>(size.num_pixels() * 3), value);
  put_bytes(path, encode_png(image));
}

constexpr LatentFormat kFormat{
    .channels = 2, .factor = 8, .patch = 2, .num_tokens = 3, .text_width = 2, .pooled_width = 1};

class Cached : public testing::Test {
 protected:
  Cached() {
    put_plain(root() / "a.png", 32, 10);
    put_plain(root() / "2_red house/b.png", {64, 16}, 20);
    put_plain(root() / "2_red house/c.png", 48, 30);
    put_bytes(root() / "a.txt", "one");
    put_bytes(root() / "2_red house/c.txt", "one");
  }
  fs::path root() const { return folder_.path() / "pictures"; }
  CachedLatents open(const LatentFormat& format = kFormat, const EncoderHashes& hashes = {1, 2}) const {
    return CachedLatents(data::read_captions(root()), data::Buckets(32, 16), format, hashes,
                         io::LatentCache(folder_.path() / "cache"));
  }
  /// Has images "coded" as the value of their first pixel, and captions as their length; stops with a
  /// failure after `most` of them.
  void fill(const CachedLatents& latents, int64_t most = 100) {
    const auto count = [&](int64_t number) {
      done_.push_back(number);
      if (number == most) user_error("no current");
    };
    latents.encode_latents(
        [&](const data::Image& image) {
          sizes_.push_back(image.size());
          return std::vector<float>(static_cast<size_t>(image.size().num_pixels() / 64 * 2), image.pixels[0]);
        },
        count);
    latents.encode_text(
        [&](std::span<const std::string> captions, const TakeText& take) {
          for (size_t i = 0; i < captions.size(); ++i) {
            captions_.push_back(captions[i]);
            const auto length = static_cast<float>(captions[i].size());
            take(i, std::vector<float>(6, length), std::vector<float>{-length});
          }
        },
        count);
  }

  const TemporaryFolder folder_;
  std::vector<int64_t> done_;
  std::vector<Extent> sizes_;
  std::vector<std::string> captions_;
};

TEST_F(Cached, EachImageAndCaptionIsCodedOnce) {
  const CachedLatents latents = open();
  EXPECT_EQ(latents.num_missing_images(), 3);
  EXPECT_EQ(latents.num_missing_captions(), 3);
  fill(latents);
  EXPECT_THAT(done_, ElementsAre(1, 2, 3, 1, 2, 3));
  EXPECT_THAT(sizes_, ElementsAre(Extent(64, 16), Extent(32), Extent(32)));
  EXPECT_THAT(captions_, ElementsAre("", "one", "red house"));
  EXPECT_EQ(latents.num_missing_images() + latents.num_missing_captions(), 0);
  fill(open());
  EXPECT_EQ(done_.size(), 6U);
  // b and c come twice.
  ASSERT_EQ(latents.size(), 5);
  std::vector<float> one(2 * 4 * 4), text(3 * 2), pooled(1), seen, pooled_seen;
  for (int64_t i = 0; i < 5; ++i) {
    const Extent size = latents.extent(i);
    EXPECT_EQ(size, i < 2 ? Extent(8, 2) : Extent(4));
    EXPECT_EQ(latents.is_repeat(i), i == 1 || i == 3) << i;
    latents.read(i, 0, std::span(one).first(static_cast<size_t>(2 * size.num_pixels())));
    seen.push_back(one[0]);
    latents.text(i, text, pooled);
    EXPECT_EQ(text[5], -pooled[0]);
    pooled_seen.push_back(pooled[0]);
  }
  EXPECT_THAT(seen, ElementsAre(20, 20, 30, 30, 10));
  EXPECT_THAT(pooled_seen, ElementsAre(-9, -9, -3, -3, -3));
  latents.text(-1, text, pooled);
  EXPECT_EQ(pooled[0], 0);
}

TEST_F(Cached, WhatWasMadeBeforeAnInterruptionStays) {
  EXPECT_EQ(sentence_of([&] { fill(open(), 2); }), "no current");
  EXPECT_EQ(open().num_missing_images(), 1);
  fill(open());
  EXPECT_EQ(sizes_.size(), 3U);
  EXPECT_EQ(open().num_missing_images() + open().num_missing_captions(), 0);
}

TEST_F(Cached, WhatChangedIsMadeAgain) {
  fill(open());
  put_plain(root() / "a.png", 32, 11);
  put_bytes(root() / "2_red house/b.txt", "new");
  EXPECT_EQ(open().num_missing_images(), 1);
  EXPECT_EQ(open().num_missing_captions(), 1);
  EXPECT_EQ(open(kFormat, {5, 2}).num_missing_images(), 3);
  EXPECT_EQ(open(kFormat, {5, 2}).num_missing_captions(), 1);
  EXPECT_EQ(open(kFormat, {1, 5}).num_missing_captions(), 3);
  LatentFormat wider = kFormat;
  wider.text_width = 4;
  wider.channels = 4;
  EXPECT_EQ(open(wider).num_missing_images(), 3);
  EXPECT_EQ(open(wider).num_missing_captions(), 3);
  std::vector<float> latents(32);
  EXPECT_THAT(sentence_of([&] { open(kFormat, {5, 2}).read(2, 0, latents); }), HasSubstr("of other weights"));
}

TEST_F(Cached, WithoutTextThereIsNone) {
  LatentFormat format = kFormat;
  format.num_tokens = format.text_width = format.pooled_width = 0;
  const CachedLatents latents = open(format);
  fill(latents);
  EXPECT_TRUE(captions_.empty());
  latents.text(0, {}, {});
}

class Kohya : public testing::Test {
 protected:
  void put_latents(const std::string& name, std::string_view array, Extent size, float value,
                   int64_t channels = 2) const {
    const std::vector<float> values(static_cast<size_t>(channels * size.num_pixels()), value);
    NpzWriter writer;
    writer.add(std::string(array),
               npy_floats(fmt::format("({}, {}, {})", channels, size.height, size.width), values));
    writer.add("crop_ltrb" + std::string(array.substr(7)), npy_file("<i8", "(1,)", "12345678"));
    writer.write(folder_.path() / name);
  }
  void put_text(const std::string& name, float value, int64_t tokens = 3, bool masked = false) const {
    NpzWriter writer;
    writer.add("l_pooled", npy_floats("(1,)", std::vector<float>{-value}));
    writer.add("t5_out", npy_floats(fmt::format("({}, 2)", tokens),
                                    std::vector<float>(static_cast<size_t>(2 * tokens), value)));
    writer.add("apply_t5_attn_mask", npy_file("|b1", "()", std::string(1, masked ? '\1' : '\0')));
    writer.write(folder_.path() / name);
  }
  KohyaLatents open(int64_t resolution = 64) const { return {folder_.path(), resolution, kFormat}; }
  std::string refusal(int64_t resolution = 64) const {
    std::string text = sentence_of([&] { open(resolution); });
    const std::string path = folder_.path().string();
    for (size_t at = text.find(path); at != text.npos; at = text.find(path)) text.erase(at, path.size());
    return text;
  }

  const TemporaryFolder folder_;
};

TEST_F(Kohya, FilesOfBothKindsAreReadWithoutImages) {
  put_latents("a_1x_0640x0480_flux.npz", "latents_6x8", {6, 8}, 1.5F);
  put_text("a_1x_flux_te.npz", 7);
  put_latents("3_dog/b_0100x0100_flux.npz", "latents", 4, 2.5F);
  put_text("3_dog/b_flux_te.npz", 8);
  put_bytes(folder_.path() / "a_1x.png", "no matter");
  const KohyaLatents latents = open();
  ASSERT_EQ(latents.size(), 4);
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(latents.is_repeat(i), i == 1 || i == 2) << i;
  EXPECT_EQ(latents.extent(0), Extent(4));
  EXPECT_EQ(latents.extent(3), Extent(6, 8));
  std::vector<float> one(2 * 6 * 8), text(6), pooled(1);
  latents.read(3, 0, one);
  latents.text(3, text, pooled);
  EXPECT_THAT(std::set<float>(one.begin(), one.end()), ElementsAre(1.5F));
  EXPECT_THAT(text, ElementsAre(7, 7, 7, 7, 7, 7));
  EXPECT_EQ(pooled[0], -7);
  latents.read(2, 0, std::span(one).first(32));
  EXPECT_EQ(one[31], 2.5F);
  EXPECT_THAT(sentence_of([&] { latents.text(-1, text, pooled); }), HasSubstr("set diffuse.dropout=0"));
}

TEST_F(Kohya, TheLargestThatTheResolutionAllows) {
  NpzWriter writer;
  for (const int64_t side : {2, 8, 4})
    writer.add(
        fmt::format("latents_{0}x{0}", side),
        npy_floats(fmt::format("(2, {0}, {0})", side),
                   std::vector<float>(static_cast<size_t>(2 * side * side), static_cast<float>(side))));
  writer.add("latents_flipped_6x6", npy_floats("(2, 6, 6)", std::vector<float>(72)));
  writer.write(folder_.path() / "a_0064x0064_flux.npz");
  put_text("a_flux_te.npz", 1);
  EXPECT_EQ(open(64).extent(0), Extent(8));
  EXPECT_EQ(open(63).extent(0), Extent(4));
  EXPECT_EQ(open(16).extent(0), Extent(2));
  EXPECT_EQ(
      refusal(15),
      "/a_0064x0064_flux.npz: the latents exceed the 15x15 pixels of data.image_size: the smallest have 256 "
      "pixels; increase data.image_size, or cache them at this size");
}

TEST_F(Kohya, MistakesAreExplained) {
  EXPECT_THAT(refusal(), HasSubstr("expected caches of sd-scripts"));
  put_latents("a_0064x0064_flux.npz", "latents_4x4", 4, 1);
  EXPECT_THAT(refusal(), HasSubstr("the file of its caption embeddings, /a_flux_te.npz, is missing"));
  put_text("a_flux_te.npz", 1);
  EXPECT_EQ(refusal(), "no error");
  put_text("a_flux_te.npz", 1, 5);
  EXPECT_THAT(refusal(),
              HasSubstr("expected embeddings [3, 2] as t5_out, got [5, 2]; set diffuse.text_tokens"));
  put_text("a_flux_te.npz", 1, 3, true);
  EXPECT_THAT(refusal(), HasSubstr("without --apply_t5_attn_mask"));
  put_text("a_flux_te.npz", 1);
  put_latents("a_0064x0064_flux.npz", "latents_4x4", 4, 1, 3);
  EXPECT_THAT(refusal(), HasSubstr("got [3, 4, 4]; the cache may be another model's"));
  put_latents("a_0064x0064_flux.npz", "latents_3x4", {3, 4}, 1);
  EXPECT_THAT(refusal(), HasSubstr("whose sides are multiples of 2, got [2, 3, 4]"));
  put_latents("a_0064x0064_flux.npz", "latents_flipped_4x4", 4, 1);
  EXPECT_THAT(refusal(), HasSubstr("expected an array 'latents_HxW', found none"));
  put_latents("a_0032x0032_flux.npz", "latents_4x4", 4, 1);
  EXPECT_THAT(refusal(), HasSubstr("has latents of the same image"));
  put_bytes(folder_.path() / "a_0032x0032_flux.npz", "nothing");
  fs::remove(folder_.path() / "a_0064x0064_flux.npz");
  EXPECT_THAT(refusal(), HasSubstr("this is not an .npz file of NumPy"));
}

}  // namespace
}  // namespace hearth::tasks
