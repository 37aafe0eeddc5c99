// What each family of language models says in keys of its own, and what it leaves unsaid.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/small_config.h"

namespace hearth::models {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(DecoderFamilies, KnowsWhatEachFamilyLeavesUnsaid) {
  Json json = small("qwen2");
  json["sliding_window"] = 128;
  EXPECT_TRUE(parsed(json).qkv_bias);
  EXPECT_FALSE(parsed(json).out_bias);
  EXPECT_THAT(parsed(json).windows, Each(0));
  json["use_sliding_window"] = true;
  json["max_window_layers"] = 3;
  EXPECT_THAT(parsed(json).windows, ElementsAre(0, 0, 0, 128));
  json = small("qwen3");
  json["head_dim"] = 16;
  EXPECT_TRUE(parsed(json).qk_norm);
  EXPECT_FALSE(parsed(json).qkv_bias);
  EXPECT_EQ(parsed(json).head_size, 16);
  json = small("mistral");
  json["sliding_window"] = 64;
  EXPECT_THAT(parsed(json).windows, Each(64));
  json["sliding_window"] = nullptr;
  EXPECT_THAT(parsed(json).windows, Each(0));
  EXPECT_TRUE(parsed(small("phi3")).fused_projections);
}

TEST(DecoderFamilies, AbsentKeysMeanWhatTheFamilyMeans) {
  EXPECT_THAT(parsed(small("mistral")).windows, Each(4096));
  EXPECT_EQ(parsed(small("qwen3")).head_size, 128);
  Json json = small("phi3");
  json.erase("rms_norm_eps");
  EXPECT_EQ(parsed(json).norm_eps, 1e-5);
  json = small("gemma2");
  EXPECT_EQ(parsed(json).activation, "gelu_tanh");
  EXPECT_EQ(parsed(json).attention_cap, 50);
  EXPECT_EQ(parsed(json).head_cap, 30);
  EXPECT_THAT(parsed(json).windows, ElementsAre(4096, 0, 4096, 0));
  json["attention_bias"] = true;
  json["attn_logit_softcapping"] = nullptr;
  EXPECT_TRUE(parsed(json).qkv_bias && parsed(json).out_bias);
  EXPECT_EQ(parsed(json).attention_cap, 0);
  json["hidden_activation"] = nullptr;
  EXPECT_THAT(error_of(json), HasSubstr("\"hidden_activation\""));
  json = small("llama");
  json["hidden_activation"] = "gelu";
  EXPECT_EQ(parsed(json).activation, "silu");
}

TEST(DecoderFamilies, LayerTypesAreKnownAndAgree) {
  const Json sliding = {"full_attention", "sliding_attention", "full_attention", "full_attention"};
  Json json = small("qwen2");
  json["layer_types"] = sliding;
  EXPECT_THAT(error_of(json), HasSubstr("because sliding_window is not used"));
  json["use_sliding_window"] = true;
  EXPECT_THAT(parsed(json).windows, ElementsAre(0, 4096, 0, 0));
  json["sliding_window"] = nullptr;
  EXPECT_THAT(error_of(json), HasSubstr("because sliding_window is not used"));
  json["sliding_window"] = 0;
  EXPECT_THAT(error_of(json), HasSubstr("\"sliding_window\""));
  json["sliding_window"] = 8;
  json["layer_types"][0] = "chunked_attention";
  EXPECT_THAT(error_of(json), HasSubstr("chunked_attention"));
  json["layer_types"] = {"full_attention"};
  EXPECT_THAT(error_of(json), HasSubstr("4 entries"));
  json = small("llama");
  json["layer_types"] = sliding;
  EXPECT_THAT(error_of(json), HasSubstr("full_attention only"));
  json["model_type"] = "mistral";
  EXPECT_THAT(parsed(json).windows, ElementsAre(0, 4096, 0, 0));
}

TEST(DecoderFamilies, Gemma2HasCapsWindowsAndScales) {
  Json json = small("gemma2");
  json["hidden_activation"] = "gelu_pytorch_tanh";
  json["query_pre_attn_scalar"] = 16;
  json["attn_logit_softcapping"] = 50.0;
  json["final_logit_softcapping"] = 30.0;
  json["sliding_window"] = 32;
  const DecoderConfig config = parsed(json);
  EXPECT_EQ(config.activation, "gelu_tanh");
  EXPECT_EQ(config.norm_offset, 1);
  EXPECT_TRUE(config.tied_head && config.post_norms);
  EXPECT_EQ(config.embedding_scale, 8);
  EXPECT_EQ(config.attention_scale, 0.25);
  EXPECT_EQ(config.attention_cap, 50);
  EXPECT_EQ(config.head_cap, 30);
  EXPECT_EQ(config.head_size, 256);
  EXPECT_THAT(config.windows, ElementsAre(32, 0, 32, 0));
  json["layer_types"] = {"full_attention", "sliding_attention", "full_attention", "full_attention"};
  EXPECT_THAT(parsed(json).windows, ElementsAre(0, 32, 0, 0));
}

TEST(DecoderFamilies, Gemma3HasTwoBases) {
  using Positions = DecoderConfig::Positions;
  Json json = small("gemma3_text");
  json["num_hidden_layers"] = 7;
  DecoderConfig config = parsed(json);
  EXPECT_THAT(config.windows, ElementsAre(4096, 4096, 4096, 4096, 4096, 0, 4096));
  EXPECT_EQ(config.positions[4], Positions::local_rope);
  EXPECT_EQ(config.positions[5], Positions::rope);
  EXPECT_EQ(config.rope.theta, 1000000);
  EXPECT_EQ(config.local_rope->theta, 10000);
  EXPECT_TRUE(config.qk_norm && config.post_norms && config.tied_head);
  EXPECT_EQ(config.norm_offset, 1);
  EXPECT_EQ(config.attention_scale, 1.0 / 16);
  EXPECT_EQ(config.attention_cap, 0);
  json["rope_theta"] = 500.0;
  json["rope_local_base_freq"] = 50.0;
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  config = parsed(json);
  EXPECT_EQ(config.rope.factor, 8);
  EXPECT_EQ(config.local_rope->factor, 1);
  // What is written for both versions reads the same without the keys of either.
  Json both = with_both_versions(json, config);
  for (const char* key : {"rope_scaling", "rope_theta", "rope_local_base_freq"}) both.erase(key);
  EXPECT_EQ(parsed(both).rope.theta, 500);
  EXPECT_EQ(parsed(both).rope.factor, 8);
  EXPECT_EQ(parsed(both).local_rope->theta, 50);
  both["rope_local_base_freq"] = 60.0;
  EXPECT_THAT(error_of(both), HasSubstr("rope_local_base_freq"));
  both.erase("rope_local_base_freq");
  both["rope_parameters"]["sliding_attention"]["rope_type"] = "linear";
  EXPECT_THAT(error_of(both), HasSubstr("\"rope_type\""));
  both["rope_parameters"] = {{"rope_type", "default"}};
  EXPECT_THAT(error_of(both), HasSubstr("'rope_type'"));
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 8.0}};
  EXPECT_THAT(error_of(json), HasSubstr("\"rope_type\""));
}

TEST(DecoderFamilies, Olmo2HasNormsAfterItsBranchesAlone) {
  Json json = small("olmo2");
  json.erase("rms_norm_eps");
  const DecoderConfig config = parsed(json);
  EXPECT_TRUE(config.post_norms && config.qk_norm_whole);
  EXPECT_FALSE(config.pre_norms || config.qk_norm || config.tied_head || config.qkv_bias);
  EXPECT_EQ(config.norm_eps, 1e-5);
  json["attention_bias"] = true;
  EXPECT_TRUE(parsed(json).qkv_bias && parsed(json).out_bias);
  json["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 1234.0}};
  // Version 4 takes two keys of this family.
  const Json scaling = with_both_versions(json, parsed(json)).at("rope_scaling");
  EXPECT_EQ(scaling, Json({{"type", "linear"}, {"factor", 2.0}}));
}

TEST(DecoderFamilies, Olmo3ScalesRopeOfFullAttentionOnly) {
  Json json = small("olmo3");
  json["num_hidden_layers"] = 4;
  json["rope_theta"] = 500000.0;
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  DecoderConfig config = parsed(json);
  EXPECT_EQ(config.windows, (std::vector<int64_t>{4096, 4096, 4096, 0}));
  EXPECT_EQ(config.rope.type, "linear");
  ASSERT_TRUE(config.local_rope.has_value());
  EXPECT_EQ(config.local_rope->type, "default");
  EXPECT_EQ(config.local_rope->theta, 500000);
  const Json both = with_both_versions(json, config);
  EXPECT_FALSE(both.contains("rope_local_base_freq"));
  EXPECT_EQ(both.at("rope_parameters").at("sliding_attention").at("rope_theta"), 500000);
  EXPECT_EQ(both.at("rope_parameters").at("full_attention").at("rope_type"), "linear");
  json["rope_theta"] = 10000.0;
  EXPECT_THAT(error_of(json), HasSubstr("500000 for sliding_attention"));
  json.erase("rope_theta");
  EXPECT_THAT(error_of(json), HasSubstr("\"rope_theta\""));
}

TEST(DecoderFamilies, GraniteHasMultipliers) {
  Json json = small("granite");
  EXPECT_EQ(parsed(json).attention_scale, 1);
  EXPECT_EQ(parsed(json).embedding_scale, 1);
  EXPECT_EQ(parsed(json).residual_scale, 1);
  EXPECT_EQ(parsed(json).hidden_scale, 1);
  json["attention_multiplier"] = 0.5;
  json["embedding_multiplier"] = 12;
  json["residual_multiplier"] = 0.25;
  json["logits_scaling"] = 8;
  EXPECT_EQ(parsed(json).attention_scale, 0.5);
  EXPECT_EQ(parsed(json).embedding_scale, 12);
  EXPECT_EQ(parsed(json).residual_scale, 0.25);
  EXPECT_EQ(parsed(json).hidden_scale, 0.125);
  json["logits_scaling"] = 0;
  EXPECT_THAT(error_of(json), HasSubstr("\"logits_scaling\""));
}

TEST(DecoderFamilies, Smollm3LeavesLayersWithoutPositions) {
  using Positions = DecoderConfig::Positions;
  Json json = small("smollm3");
  EXPECT_TRUE(parsed(json).tied_head);
  EXPECT_EQ(parsed(json).rope.theta, 2000000);
  EXPECT_THAT(parsed(json).positions,
              ElementsAre(Positions::rope, Positions::rope, Positions::rope, Positions::none));
  json["no_rope_layer_interval"] = 2;
  EXPECT_THAT(parsed(json).positions,
              ElementsAre(Positions::rope, Positions::none, Positions::rope, Positions::none));
  json["no_rope_layers"] = {0, 1, 1, 1};
  EXPECT_THAT(parsed(json).positions,
              ElementsAre(Positions::none, Positions::rope, Positions::rope, Positions::rope));
  json["use_sliding_window"] = true;
  json["sliding_window"] = 8;
  EXPECT_THAT(parsed(json).windows, ElementsAre(8, 0, 0, 0));
  json["no_rope_layers"] = {0, 1};
  EXPECT_THAT(error_of(json), AllOf(HasSubstr("\"no_rope_layers\""), HasSubstr("4 entries")));
  json["no_rope_layers"] = {0, 1, 2, 1};
  EXPECT_THAT(error_of(json), HasSubstr("\"no_rope_layers\""));
}

}  // namespace
}  // namespace hearth::models
