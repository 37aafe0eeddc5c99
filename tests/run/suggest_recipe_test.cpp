#include "run/suggest_recipe.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "base/file.h"
#include "data/images/image.h"
#include "temporary_folder.h"

namespace hearth::run {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A folder to fill with data.
class SuggestRecipe : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& contents) {
    fs::create_directories((folder_.path() / name).parent_path());
    write_file_atomically(folder_.path() / name, contents);
  }
  void put_image(const std::string& name, int64_t side, uint8_t value = 0) {
    put(name, data::encode_png({.height = side,
                                .width = side,
                                .channels = 1,
                                .pixels = std::vector<uint8_t>(static_cast<size_t>(side * side), value)}));
  }
  Suggestion suggest(const std::string& name = "") { return suggest_recipe(folder_.path() / name); }
  std::string fault(const std::string& name = "") {
    try {
      suggest(name);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no fault";
  }
  TemporaryFolder folder_;
};

TEST_F(SuggestRecipe, AFolderPerClassGetsAClassifierForTheSizeOfItsImages) {
  for (const char* split : {"train", "test"})
    for (const char* name : {"ant", "bee"})
      for (const char* file : {"a.png", "b.png"})
        put_image(std::string(split) + "/" + name + "/" + file, 100);
  const Suggestion made = suggest();
  EXPECT_EQ(made.recipe, "images-resnet18");
  EXPECT_THAT(made.overrides,
              ElementsAre("data.path=" + folder_.path().string() + "/", "data.image_size=64"));
  EXPECT_THAT(made.found[0], HasSubstr("4 training and 4 test images of 2 classes: ant, bee"));
  EXPECT_FALSE(made.needs_model);
}

TEST_F(SuggestRecipe, MasksGetASegmenter) {
  for (const char* split : {"train", "val"}) {
    put_image(std::string(split) + "/images/a.png", 8);
    put_image(std::string(split) + "/masks/a.png", 8, 1);
  }
  EXPECT_EQ(suggest().recipe, "segment-unet");
}

TEST_F(SuggestRecipe, BoxesGetADetector) {
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) {
    put_image(std::string("images/") + name + ".png", 8);
    put(std::string("labels/") + name + ".txt", "0 0.5 0.5 0.5 0.5\n");
  }
  put("data.yaml", "train: images\nval: images\nnames: [bolt]\n");
  const Suggestion made = suggest();
  EXPECT_EQ(made.recipe, "detect-small");
  EXPECT_THAT(made.found[0], HasSubstr("of 1 class: bolt"));
}

TEST_F(SuggestRecipe, CaptionsGetALoraThatNeedsAModel) {
  put_image("a.png", 8);
  put("a.txt", "a red house");
  const Suggestion made = suggest();
  EXPECT_EQ(made.recipe, "flux-lora");
  EXPECT_TRUE(made.needs_model);
}

TEST_F(SuggestRecipe, AFileOfTextsGetsALanguageModelByItsFormat) {
  put("chats.jsonl",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})");
  put("pairs.jsonl", R"({"prompt": "p", "chosen": "c", "rejected": "r"})");
  put("story.txt", "Once upon a time");
  EXPECT_EQ(suggest("chats.jsonl").recipe, "llama-lora");
  EXPECT_THAT(suggest("chats.jsonl").overrides,
              ElementsAre("data=" + (folder_.path() / "chats.jsonl").string()));
  EXPECT_EQ(suggest("pairs.jsonl").recipe, "llama-dpo");
  EXPECT_THAT(suggest("story.txt").found[0], HasSubstr("plain text"));
  EXPECT_TRUE(suggest("story.txt").needs_model);
}

TEST_F(SuggestRecipe, WhatIsNoDataIsNamed) {
  EXPECT_THAT(fault(), HasSubstr("no training data was recognized"));
  put("broken.jsonl", "{\"messages\": 3}\n");
  EXPECT_THAT(fault("broken.jsonl"), HasSubstr("broken.jsonl:1"));
  put_image("loose.png", 8);
  EXPECT_THAT(fault(), HasSubstr("1 image without labels"));
  put("model/config.json", "{}");
  EXPECT_THAT(fault("model"), HasSubstr("is a model; give the data first"));
  put("run/config.yaml", "");
  EXPECT_THAT(fault("run"), HasSubstr("is a run"));
}

TEST_F(SuggestRecipe, RecipesAndKeysAreNotData) {
  EXPECT_TRUE(names_data(folder_.path()));
  EXPECT_TRUE(names_data("chats.jsonl"));
  EXPECT_FALSE(names_data("mine.yaml"));
  EXPECT_FALSE(names_data("demo"));
  EXPECT_FALSE(names_data("data=chats.jsonl"));
}

}  // namespace
}  // namespace hearth::run
