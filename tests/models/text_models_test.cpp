// The text models of denoisers: their configs, and what is theirs alone.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/clip/clip.h"
#include "models/t5/t5.h"

namespace hearth::models {
namespace {

using testing::HasSubstr;
using TextJson = nlohmann::ordered_json;

TextJson clip_json() {
  return {{"model_type", "clip_text_model"},
          {"hidden_size", 768},
          {"intermediate_size", 3072},
          {"num_hidden_layers", 12},
          {"num_attention_heads", 12},
          {"max_position_embeddings", 77},
          {"hidden_act", "quick_gelu"},
          {"layer_norm_eps", 0.000012},
          {"eos_token_id", 2},
          {"vocab_size", 49408}};
}
TextJson t5_json() {
  return {{"model_type", "t5"}, {"d_model", 4096}, {"d_ff", 10240},   {"num_layers", 24},
          {"num_heads", 64},    {"d_kv", 64},      {"vocab_size", 3}, {"feed_forward_proj", "gated-gelu"},
          {"pad_token_id", 0}};
}

template <typename Parse>
std::string refusal_of(Parse parse, TextJson json, const char* key, const TextJson& value) {
  json[key] = value;
  try {
    parse(json.dump(), "config.json");
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ClipConfig, IsReadOrRefused) {
  const ClipConfig config = parse_clip_config(clip_json().dump(), "config.json");
  EXPECT_EQ(config.num_layers, 12);
  EXPECT_EQ(config.norm_eps, 0.000012);
  EXPECT_EQ(config.activation, "quick_gelu");
  const auto with = [](const char* key, const TextJson& value) {
    return refusal_of(parse_clip_config, clip_json(), key, value);
  };
  EXPECT_THAT(with("model_type", "siglip"), HasSubstr("expected clip_text_model"));
  EXPECT_THAT(with("hidden_act", "relu"), HasSubstr("quick_gelu, gelu or gelu_pytorch_tanh"));
  EXPECT_THAT(with("num_attention_heads", 7), HasSubstr("a divisor of hidden_size 768"));
  EXPECT_THAT(with("num_hidden_layers", 0), HasSubstr("a whole number from 1"));
}

TEST(T5Config, IsReadOrRefused) {
  const T5Config config = parse_t5_config(t5_json().dump(), "config.json");
  EXPECT_EQ(config.num_buckets, 32);
  EXPECT_EQ(config.max_distance, 128);
  EXPECT_EQ(config.head_size, 64);
  const auto with = [](const char* key, const TextJson& value) {
    return refusal_of(parse_t5_config, t5_json(), key, value);
  };
  EXPECT_THAT(with("model_type", "umt5"), HasSubstr("expected t5"));
  EXPECT_THAT(with("feed_forward_proj", "relu"), HasSubstr("expected gated-gelu"));
  EXPECT_THAT(with("relative_attention_num_buckets", 2), HasSubstr("a whole number from 4"));
  EXPECT_THAT(with("relative_attention_max_distance", 8),
              HasSubstr("more than a quarter of relative_attention_num_buckets"));
}

TEST(ClipPooledToken, IsTheFirstEndOrTheLargestId) {
  ClipConfig config{.eos_id = 7};
  EXPECT_EQ(clip_pooled_token(config, std::vector{9, 3, 7, 5, 7}), 2U);
  EXPECT_EQ(clip_pooled_token(config, std::vector{9, 3}), 0U);
  config.eos_id = 2;
  EXPECT_EQ(clip_pooled_token(config, std::vector{1, 2, 8, 5, 8}), 2U);
}

TEST(T5Bias, HasBucketsForBothDirections) {
  const T5Config config{.num_heads = 2};
  std::vector<float> table;
  for (int bucket = 0; bucket < config.num_buckets; ++bucket)
    table.insert(table.end(), {static_cast<float>(bucket), static_cast<float>(100 + bucket)});
  constexpr int64_t kTokens = 300;
  const std::vector<float> bias = t5_bias(config, table, kTokens);
  ASSERT_EQ(std::ssize(bias), 2 * kTokens * kTokens);
  const auto at = [&](int64_t head, int64_t query, int64_t key) {
    return bias[static_cast<size_t>((head * kTokens + query) * kTokens + key)];
  };
  const std::pair<int64_t, int64_t> buckets[] = {{0, 0},     {-1, 1},    {-7, 7},  {-8, 8}, {-16, 10},
                                                 {-128, 15}, {-150, 15}, {1, 17},  {7, 23}, {8, 24},
                                                 {16, 26},   {127, 31},  {149, 31}};
  for (const auto& [distance, bucket] : buckets) {
    EXPECT_EQ(at(0, 150, 150 + distance), static_cast<float>(bucket)) << distance;
    EXPECT_EQ(at(1, 150, 150 + distance), static_cast<float>(100 + bucket)) << distance;
  }
}

}  // namespace
}  // namespace hearth::models
