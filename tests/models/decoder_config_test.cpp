#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/small_config.h"

namespace hearth::models {
namespace {

using testing::AllOf;
using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;

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

TEST(DecoderConfig, WhatIsNotFollowedIsRefused) {
  const auto with = [](const char* key, const Json& value) {
    Json json = small("llama");
    json[key] = value;
    return error_of(json);
  };
  EXPECT_THAT(with("quantization_config", {{"quant_method", "hqq"}, {"bits", 4}}),
              AllOf(HasSubstr("quantization_config"), HasSubstr("hqq"), HasSubstr("compressed-tensors")));
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

TEST(DecoderConfig, ContextsAboveItsPositionsGetASentence) {
  EXPECT_EQ(context_note(parsed(small("llama")), 512), "");
  EXPECT_THAT(context_note(parsed(small("llama")), 513),
              AllOf(HasSubstr("513"), HasSubstr("max_position_embeddings 512")));
}

TEST(DecoderConfig, UnsupportedFamiliesAreNamedAndNoOtherIsSuggested) {
  // An edited model_type would load weights that do not fit it.
  for (const auto& [type, name] :
       {std::pair("qwen3_5", "(Qwen3.5)"), std::pair("gemma4", "(Gemma 4)"),
        std::pair("gemma3", "gemma3_text, is supported)"), std::pair("phi", "(Phi-1 and Phi-2)"),
        std::pair("qwen9", "'qwen9' is not supported"), std::pair("lama", "'lama' is not supported")}) {
    EXPECT_THAT(error_of(small(type)),
                AllOf(HasSubstr(name), HasSubstr("is not supported; supported are llama, "),
                      Not(HasSubstr("did you mean"))))
        << type;
  }
}

TEST(DecoderConfig, MistakesAreNamed) {
  EXPECT_THAT(error_of(small("Llama")), AllOf(HasSubstr("'Llama'"), HasSubstr("did you mean 'llama'")));
  EXPECT_THAT(error_of(small("qwen3-moe")), HasSubstr("did you mean 'qwen3_moe'"));
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
