#include "infer/captioned_pictures.h"

#include <gmock/gmock.h>

#include "npz_writer.h"
#include "temporary_folder.h"

namespace hearth::infer {
namespace {

/// Caches of a picture: latents of 2 channels, 4 x 4, and 3 tokens of text.
void put_cached(const fs::path& name) {
  const std::vector<float> values(32, 1);
  NpzWriter latents, text;
  latents.add("latents_4x4", npy_floats("(2, 4, 4)", values));
  latents.write(name.string() + "_0032x0032_flux.npz");
  text.add("t5_out", npy_floats("(3, 2)", std::span(values).first(6)));
  text.add("l_pooled", npy_floats("(1,)", std::span(values).first(1)));
  text.write(name.string() + "_flux_te.npz");
}

std::unique_ptr<tasks::PictureSet> open_cached(const fs::path& folder) {
  CaptionedPicturesOptions options{.folder = folder, .resolution = 64};
  options.format.text_tokens = 3;
  options.format.model.channels = 2;
  options.format.model.patch = 2;
  options.format.model.text_width = 2;
  options.format.model.pooled_width = 1;
  return kohya_pictures(options);
}

TEST(HeldOut, ArePicturesThatAreNotTrainedOn) {
  const TemporaryFolder folder;
  for (const char* name : {"00", "01", "02", "03", "04", "05"}) put_cached(folder.path() / name);
  auto pictures = open_cached(folder.path());
  EXPECT_EQ(pictures->train().size(), 6) << "few are all trained on";
  EXPECT_EQ(pictures->held_out().size(), 6);
  EXPECT_THAT(pictures->warning(), testing::HasSubstr("no picture is held out"));
  put_cached(folder.path() / "5_z/06");
  pictures = open_cached(folder.path());
  EXPECT_EQ(pictures->train().size(), 6);
  EXPECT_EQ(pictures->held_out().size(), 5) << "the last one comes five times";
  EXPECT_EQ(pictures->warning(), "");
}

TEST(HeldOut, OfASinglePictureThereIsNone) {
  const TemporaryFolder folder;
  put_cached(folder.path() / "12_z/only");
  EXPECT_EQ(open_cached(folder.path())->train().size(), 12);
  EXPECT_EQ(open_cached(folder.path())->held_out().size(), 12);
}

}  // namespace
}  // namespace hearth::infer
