#include "run/image_session.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "run/from_recipe.h"
#include "run/trainer.h"
#include "temporary_folder.h"

namespace hearth::run {
namespace {

constexpr const char* kDitRun = R"(
model: {config: DIT}
data: {kind: shapes, image_size: 16, count: 16, val_count: 8}
train: {objective: epsilon, steps: 1, batch: 8}
diffuse: {steps: 2, val_images: 1}
optimizer: {name: adamw}
threads: 1
)";
constexpr const char* kDitConfig =
    R"({"_class_name": "DiTTransformer2DModel", "in_channels": 3, "patch_size": 4,
"num_layers": 1, "num_attention_heads": 4, "attention_head_dim": 16, "sample_size": 16, "out_channels": 6,
"num_embeds_ada_norm": 10})";

class ImageSessions : public testing::Test {
 protected:
  ImageSessions() {
    write_file_atomically(folder_.path() / "dit.json", kDitConfig);
    std::string recipe = kDitRun;
    recipe.replace(recipe.find("DIT"), 3, (folder_.path() / "dit.json").string());
    Trainer(tasks::Job(parse_recipe(recipe, "test")), run(), {}).run(false);
  }
  fs::path run() const { return folder_.path() / "run"; }
  static std::vector<uint8_t> pixels(ImageSession& session, const ImageRequest& request) {
    return session.generate(request).front().image.pixels;
  }

  TemporaryFolder folder_;
};

TEST_F(ImageSessions, AnswerTwiceWithoutTheFilesOfTheRun) {
  const ImageRequest star{.prompt = "star", .seed = 7}, circle{.prompt = "circle", .steps = 3, .seed = 8};
  ImageSession other(run(), {.threads = 2});
  const std::vector<uint8_t> wanted_circle = pixels(other, circle);
  ImageSession session(run(), {.batch = 4});
  const std::vector<uint8_t> first = pixels(session, star);
  ImageSession closing(run(), {.keep_denoiser = false});
  EXPECT_EQ(pixels(closing, star), first);
  fs::remove_all(run());
  EXPECT_EQ(pixels(session, circle), wanted_circle);
  EXPECT_EQ(pixels(session, star), first);
  EXPECT_NE(pixels(session, {.prompt = "star", .seed = 8}), first);
  EXPECT_EQ(session.generate({.prompt = "star", .seed = 6, .count = 2}).back().image.pixels, first);
  EXPECT_THROW(pixels(closing, star), UserError);
}

TEST_F(ImageSessions, RefuseARequestAndAnswerTheNext) {
  ImageSession session(run(), {.threads = 1});
  EXPECT_THROW(session.generate({.prompt = "stern"}), UserError);
  EXPECT_THROW(session.generate({.prompt = "star", .solver = tasks::Solver::euler}), UserError);
  const std::vector<GeneratedImage> made = session.generate({.prompt = "star", .seed = 3});
  EXPECT_THAT(made.at(0).settings, testing::Contains(std::pair<std::string, std::string>("seed", "3")));
  EXPECT_THAT(made.at(0).settings, testing::Contains(std::pair<std::string, std::string>("steps", "2")));
}

}  // namespace
}  // namespace hearth::run
