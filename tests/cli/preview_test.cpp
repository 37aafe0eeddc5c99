// hearth validate --preview: training samples as the model sees them, on one page.
#include "cli/program.h"
#include "data/images/image.h"
#include "tiny_language_model.h"

namespace hearth {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Preview : public Program {
 protected:
  /// Runs hearth validate --preview with these arguments, checks that it creates no run folder, and returns
  /// the page.
  std::string page_of(const std::string& arguments) {
    works("export XDG_CACHE_HOME=$PWD/cache; hearth validate " + arguments +
          " --preview page.html threads=1");
    EXPECT_FALSE(has("runs"));
    return get("page.html");
  }
  /// Writes a gray image for each split, and a mask whose left half is class 1 (floor) and whose right half
  /// is class 0 (wall).
  void put_masked_images() {
    constexpr int64_t kSide = 16;
    data::Image image{.height = kSide, .width = kSide, .channels = 3};
    image.pixels.assign(kSide * kSide * 3, 200);
    data::Image mask{.height = kSide, .width = kSide, .channels = 1};
    for (int64_t i = 0; i < kSide * kSide; ++i) mask.pixels.push_back(i % kSide < kSide / 2 ? 1 : 0);
    for (const char* split : {"train", "val"}) {
      put(std::string("set/") + split + "/images/1.png", data::encode_png(image));
      put(std::string("set/") + split + "/masks/1.png", data::encode_png(mask));
    }
    put("set/classes.txt", "wall\nfloor\n");
  }
};

TEST_F(Preview, ShowsImagesWithClasses) {
  const std::string page = page_of("demo data.count=40 data.val_count=10");
  EXPECT_THAT(page, AllOf(HasSubstr("Training images and their classes"), HasSubstr("<div>circle</div>")));
  EXPECT_EQ(count_of(page, "<figure>"), 24U);
}

TEST_F(Preview, ShowsImagesWithMasks) {
  put_masked_images();
  const std::string page = page_of(
      "segment-unet model.width=4 model.num_classes=2 init= data.path=set data.kind=masks data.image_size=16 "
      "train.batch=1");
  EXPECT_THAT(page, AllOf(HasSubstr("Training images and their masks"), HasSubstr("</i>floor</span>")));
  EXPECT_EQ(count_of(page, "<figure>"), 1U);
  EXPECT_EQ(count_of(page, "<img"), 2U);
}

TEST_F(Preview, ShowsImagesWithBoxes) {
  const std::string page = page_of("detect-demo data.count=12 data.val_count=4");
  EXPECT_THAT(page, HasSubstr("Training images and their boxes"));
  EXPECT_EQ(count_of(page, "<figure>"), 12U);
}

TEST_F(Preview, ShowsImagesOfDiffusionData) {
  const std::string image =
      data::encode_png({.height = 28, .width = 28, .channels = 1, .pixels = std::vector<uint8_t>(28 * 28)});
  for (int i = 0; i < 3; ++i)
    for (const char* split : {"train", "test"})
      put(fmt::format("set/{}/{}/{}.png", split, i == 0 ? "zero" : "one", i), image);
  const std::string page = page_of("diffuse-mnist data.kind=folder data.path=set diffuse.judged=0");
  EXPECT_THAT(page, AllOf(HasSubstr("Training images and their classes"), HasSubstr("<div>zero</div>")));
  EXPECT_EQ(count_of(page, "<figure>"), 3U);
}

TEST_F(Preview, MarksTokensThatCountInTheLoss) {
  write_tiny_model(at("model"));
  std::string chats;
  for (int i = 0; i < 10; ++i) chats += chat_line("question <1>", "answer");
  put("chat.jsonl", chats);
  const std::string page = page_of(
      "pretrain-llama model.config=model/config.json model.tokenizer=model data=chat.jsonl data.context=64");
  EXPECT_THAT(page, AllOf(HasSubstr("question &lt;1&gt;"), HasSubstr("<mark>answer&lt;|im_end|&gt;</mark>"),
                          Not(HasSubstr("<mark>question"))));
}

TEST_F(Preview, ShowsBothAnswersOfAPair) {
  write_tiny_model(at("model"));
  std::string pairs;
  for (int i = 0; i < 10; ++i) pairs += preference_line("question", "good", "bad");
  put("pairs.jsonl", pairs);
  const std::string page = page_of(
      "llama-dpo adapter.name= precision=fp32 model.config=model/config.json data=pairs.jsonl "
      "data.context=64");
  EXPECT_THAT(page,
              AllOf(HasSubstr("Row 1, chosen answer"), HasSubstr("<mark>good&lt;|im_end|&gt;</mark>"),
                    HasSubstr("Row 1, rejected answer"), HasSubstr("<mark>bad&lt;|im_end|&gt;</mark>")));
}

TEST_F(Preview, RefusesAFolderAsItsFile) { refused("hearth validate demo --preview /", {"/"}); }

}  // namespace
}  // namespace hearth
