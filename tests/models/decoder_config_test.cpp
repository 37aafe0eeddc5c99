#include "models/decoder/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/error.h"

namespace hearth::models {
namespace {

using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::DoubleEq;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

Json small(const char* family) {
  return {{"model_type", family},          {"vocab_size", 100},      {"hidden_size", 64},
          {"intermediate_size", 96},       {"num_hidden_layers", 4}, {"num_attention_heads", 8},
          {"num_key_value_heads", 2},      {"rms_norm_eps", 1e-5},   {"hidden_act", "silu"},
          {"max_position_embeddings", 512}};
}

DecoderConfig parsed(const Json& json) { return parse_decoder_config(json.dump(), "config.json"); }

RopeTable table_of(const DecoderConfig& config) { return rope_table(config.rope, config.head_size); }

std::string error_of(const Json& json) {
  try {
    parsed(json);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(DecoderConfig, ReadsWhatALlamaSays) {
  Json json = small("llama");
  json["eos_token_id"] = {7, 9};
  json["tie_word_embeddings"] = true;
  const DecoderConfig config = parsed(json);
  EXPECT_EQ(config.head_size, 8);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.max_positions, 512);
  EXPECT_TRUE(config.tied_head);
  EXPECT_FALSE(config.qkv_bias);
  EXPECT_THAT(config.attention_scale, DoubleEq(1 / std::sqrt(8.0)));
  EXPECT_THAT(config.eos_ids, ElementsAre(7, 9));
  EXPECT_THAT(config.windows, ElementsAre(0, 0, 0, 0));
  const RopeTable rope = table_of(config);
  EXPECT_THAT(rope.inv_freq, ElementsAre(DoubleEq(1), DoubleEq(0.1), DoubleEq(0.01), DoubleEq(0.001)));
  EXPECT_EQ(rope.scale, 1);
}

TEST(DecoderConfig, KnowsWhatEachFamilyLeavesUnsaid) {
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

TEST(DecoderConfig, Gemma2HasCapsWindowsAndScales) {
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

TEST(DecoderConfig, Olmo2HasNormsAfterItsBranchesAlone) {
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

TEST(DecoderConfig, GraniteHasMultipliers) {
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

TEST(DecoderConfig, Smollm3LeavesLayersWithoutPositions) {
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

TEST(DecoderConfig, Gemma3HasTwoBases) {
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

Json small_gpt2() {
  return {{"model_type", "gpt2"}, {"vocab_size", 100}, {"n_embd", 64},       {"n_layer", 4},
          {"n_head", 8},          {"n_ctx", 512},      {"n_positions", 512}, {"n_inner", nullptr}};
}

TEST(DecoderConfig, Gpt2HasItsOwnKeys) {
  Json json = small_gpt2();
  const DecoderConfig config = parsed(json);
  EXPECT_EQ(config.hidden, 64);
  EXPECT_EQ(config.intermediate, 256);
  EXPECT_EQ(config.num_kv_heads, 8);
  EXPECT_EQ(config.head_size, 8);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.activation, "gelu_tanh");
  EXPECT_TRUE(config.tied_head && config.learned_positions && config.layer_norms && config.transposed);
  EXPECT_TRUE(config.qkv_bias && config.out_bias && config.mlp_bias);
  EXPECT_THAT(config.positions, Each(DecoderConfig::Positions::none));
  EXPECT_THAT(config.attention_scale, DoubleEq(1 / std::sqrt(8.0)));
  EXPECT_THAT(config.branch_init_normal, DoubleEq(0.02 / std::sqrt(8.0)));
  EXPECT_FALSE(with_both_versions(json, config).contains("rope_parameters"));
  json["scale_attn_weights"] = false;
  json["scale_attn_by_inverse_layer_idx"] = true;
  EXPECT_EQ(parsed(json).attention_scale, 1);
  EXPECT_TRUE(parsed(json).scale_by_layer);
  json.erase("n_positions");
  EXPECT_EQ(parsed(json).max_positions, 1024);
}

TEST(DecoderConfig, Gpt2RefusesWhatItDoesNotFollow) {
  const auto error_with = [](const char* key, const Json& value) {
    Json json = small_gpt2();
    json[key] = value;
    return error_of(json);
  };
  EXPECT_THAT(error_with("add_cross_attention", true), HasSubstr("\"add_cross_attention\""));
  EXPECT_THAT(error_with("pruned_heads", {{"0", {1}}}), HasSubstr("\"pruned_heads\""));
  EXPECT_THAT(error_with("hidden_size", 64), HasSubstr("\"hidden_size\""));
  EXPECT_THAT(error_with("n_head", 7), AllOf(HasSubstr("\"n_head\""), HasSubstr("64")));
  EXPECT_THAT(error_with("activation_function", "relu"), HasSubstr("activation_function"));
  EXPECT_THAT(error_with("n_embd", nullptr), HasSubstr("\"n_embd\""));
}

TEST(DecoderConfig, LearnedPositionsEnd) {
  check_context(parsed(small_gpt2()), 512);
  check_context(parsed(small("llama")), 513);
  try {
    check_context(parsed(small_gpt2()), 513);
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("512"), HasSubstr("513"), HasSubstr("n_positions")));
  }
}

TEST(DecoderConfig, Qwen3MoeHasExpertsInSomeLayers) {
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

TEST(DecoderConfig, MixtralHasExpertsInAllLayers) {
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

TEST(DecoderConfig, RoutersThatAreTrainedOtherwiseAreRefused) {
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

TEST(DecoderConfig, Llama3StretchesLongWavesOnly) {
  Json json = small("llama");
  json["head_dim"] = 64;
  const Json scaling = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 256}};
  json["rope_theta"] = 500000.0;
  json["rope_scaling"] = scaling;
  const std::vector<double> got = table_of(parsed(json)).inv_freq;
  ASSERT_EQ(got.size(), 32U);
  int num_blended = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double plain = std::pow(500000.0, -2.0 * static_cast<double>(i) / 64);
    const double wave = 2 * std::numbers::pi / plain;
    if (wave < 64) {
      EXPECT_THAT(got[i], DoubleEq(plain));
    } else if (wave > 256) {
      EXPECT_THAT(got[i], DoubleEq(plain / 8));
    } else {
      EXPECT_GT(got[i], plain / 8);
      EXPECT_LT(got[i], plain);
      ++num_blended;
    }
  }
  EXPECT_GT(num_blended, 1);
  // The same under the names of version 5.
  json.erase("rope_theta");
  json.erase("rope_scaling");
  json["rope_parameters"] = scaling;
  json["rope_parameters"]["rope_theta"] = 500000.0;
  EXPECT_EQ(table_of(parsed(json)).inv_freq, got);
}

TEST(DecoderConfig, LongropeHasFactorsForShortAndLongContexts) {
  Json json = small("phi3");
  json["original_max_position_embeddings"] = 128;
  json["rope_scaling"] = {
      {"type", "su"}, {"short_factor", {1.0, 1.0, 1.0, 1.0}}, {"long_factor", {2.0, 4.0, 8.0, 16.0}}};
  const DecoderConfig config = parsed(json);
  EXPECT_THAT(table_of(config).inv_freq[3], DoubleEq(0.001));
  EXPECT_THAT(table_of(config).long_inv_freq[3], DoubleEq(0.001 / 16));
  EXPECT_EQ(table_of(config).original, 128);
  EXPECT_THAT(table_of(config).scale, DoubleEq(std::sqrt(1 + std::log(4.0) / std::log(128.0))));
  json["rope_scaling"]["long_factor"] = {1.0};
  EXPECT_THAT(error_of(json), HasSubstr("expected 4 numbers"));
}

TEST(DecoderConfig, RopeScalingCountsBeforeRopeParameters) {
  Json json = small("llama");
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 500.0}};
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  const RopeTable table = table_of(parsed(json));
  EXPECT_THAT(table.inv_freq, ElementsAre(DoubleEq(0.5), DoubleEq(0.05), DoubleEq(0.005), DoubleEq(0.0005)));
  // Only yarn and longrope have a factor on cos and sin.
  json["rope_scaling"]["attention_factor"] = 3.0;
  EXPECT_EQ(table_of(parsed(json)).scale, 1);
}

TEST(DecoderConfig, RopeTypesNeedTheirKeys) {
  const auto with = [](const Json& scaling, const char* family = "llama") {
    Json json = small(family);
    json["rope_scaling"] = scaling;
    return error_of(json);
  };
  EXPECT_THAT(with({{"factor", 2.0}}), HasSubstr("\"rope_type\""));
  EXPECT_THAT(with({{"rope_type", "linear"}}), HasSubstr("\"factor\""));
  EXPECT_THAT(with({{"rope_type", "yarn"}}), HasSubstr("\"factor\""));
  EXPECT_THAT(with({{"rope_type", "linear"}, {"type", "yarn"}, {"factor", 2.0}}), HasSubstr("\"type\""));
  EXPECT_THAT(with({{"rope_type", "linear"}, {"factor", 2.0}, {"stretch", 1}}), HasSubstr("'stretch'"));
  EXPECT_THAT(with({{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 7.0}}), HasSubstr("rope_theta"));
  EXPECT_THAT(with({{"type", "linear"}, {"factor", 2.0}}, "phi3"), HasSubstr("'linear'"));
  const Json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 256}};
  EXPECT_EQ(with(llama3), "no error");
  for (const char* key :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    Json less = llama3;
    less.erase(key);
    EXPECT_THAT(with(less), AllOf(HasSubstr(key), HasSubstr("llama3")));
  }
  Json json = small("llama");
  json["partial_rotary_factor"] = 0.5;
  EXPECT_THAT(error_of(json), HasSubstr("partial_rotary_factor"));
  json["model_type"] = "phi3";
  EXPECT_EQ(table_of(parsed(json)).inv_freq.size(), 2U);
}

TEST(DecoderConfig, LongropeIsReadAsEveryVersionDoes) {
  Json json = small("llama");
  json["rope_scaling"] = {{"rope_type", "longrope"},
                          {"short_factor", {1.0, 1.0, 1.0, 1.0}},
                          {"long_factor", {2.0, 4.0, 8.0, 16.0}}};
  Json& scaling = json["rope_scaling"];
  EXPECT_THAT(error_of(json), HasSubstr("\"factor\""));
  scaling["factor"] = 4.0;
  EXPECT_THAT(table_of(parsed(json)).scale, DoubleEq(std::sqrt(1 + std::log(4.0) / std::log(512.0))));
  scaling["original_max_position_embeddings"] = 128;
  EXPECT_THAT(error_of(json), HasSubstr("original_max_position_embeddings"));
  json["original_max_position_embeddings"] = 128;
  EXPECT_THAT(table_of(parsed(json)).scale, DoubleEq(std::sqrt(1 + std::log(4.0) / std::log(128.0))));
  scaling["factor"] = 5.0;
  EXPECT_THAT(error_of(json), HasSubstr("\"factor\""));
  scaling["attention_factor"] = 1.5;
  EXPECT_EQ(table_of(parsed(json)).scale, 1.5);
  // Version 5 takes what stands in its own key.
  json["rope_parameters"] = scaling;
  json["rope_parameters"].erase("attention_factor");
  json.erase("rope_scaling");
  json.erase("original_max_position_embeddings");
  EXPECT_THAT(table_of(parsed(json)).scale, DoubleEq(std::sqrt(1 + std::log(5.0) / std::log(128.0))));
  EXPECT_EQ(table_of(parsed(json)).original, 128);
}

TEST(DecoderConfig, YarnStretchesWhatTurnsLittle) {
  Json json = small("llama");
  json["head_dim"] = 64;
  json["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 128}};
  const RopeTable table = table_of(parsed(json));
  EXPECT_THAT(table.scale, DoubleEq(1 + 0.1 * std::log(4.0)));
  const auto plain = [](size_t i) { return std::pow(10000.0, -2.0 * static_cast<double>(i) / 64); };
  // Pair 10 turns once in 128 positions and pair 0 not 32 times: between them the share grows evenly.
  EXPECT_THAT(table.inv_freq[0], DoubleEq(1));
  EXPECT_THAT(table.inv_freq[5], DoubleEq(plain(5) * (1 - 5.0 / 11 * 0.75)));
  EXPECT_THAT(table.inv_freq[11], DoubleEq(plain(11) / 4));
  json["rope_scaling"]["mscale"] = 2.0;
  json["rope_scaling"]["mscale_all_dim"] = 0.5;
  EXPECT_THAT(table_of(parsed(json)).scale, DoubleEq((1 + 0.2 * std::log(4.0)) / (1 + 0.05 * std::log(4.0))));
  json["rope_scaling"]["attention_factor"] = 0.7;
  EXPECT_EQ(table_of(parsed(json)).scale, 0.7);
  json["rope_scaling"]["truncate"] = false;
  EXPECT_GT(table_of(parsed(json)).inv_freq[11], plain(11) / 4 * 0.99);
  json["rope_scaling"]["beta_slow"] = 64.0;
  EXPECT_THAT(error_of(json), HasSubstr("beta_slow"));
}

TEST(DecoderConfig, LayerTypesAreKnownAndAgree) {
  const Json sliding = {"full_attention", "sliding_attention", "full_attention", "full_attention"};
  Json json = small("qwen2");
  json["layer_types"] = sliding;
  EXPECT_THAT(error_of(json), HasSubstr("sliding_window that is in use"));
  json["use_sliding_window"] = true;
  EXPECT_THAT(parsed(json).windows, ElementsAre(0, 4096, 0, 0));
  json["sliding_window"] = nullptr;
  EXPECT_THAT(error_of(json), HasSubstr("sliding_window that is in use"));
  json["sliding_window"] = 0;
  EXPECT_THAT(error_of(json), HasSubstr("\"sliding_window\""));
  json["sliding_window"] = 8;
  json["layer_types"][0] = "chunked_attention";
  EXPECT_THAT(error_of(json), HasSubstr("chunked_attention"));
  json["layer_types"] = {"full_attention"};
  EXPECT_THAT(error_of(json), HasSubstr("4 entries"));
  json = small("llama");
  json["layer_types"] = sliding;
  EXPECT_THAT(error_of(json), HasSubstr("full_attention alone"));
  json["model_type"] = "mistral";
  EXPECT_THAT(parsed(json).windows, ElementsAre(0, 4096, 0, 0));
}

TEST(DecoderConfig, AbsentKeysMeanWhatTheFamilyMeans) {
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

TEST(DecoderConfig, WhatIsNotFollowedIsRefused) {
  const auto with = [](const char* key, const Json& value) {
    Json json = small("llama");
    json[key] = value;
    return error_of(json);
  };
  EXPECT_THAT(with("quantization_config", {{"quant_method", "gptq"}, {"bits", 4}}),
              AllOf(HasSubstr("quantization_config"), HasSubstr("gptq")));
  EXPECT_THAT(with("is_causal", false), HasSubstr("is_causal"));
  EXPECT_THAT(with("use_bidirectional_attention", true), HasSubstr("use_bidirectional_attention"));
  EXPECT_EQ(with("is_causal", true), "no error");
}

TEST(DecoderConfig, IsWrittenForBothVersions) {
  Json json = small("llama");
  json["torch_dtype"] = "bfloat16";
  json["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 1234.0}};
  const Json both = with_both_versions(json, parsed(json));
  EXPECT_EQ(both.at("rope_theta"), 1234.0);
  EXPECT_EQ(both.at("rope_scaling").at("factor"), 2.0);
  EXPECT_EQ(both.at("rope_scaling").at("rope_type"), "linear");
  EXPECT_FALSE(both.at("rope_scaling").contains("rope_theta"));
  EXPECT_EQ(both.at("rope_parameters").at("rope_theta"), 1234.0);
  EXPECT_EQ(both.at("dtype"), "bfloat16");
  const Json plain = with_both_versions(small("llama"), parsed(small("llama")));
  EXPECT_TRUE(plain.at("rope_scaling").is_null());
  EXPECT_EQ(plain.at("rope_parameters").at("rope_type"), "default");
}

TEST(DecoderConfig, LongropeIsWrittenSoThatBothVersionsAgree) {
  Json json = small("llama");
  json["rope_parameters"] = {{"rope_type", "longrope"},
                             {"rope_theta", 500.0},
                             {"factor", 3.0},
                             {"original_max_position_embeddings", 128},
                             {"short_factor", {1.0, 1.0, 1.0, 1.0}},
                             {"long_factor", {2.0, 4.0, 8.0, 16.0}}};
  const RopeTable table = table_of(parsed(json));
  Json both = with_both_versions(json, parsed(json));
  EXPECT_EQ(both.at("original_max_position_embeddings"), 128);
  EXPECT_EQ(both.at("rope_scaling").at("attention_factor"), table.scale);
  EXPECT_EQ(table_of(parsed(both)).scale, table.scale);
  both.erase("rope_scaling");
  EXPECT_EQ(table_of(parsed(both)).scale, table.scale);
  json["model_type"] = "phi3";
  json["original_max_position_embeddings"] = 128;
  json["rope_parameters"].erase("factor");
  both = with_both_versions(json, parsed(json));
  EXPECT_EQ(both.at("rope_scaling").size(), 3U);
  EXPECT_EQ(both.at("rope_scaling").at("type"), "longrope");
  EXPECT_EQ(table_of(parsed(both)).scale, table_of(parsed(json)).scale);
}

TEST(DecoderConfig, ContextsAboveItsPositionsGetASentence) {
  EXPECT_EQ(context_note(parsed(small("llama")), 512), "");
  EXPECT_THAT(context_note(parsed(small("llama")), 513),
              AllOf(HasSubstr("513"), HasSubstr("max_position_embeddings 512")));
}

TEST(DecoderConfig, MistakesAreNamed) {
  EXPECT_THAT(error_of(small("lama")), AllOf(HasSubstr("'lama'"), HasSubstr("did you mean 'llama'")));
  Json json = small("llama");
  json.erase("hidden_size");
  EXPECT_THAT(error_of(json), AllOf(HasSubstr("config.json"), HasSubstr("\"hidden_size\"")));
  json = small("llama");
  json["vocab_size"] = -5;
  EXPECT_THAT(error_of(json), AllOf(HasSubstr("\"vocab_size\""), HasSubstr("-5")));
  json = small("llama");
  json["num_key_value_heads"] = 3;
  EXPECT_THAT(error_of(json), HasSubstr("multiple"));
  json = small("llama");
  json["rope_scaling"] = {{"rope_type", "yoyo"}, {"factor", 2}};
  EXPECT_THAT(error_of(json), AllOf(HasSubstr("rope_scaling"), HasSubstr("'yoyo'")));
  json = small("llama");
  json["num_hidden_layers"] = 100000;
  EXPECT_THAT(error_of(json), AllOf(HasSubstr("\"num_hidden_layers\""), HasSubstr("100000")));
  json = small("llama");
  json["hidden_act"] = "relu6";
  EXPECT_THAT(error_of(json), HasSubstr("'relu6'"));
  EXPECT_THROW(parse_decoder_config("{", "x"), UserError);
  EXPECT_THROW(parse_decoder_config(std::string(100000, '['), "x"), UserError);
}

}  // namespace
}  // namespace hearth::models
