#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/small_config.h"

namespace hearth::models {
namespace {

using testing::AllOf;
using testing::DoubleEq;
using testing::Each;
using testing::HasSubstr;

Json small_gpt2() {
  return {{"model_type", "gpt2"}, {"vocab_size", 100}, {"n_embd", 64},       {"n_layer", 4},
          {"n_head", 8},          {"n_ctx", 512},      {"n_positions", 512}, {"n_inner", nullptr}};
}

TEST(Gpt2Config, HasItsOwnKeys) {
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

TEST(Gpt2Config, DropoutIsNoted) {
  Json json = small_gpt2();
  EXPECT_THAT(dropout_note(parsed(json)),
              HasSubstr("has embd_pdrop=0.1, resid_pdrop=0.1, attn_pdrop=0.1, which"));
  for (const char* key : {"embd_pdrop", "resid_pdrop", "attn_pdrop"}) json[key] = 0;
  EXPECT_EQ(dropout_note(parsed(json)), "");
  json["attention_dropout"] = 0.2;
  EXPECT_EQ(dropout_note(parsed(json)), "") << "a key of other families";
  json = small("llama");
  EXPECT_EQ(dropout_note(parsed(json)), "");
  json["attention_dropout"] = 0.2;
  EXPECT_THAT(dropout_note(parsed(json)), HasSubstr("has attention_dropout=0.2, which"));
}

TEST(Gpt2Config, RefusesWhatItDoesNotFollow) {
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

TEST(Gpt2Config, LearnedPositionsEnd) {
  check_context(parsed(small_gpt2()), 512);
  check_context(parsed(small("llama")), 513);
  try {
    check_context(parsed(small_gpt2()), 513);
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("512"), HasSubstr("513"), HasSubstr("n_positions")));
  }
}

}  // namespace
}  // namespace hearth::models
