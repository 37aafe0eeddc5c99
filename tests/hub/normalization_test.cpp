#include "hub/normalization.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "temporary_folder.h"

namespace hearth::hub {
namespace {

class Weights : public testing::Test {
 protected:
  std::optional<Normalization> known(const std::string& config) const {
    std::ofstream(folder_.path() / "config.json") << config;
    auto found = known_normalization(folder_.path());
    EXPECT_EQ(known_normalization(folder_.path() / "model.safetensors").has_value(), found.has_value());
    return found;
  }
  TemporaryFolder folder_;
};

TEST_F(Weights, StateMeanAndStd) {
  const auto found = known(R"({"architecture": "resnet18", "pretrained_cfg":
      {"input_size": [3, 224, 224], "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}})");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->file, folder_.path() / "config.json");
  EXPECT_EQ(found->mean, (std::vector<float>{0.485F, 0.456F, 0.406F}));
  EXPECT_EQ(found->std, (std::vector<float>{0.229F, 0.224F, 0.225F}));
  // Older files have it at the top.
  EXPECT_TRUE(known(R"({"mean": [0.5], "std": [1], "pretrained_cfg": null})"));
}

TEST_F(Weights, AgreeUpToRounding) {
  const Normalization half{.file = {}, .mean = {0.5F}, .std = {0.5F}};
  EXPECT_TRUE(agree(half, {.file = {}, .mean = {0.5F, 0.5F, 0.5004F}, .std = {0.5F, 0.5F, 0.5F}}));
  EXPECT_FALSE(agree(half, {.file = {}, .mean = {0.5F, 0.5F, 0.52F}, .std = {0.5F}}));
  EXPECT_FALSE(
      agree({.file = {}, .mean = {0.1F, 0.2F}, .std = {1}}, {.file = {}, .mean = {0.1F}, .std = {1}}));
}

TEST_F(Weights, MayStateNothing) {
  EXPECT_FALSE(known_normalization(folder_.path()));
  for (const char* other :
       {R"({"model_type": "llama"})", R"({"mean": [0.1], "std": "none"})", R"({"mean": ["a"], "std": [1]})",
        R"({"mean": [], "std": []})", R"({"mean": 3, "std": {"a": 1}})", R"({"mean": [0.1], "std": [0]})",
        R"({"pretrained_cfg": {}, "mean": [1], "std": [1]})"})
    EXPECT_FALSE(known(other)) << other;
  EXPECT_THROW(known("[1, 2"), UserError);
}

}  // namespace
}  // namespace hearth::hub
