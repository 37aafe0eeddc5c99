#include "hub/normalization.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "temporary_folder.h"

namespace hearth::hub {
namespace {

class Normalization : public testing::Test {
 protected:
  std::string note(const std::string& config, const std::vector<float>& mean = {0.5F},
                   const std::vector<float>& std = {0.5F}) const {
    std::ofstream(folder_.path() / "config.json") << config;
    const std::string of_folder = normalization_note(folder_.path(), {.mean = mean, .std = std});
    EXPECT_EQ(normalization_note(folder_.path() / "model.safetensors", {.mean = mean, .std = std}),
              of_folder);
    return of_folder;
  }
  std::string wish(const std::string& mean, const std::string& std) const {
    return "init: " + (folder_.path() / "config.json").string() +
           " says that pictures were normalized by another mean and std: try 'data.mean=[" + mean +
           "]' 'data.std=[" + std + "]'";
  }
  TemporaryFolder folder_;
};

TEST_F(Normalization, AnotherMeanOrStdIsSaid) {
  const std::string imagenet = R"({"architecture": "resnet18", "pretrained_cfg":
      {"input_size": [3, 224, 224], "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}})";
  const std::vector<float> mean = {0.485F, 0.456F, 0.406F}, std = {0.229F, 0.224F, 0.225F};
  const std::string wanted = wish("0.485,0.456,0.406", "0.229,0.224,0.225");
  EXPECT_EQ(note(imagenet), wanted);
  EXPECT_EQ(note(imagenet, mean), wanted);
  EXPECT_EQ(note(imagenet, {0.5F}, std), wanted);
  EXPECT_EQ(note(imagenet, {0.406F, 0.456F, 0.485F}, std), wanted);
  EXPECT_EQ(note(imagenet, mean, std), "");
  EXPECT_EQ(note(imagenet, {0.4854F, 0.4556F, 0.406F}, std), "");
}

TEST_F(Normalization, OlderFilesHaveItAtTheTop) {
  const std::string halves = R"({"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "pretrained_cfg": null})";
  EXPECT_EQ(note(halves), "");
  EXPECT_EQ(note(halves, {0.25F}), wish("0.5,0.5,0.5", "0.5,0.5,0.5"));
  EXPECT_EQ(note(R"({"mean": [0.5], "std": [1]})"), wish("0.5", "1"));
}

TEST_F(Normalization, OtherFilesSayNothing) {
  EXPECT_EQ(normalization_note(folder_.path(), {}), "");
  for (const char* other :
       {R"({"model_type": "llama"})", R"({"mean": [0.1], "std": "none"})", R"({"mean": ["a"], "std": [1]})",
        R"({"mean": [], "std": []})", R"({"mean": 3, "std": {"a": 1}})",
        R"({"pretrained_cfg": {}, "mean": [1], "std": [1]})"})
    EXPECT_EQ(note(other), "") << other;
  EXPECT_THROW(note("[1, 2"), UserError);
}

}  // namespace
}  // namespace hearth::hub
