// Mixtures of experts: which layers have them, and how tokens are routed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/small_config.h"

namespace hearth::models {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(DecoderExperts, Qwen3MoeHasExpertsInSomeLayers) {
  Json json = small("qwen3_moe");
  DecoderConfig config = parsed(json);
  EXPECT_EQ(config.experts.count, 128);
  EXPECT_EQ(config.experts.per_token, 8);
  EXPECT_EQ(config.experts.intermediate, 768);
  EXPECT_FALSE(config.experts.normalized || config.experts.mixtral_names);
  EXPECT_THAT(config.experts.layers, ElementsAre(true, true, true, true));
  EXPECT_TRUE(config.qk_norm);
  EXPECT_EQ(config.head_size, 8);
  EXPECT_THAT(config.windows, Each(0));
  json["num_local_experts"] = 6;
  json["norm_topk_prob"] = true;
  json["decoder_sparse_step"] = 2;
  json["mlp_only_layers"] = {1, 9};
  json["use_sliding_window"] = true;
  json["sliding_window"] = 8;
  EXPECT_THAT(error_of(json), HasSubstr("num_experts_per_tok of at most 6"));
  json["num_experts_per_tok"] = 6;
  config = parsed(json);
  EXPECT_EQ(config.experts.count, 6);
  EXPECT_TRUE(config.experts.normalized);
  EXPECT_THAT(config.experts.layers, ElementsAre(false, false, false, true));
  EXPECT_THAT(config.windows, Each(8));
  // Each version reads the number of experts under a key of its own.
  const Json both = with_both_versions(json, config);
  EXPECT_EQ(both.at("num_experts"), 6);
  EXPECT_EQ(both.at("num_local_experts"), 6);
  json["num_experts"] = 7;
  EXPECT_THAT(error_of(json), AllOf(HasSubstr("\"num_local_experts\""), HasSubstr("\"num_experts\", 7")));
}

TEST(DecoderExperts, MixtralHasExpertsInAllLayers) {
  Json json = small("mixtral");
  DecoderConfig config = parsed(json);
  EXPECT_EQ(config.experts.count, 8);
  EXPECT_EQ(config.experts.per_token, 2);
  EXPECT_EQ(config.experts.intermediate, 96);
  EXPECT_TRUE(config.experts.normalized && config.experts.mixtral_names);
  EXPECT_THAT(config.experts.layers, ElementsAre(true, true, true, true));
  EXPECT_THAT(config.windows, Each(0));
  EXPECT_EQ(config.rope.theta, 1000000);
  json["num_local_experts"] = 3;
  json["sliding_window"] = 8;
  config = parsed(json);
  EXPECT_EQ(config.experts.count, 3);
  EXPECT_THAT(config.windows, Each(8));
  EXPECT_FALSE(with_both_versions(json, config).contains("num_experts"));
  json["num_experts"] = 4;
  EXPECT_THAT(error_of(json), HasSubstr("\"num_experts\""));
}

TEST(DecoderExperts, RoutersThatAreTrainedOtherwiseAreRefused) {
  for (const char* family : {"qwen3_moe", "mixtral"}) {
    Json json = small(family);
    json["output_router_logits"] = true;
    EXPECT_THAT(error_of(json), HasSubstr("\"output_router_logits\""));
    json["output_router_logits"] = false;
    json["router_jitter_noise"] = 0.1;
    EXPECT_THAT(error_of(json), HasSubstr("\"router_jitter_noise\""));
    json["router_jitter_noise"] = 0.0;
    EXPECT_EQ(error_of(json), "no error");
    json["num_local_experts"] = 1000;
    json["num_hidden_layers"] = 16;
    EXPECT_EQ(error_of(json), "no error");
    json["num_hidden_layers"] = 17;
    EXPECT_THAT(error_of(json), HasSubstr("experts in each of 17 layers"));
  }
}

}  // namespace
}  // namespace hearth::models
