// Frequencies of rotary position embeddings by each rope type.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "models/small_config.h"

namespace hearth::models {
namespace {

using testing::AllOf;
using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(DecoderRope, RopeTypesNeedTheirKeys) {
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

TEST(DecoderRope, RopeScalingCountsBeforeRopeParameters) {
  Json json = small("llama");
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 500.0}};
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  const RopeTable table = table_of(parsed(json));
  EXPECT_THAT(table.inv_freq, ElementsAre(DoubleEq(0.5), DoubleEq(0.05), DoubleEq(0.005), DoubleEq(0.0005)));
  // Only yarn and longrope have a factor on cos and sin.
  json["rope_scaling"]["attention_factor"] = 3.0;
  EXPECT_EQ(table_of(parsed(json)).scale, 1);
}

TEST(DecoderRope, Llama3StretchesLongWavesOnly) {
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

TEST(DecoderRope, YarnStretchesWhatTurnsLittle) {
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

TEST(DecoderRope, LongropeHasFactorsForShortAndLongContexts) {
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

TEST(DecoderRope, LongropeIsReadAsEveryVersionDoes) {
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

TEST(DecoderRope, LongropeIsWrittenSoThatBothVersionsAgree) {
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

}  // namespace
}  // namespace hearth::models
