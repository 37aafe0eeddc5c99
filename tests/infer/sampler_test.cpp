#include "infer/sampler.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>

namespace hearth::infer {
namespace {

using testing::ElementsAre;
using testing::Pair;

const std::vector<float> kLogits = {0.0F, 2.0F, 1.0F, 2.0F, -1.0F};

/// How often each token comes in `count` draws.
std::map<int32_t, int> drawn(const SamplerOptions& options, int count,
                             const std::vector<int32_t>& so_far = {}) {
  Sampler sampler(options);
  std::map<int32_t, int> counts;
  for (int i = 0; i < count; ++i) ++counts[sampler.next(kLogits, so_far)];
  return counts;
}

TEST(Sampler, TakesTheLikeliestAndOfEqualsTheFirst) {
  EXPECT_THAT(drawn({.temperature = 0, .top_k = 1}, 3), ElementsAre(Pair(1, 3)));
}

TEST(Sampler, DrawsInProportionToTheSoftmax) {
  constexpr int kCount = 20000;
  const auto counts = drawn({.temperature = 0.5, .seed = 3}, kCount);
  double all = 0;
  for (const float logit : kLogits) all += std::exp(logit / 0.5);
  for (size_t id = 0; id < kLogits.size(); ++id) {
    const double share = std::exp(kLogits[id] / 0.5) / all;
    const auto found = counts.find(static_cast<int32_t>(id));
    const double got = found == counts.end() ? 0 : static_cast<double>(found->second) / kCount;
    EXPECT_NEAR(got, share, 5 * std::sqrt(share / kCount)) << id;
  }
}

TEST(Sampler, KeepsTheTopTokensOnly) {
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 2}, 500).size(), 2u);
  // The two of logit 2 have 0.39 each: one does not reach 0.5, both do.
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.5}, 500).size(), 2u);
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.0}, 500).size(), 1u);
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.9}, 500).size(), 3u);
}

TEST(Sampler, PenalizesWhatWasThereOnceHoweverOftenItWas) {
  EXPECT_THAT(drawn({.repetition_penalty = 1.5}, 1, {1, 1, 1}), ElementsAre(Pair(3, 1)));
  EXPECT_THAT(drawn({.repetition_penalty = 1.5}, 1, {1, 1, 1, 3}), ElementsAre(Pair(1, 1)));
  // Negative logits go down, not up.
  Sampler sampler({.repetition_penalty = 2});
  EXPECT_EQ(sampler.next(std::vector<float>{-1.0F, -1.5F}, std::vector<int32_t>{0}), 1);
}

TEST(Sampler, KeepsTokensWithAShareOfTheLikeliest) {
  // Relative to the likeliest tokens, the others have exp(-1), exp(-2) and exp(-3).
  EXPECT_EQ(drawn({.temperature = 1, .min_p = 0.36}, 500).size(), 3u);
  EXPECT_EQ(drawn({.temperature = 1, .min_p = 0.37}, 500).size(), 2u);
  EXPECT_EQ(drawn({.temperature = 1, .min_p = 1.0}, 500).size(), 2u);
}

TEST(Sampler, DrawsTheSameTokenFromAllAndFromTheTopTokens) {
  std::vector<float> logits;
  for (int i = 0; i < 500; ++i) logits.push_back(0.25F * static_cast<float>(i * 7919 % 41) - 5);
  logits[7] = -0.0F;
  logits[9] = 0.0F;
  logits[20] = -3000;  // has no share, so that 499 of the 500 tokens have the same sum
  const auto sequence = [&](int64_t top_k) {
    Sampler sampler({.temperature = 3, .top_k = top_k, .seed = 2});
    std::vector<int32_t> ids;
    for (int i = 0; i < 300; ++i) ids.push_back(sampler.next(logits, {}));
    return ids;
  };
  EXPECT_EQ(sequence(0), sequence(499));
}

TEST(Sampler, PenalizesReturnedTokensByPresenceAndFrequency) {
  const std::vector<float> logits = {0.0F, 1.0F, 0.7F};
  const auto greedy = [&](const SamplerOptions& options) {
    Sampler sampler(options);
    std::vector<int32_t> ids;
    for (int i = 0; i < 5; ++i) ids.push_back(sampler.next(logits, std::vector<int32_t>{2, 2}));
    return ids;
  };
  // The logits of 1 and 2 fall once, by 0.5.
  EXPECT_THAT(greedy({.presence_penalty = 0.5}), ElementsAre(1, 2, 1, 1, 1));
  // The logit of a returned token falls each time: 1, 0.7, 0.5, 0.2, then 0 as for token 0.
  EXPECT_THAT(greedy({.frequency_penalty = 0.5}), ElementsAre(1, 2, 1, 2, 0));
  EXPECT_THAT(greedy({.presence_penalty = 0.25, .frequency_penalty = 0.25}), ElementsAre(1, 2, 1, 1, 2));
}

TEST(Sampler, AddsTheBiasToLogits) {
  EXPECT_THAT(drawn({.logit_bias = {{4, 3.5}}}, 1), ElementsAre(Pair(4, 1)));
  EXPECT_THAT(drawn({.logit_bias = {{1, -100}, {3, -100}, {99, 5}, {-1, 5}}}, 1), ElementsAre(Pair(2, 1)));
  EXPECT_EQ(drawn({.temperature = 1, .logit_bias = {{1, -100}}}, 500).count(1), 0u);
}

TEST(Sampler, RepeatsItsDrawsForASeed) {
  const auto sequence = [](uint64_t seed) {
    Sampler sampler({.temperature = 1, .seed = seed});
    std::vector<int32_t> ids;
    for (int i = 0; i < 40; ++i) ids.push_back(sampler.next(kLogits, {}));
    return ids;
  };
  EXPECT_EQ(sequence(7), sequence(7));
  EXPECT_NE(sequence(7), sequence(8));
}

}  // namespace
}  // namespace hearth::infer
