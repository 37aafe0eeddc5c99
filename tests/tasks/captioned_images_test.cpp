#include "tasks/diffuse/captioned_images.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "data/images/image.h"
#include "encoders/tiny_text_models.h"
#include "npz_writer.h"
#include "temporary_folder.h"

namespace hearth::tasks {
namespace {

using encoders::put;
using encoders::put_models;

/// Caches of an image: latents of 2 channels, 4 x 4, and 3 tokens of text.
void put_cached(const fs::path& name) {
  const std::vector<float> values(32, 1);
  NpzWriter latents, text;
  latents.add("latents_4x4", npy_floats("(2, 4, 4)", values));
  latents.write(name.string() + "_0032x0032_flux.npz");
  text.add("t5_out", npy_floats("(3, 2)", std::span(values).first(6)));
  text.add("l_pooled", npy_floats("(1,)", std::span(values).first(1)));
  text.write(name.string() + "_flux_te.npz");
}

std::unique_ptr<DiffusionData> open_cached(const fs::path& folder) {
  CaptionedImagesOptions options;
  options.data.path = folder;
  options.data.image_size = 64;
  options.format.text_tokens = 3;
  options.format.model.channels = 2;
  options.format.model.patch = 2;
  options.format.model.text_width = 2;
  options.format.model.pooled_width = 1;
  return kohya_images(options);
}

TEST(HeldOut, AreImagesThatAreNotTrainedOn) {
  const TemporaryFolder folder;
  for (const char* name : {"00", "01", "02", "03", "04", "05"}) put_cached(folder.path() / name);
  auto images = open_cached(folder.path());
  EXPECT_EQ(images->train().size(), 6) << "few are all trained on";
  EXPECT_EQ(images->held_out().size(), 6);
  EXPECT_THAT(images->warning(), testing::HasSubstr("no image is held out"));
  put_cached(folder.path() / "5_z/06");
  images = open_cached(folder.path());
  EXPECT_EQ(images->train().size(), 6);
  EXPECT_EQ(images->held_out().size(), 5) << "the last one comes five times";
  EXPECT_EQ(images->warning(), "");
}

TEST(HeldOut, OfASingleImageThereIsNone) {
  const TemporaryFolder folder;
  put_cached(folder.path() / "12_z/only");
  EXPECT_EQ(open_cached(folder.path())->train().size(), 12);
  EXPECT_EQ(open_cached(folder.path())->held_out().size(), 12);
}

/// Two images with captions "a b" and "c", and a model that encodes them.
class CaptionsInCache : public testing::Test {
 protected:
  CaptionsInCache() {
    put_models(model(), 16, 3);
    write_tiny_autoencoder(model() / "vae", 2);
    for (const auto& [name, caption] : {std::pair("0", "a b"), {"1", "c"}}) {
      const data::Image image{
          .height = 64, .width = 64, .channels = 3, .pixels = std::vector<uint8_t>(64 * 64 * 3, *name)};
      put(root() / name += ".png", encode_png(image));
      put(root() / name += ".txt", caption);
    }
  }
  fs::path model() const { return folder_.path() / "model"; }
  fs::path root() const { return folder_.path() / "pictures"; }
  std::unique_ptr<DiffusionData> open(const char* cache = "cache",
                                      const encoders::Compute& compute = {}) const {
    CaptionedImagesOptions options{.cache = folder_.path() / cache,
                                   .encoders = {.model = model(), .autoencoder = model() / "vae"},
                                   .preparation = compute};
    options.data.path = root();
    options.data.image_size = 64;
    options.format.text_tokens = options.encoders.text_tokens = 5;
    options.format.model.channels = 2;
    options.format.model.patch = 2;
    options.format.model.text_width = 16;
    options.format.model.pooled_width = 8;
    return captioned_images(options);
  }

  const TemporaryFolder folder_;
};

TEST_F(CaptionsInCache, AreNotEncodedAgainAsPrompts) {
  const auto first = open();
  first->prepare({}, [](const std::string&) {});
  std::vector<float> text(5 * 16), pooled(8);
  first->train().text(0, text, pooled);
  const std::vector<std::string> prompts = first->prompts();
  ASSERT_THAT(prompts, testing::ElementsAre("a b", "c"));
  const auto second = open();
  fs::remove(model() / "tokenizer/tokenizer.json");
  const std::vector<Condition> known = second->codec()->conditions(prompts);
  EXPECT_EQ(known[0].text, text);
  EXPECT_EQ(known[0].pooled, pooled);
  EXPECT_NE(known[1].text, text);
  EXPECT_NE(second->codec()->no_condition().text, text);
  const std::string other = "b";
  EXPECT_THROW(second->codec()->conditions(std::span(&other, 1)), UserError);
}

TEST_F(CaptionsInCache, ThatAreTooLongAreCounted) {
  EXPECT_THAT(open()->warning(), testing::Not(testing::HasSubstr("longer")));
  EXPECT_THAT(open()->describe(), testing::HasSubstr("2 captions from files"));
  put(root() / "1.txt", "a b c a b c a b c");
  EXPECT_THAT(
      open()->warning(),
      testing::AllOf(testing::HasSubstr("1 of 2 texts is longer than the 5 tokens of diffuse.text_tokens"),
                     testing::HasSubstr("cut off")));
  const std::string prompt = "a a a a a a a a";
  const auto codec = text_codec({.model = model(), .autoencoder = model() / "vae", .text_tokens = 5});
  EXPECT_EQ(codec->note(), "");
  codec->conditions(std::span(&prompt, 1));
  EXPECT_THAT(codec->note(), testing::HasSubstr("1 of 1 texts is longer than the 5 tokens"));
}

TEST_F(CaptionsInCache, KohyasFolderOfTheClassIsThePrior) {
  const auto num_images = open()->train().size();
  const data::Image image{
      .height = 64, .width = 64, .channels = 3, .pixels = std::vector<uint8_t>(64 * 64 * 3, 1)};
  put(root() / "reg/1_dog/x.png", encode_png(image));
  const auto images = open();
  EXPECT_THAT(images->describe(), testing::HasSubstr("and 1 class images"));
  EXPECT_EQ(images->train().size(), num_images + 1);
  EXPECT_EQ(images->held_out().size(), num_images);
}

TEST_F(CaptionsInCache, PromptsArePreparedWithThem) {
  const std::vector<std::string> prompts = {"b", "a b", "b"};
  open()->prepare(prompts, [](const std::string&) {});
  const auto next = open();
  fs::remove(model() / "tokenizer/tokenizer.json");
  const std::vector<Condition> known = next->codec()->conditions(prompts);
  EXPECT_EQ(known[0].text, known[2].text);
  EXPECT_NE(known[0].text, known[1].text);
}

TEST_F(CaptionsInCache, AGpuPreparesThemAsTheProcessorDoes) {
  const auto here = open(), there = open("other", {.gpu = exec::GpuRequest{.device = "emulated"}});
  const auto latents_of = [](const DiffusionData& images) {
    std::vector<std::string> said;
    images.prepare(std::vector<std::string>{"b"}, [&](const std::string& text) { said.push_back(text); });
    // Progress depends on time.
    std::erase_if(said, [](const std::string& text) {
      return text.starts_with("encoding images: ") || text.starts_with("encoding captions: ");
    });
    EXPECT_THAT(said, testing::ElementsAre(testing::HasSubstr("encoding 2 images into"),
                                           testing::HasSubstr("encoding 3 captions")));
    std::vector<float> latents(2 * 16 * 16);
    images.train().read(1, 0, latents);
    return latents;
  };
  EXPECT_THAT(latents_of(*there), testing::Pointwise(testing::FloatNear(1e-4F), latents_of(*here)));
  const std::string prompt = "b";
  const auto asked = [&](const DiffusionData& images) {
    return images.codec()->conditions(std::span(&prompt, 1)).front().text;
  };
  EXPECT_THAT(asked(*there), testing::Pointwise(testing::FloatNear(1e-4F), asked(*here)));
  EXPECT_NE(asked(*there), asked(*here)) << "of the processor both times";
}

}  // namespace
}  // namespace hearth::tasks
