#include "io/latent_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <vector>

#include "base/error.h"
#include "io/safetensors.h"
#include "temporary_folder.h"

namespace hearth::io {
namespace {

using testing::HasSubstr;

class Latents : public testing::Test {
 protected:
  template <typename Call>
  std::string refusal(Call&& call) const {
    try {
      call();
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }
  std::string bytes_of(const fs::path& path) const { return read_file(path); }
  void put_bytes(const fs::path& path, std::string_view bytes) const {
    std::ofstream(path, std::ios::binary) << bytes;
  }

  const TemporaryFolder folder_;
  const LatentCache cache_{folder_.path() / "in/cache"};
  const LatentKey image_{.content = 7, .model = 0xAB, .pixels = {64, 32}};
  const Shape shape_{2, 2, 1};
  const std::vector<float> latents_ = {0.1F, -2, 3.25F, 1e-30F};
  const CaptionKey caption_{.content = 7, .model = 0xCD, .num_tokens = 2, .width = 3, .pooled = 2};
  std::vector<float> text_ = {1, 2, 3, -0.5F, 0, 0x1.02p9F}, pooled_ = {8, 0.1F};
};

TEST_F(Latents, WhatWasPutIsReadToTheBit) {
  EXPECT_FALSE(cache_.holds(image_, shape_));
  EXPECT_FALSE(cache_.holds(caption_));
  cache_.put(image_, shape_, latents_);
  cache_.put(caption_, text_, pooled_);
  EXPECT_TRUE(cache_.holds(image_, shape_));
  EXPECT_TRUE(cache_.holds(caption_));
  std::vector<float> latents(4), text(6), pooled(2);
  const LatentCache another(cache_.folder());
  another.read(image_, shape_, latents);
  another.read(caption_, text, pooled);
  EXPECT_EQ(latents, latents_);
  EXPECT_EQ(text, text_);
  EXPECT_EQ(pooled, pooled_);
  const SafetensorsFile file(cache_.path_of(caption_));
  EXPECT_EQ(file.find("text")->dtype, DType::bf16) << "these fit";
  EXPECT_EQ(file.find("pooled")->dtype, DType::f32) << "0.1 does not";
  EXPECT_EQ(file.metadata().at("format"), "pt");
  CaptionKey plain = caption_;
  plain.pooled = 0;
  cache_.put(plain, text_, {});
  cache_.read(plain, text, {});
  EXPECT_FALSE(cache_.holds(caption_)) << "there is no pooled vector any more";
}

TEST_F(Latents, EachKeyHasItsFile) {
  cache_.put(image_, shape_, latents_);
  LatentKey other = image_;
  for (const auto change : {+[](LatentKey& key) { ++key.content; }, +[](LatentKey& key) { ++key.model; },
                            +[](LatentKey& key) { key.pixels.width = 48; }}) {
    other = image_;
    change(other);
    EXPECT_FALSE(cache_.holds(other, shape_));
  }
  EXPECT_FALSE(cache_.holds(image_, {4, 2, 1})) << "of other channels";
  std::vector<float> out(8);
  EXPECT_THAT(refusal([&] {
                cache_.read(image_, {4, 2, 1}, out);
              }),
              HasSubstr("the cache file has no array latents [4, 2, 1]; another model may have written it"));
  EXPECT_THAT(refusal([&] { cache_.read(other, shape_, std::span(out).first(4)); }),
              HasSubstr("only latents-0000000000000007-00000000000000ab-64x32.safetensors of other weights"));
  other.content = 99;
  EXPECT_THAT(refusal([&] { cache_.read(other, shape_, std::span(out).first(4)); }),
              HasSubstr("add the model's encoders to compute it"));
}

TEST_F(Latents, DamageIsSeen) {
  cache_.put(image_, shape_, latents_);
  const fs::path path = cache_.path_of(image_);
  const std::string whole = bytes_of(path);
  std::vector<float> out(4);
  for (size_t at = whole.size() - 16; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] ^= 1;
    put_bytes(path, damaged);
    EXPECT_THAT(refusal([&] { cache_.read(image_, shape_, out); }),
                HasSubstr("the file is damaged; delete it"));
  }
  for (const size_t length : {size_t{0}, size_t{5}, whole.size() / 2, whole.size() - 1}) {
    put_bytes(path, whole.substr(0, length));
    EXPECT_FALSE(cache_.holds(image_, shape_)) << length;
    EXPECT_THROW(cache_.read(image_, shape_, out), UserError) << length;
  }
  cache_.put(image_, shape_, latents_);
  cache_.read(image_, shape_, out);
  EXPECT_EQ(out, latents_);
}

TEST_F(Latents, NothingElseIsLeftInTheFolder) {
  cache_.put(image_, shape_, latents_);
  cache_.put(image_, shape_, latents_);
  EXPECT_EQ(list_folder(cache_.folder()).size(), 1U);
}

}  // namespace
}  // namespace hearth::io
