#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "tasks/diffuse/denoise_rows.h"
#include "tasks/diffuse/latent_sets.h"
#include "tasks/diffuse/sampler.h"

namespace hearth::tasks {
namespace {

using recipe::NoiseSampling;
using recipe::NoiseWeighting;
using recipe::Objective;

double mean_level(const recipe::Diffuse& options, int64_t num_tokens, Objective objective = Objective::flow) {
  const Noising noising(objective, options);
  constexpr int kDraws = 20000;
  double sum = 0;
  for (int i = 0; i < kDraws; ++i) {
    PhiloxSequence random(7, static_cast<uint64_t>(i));
    const double level = noising.draw(random, num_tokens);
    EXPECT_GE(level, 0);
    EXPECT_LE(level, 1);
    sum += level;
  }
  return sum / kDraws;
}

/// The mean of f over normal quantiles, or over [0, 1].
template <typename F>
double mean_over_normal(F f) {
  double sum = 0, total = 0;
  for (double n = -8; n < 8; n += 1e-3) {
    const double density = std::exp(-n * n / 2);
    sum += density * f(n);
    total += density;
  }
  return sum / total;
}
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST(Noising, LevelsHaveTheMeansOfTheirDistributions) {
  EXPECT_NEAR(mean_level({.sampling = NoiseSampling::uniform}, 64), 0.5, 0.01);
  EXPECT_NEAR(mean_level({.sampling = NoiseSampling::sigmoid, .std = 2}, 64), 0.5, 0.01);
  EXPECT_NEAR(mean_level({.sampling = NoiseSampling::logit_normal, .mean = 0.8, .std = 0.5}, 64),
              mean_over_normal([](double n) { return sigmoid(0.8 + 0.5 * n); }), 0.01);
  EXPECT_NEAR(mean_level({.sampling = NoiseSampling::shift, .shift = 3}, 64),
              mean_over_normal([](double n) { return 3 * sigmoid(n) / (1 + 2 * sigmoid(n)); }), 0.01);
  const double large = std::exp(1.15);
  EXPECT_NEAR(mean_level({.sampling = NoiseSampling::flux_shift}, 4096),
              mean_over_normal([&](double n) { return large / (large + 1 / sigmoid(n) - 1); }), 0.01);
  // The mean over u of 1 - u - s (cos^2(pi u / 2) - 1 + u) is a half whatever s is; its spread is not.
  EXPECT_NEAR(mean_level({.sampling = NoiseSampling::mode}, 64), 0.5, 0.01);
  EXPECT_NEAR(mean_level({}, 64, Objective::epsilon), 0.5, 0.01);
}

TEST(Noising, ShiftOfFluxIsLinearInTokens) {
  EXPECT_NEAR(flux_shift(256), std::exp(0.5), 1e-12);
  EXPECT_NEAR(flux_shift(4096), std::exp(1.15), 1e-12);
  EXPECT_NEAR(std::log(flux_shift(1024)), 0.63, 1e-12);
}

TEST(Noising, MixturesKeepTheirRelations) {
  const NoiseCoefficients flow = Noising(Objective::flow).at(0.25);
  EXPECT_DOUBLE_EQ(flow.signal, 0.75);
  EXPECT_DOUBLE_EQ(flow.noise, 0.25);
  EXPECT_DOUBLE_EQ(flow.time, 250);
  // Along the path the velocity is what moves it: d(signal x + noise n) / d level.
  EXPECT_DOUBLE_EQ(flow.target_signal, -1);
  EXPECT_DOUBLE_EQ(flow.target_noise, 1);

  const Noising epsilon(Objective::epsilon);
  double kept = 1;
  for (int i = 0; i < 500; ++i) kept *= 1 - (1e-4 + (0.02 - 1e-4) * i / 999.0);
  EXPECT_NEAR(epsilon.at(0.4995).signal, std::sqrt(kept), 1e-12);
  EXPECT_DOUBLE_EQ(epsilon.at(0.4995).time, 499);
  EXPECT_DOUBLE_EQ(epsilon.at(1).time, 999);

  const NoiseCoefficients v = Noising(Objective::v).at(0.3);
  EXPECT_NEAR(v.signal * v.signal + v.noise * v.noise, 1, 1e-12);
  EXPECT_NEAR(v.signal * v.target_signal + v.noise * v.target_noise, 0, 1e-12);
}

TEST(Noising, WeightsAreThoseOfTheirPapers) {
  EXPECT_NEAR(Noising(Objective::flow, {.weighting = NoiseWeighting::sigma_sqrt}).at(0.5).weight, 4, 1e-12);
  EXPECT_NEAR(Noising(Objective::flow, {.weighting = NoiseWeighting::cosmap}).at(0.5).weight,
              4 / std::numbers::pi, 1e-12);
  const Noising epsilon(Objective::epsilon, {.weighting = NoiseWeighting::min_snr});
  const Noising v(Objective::v, {.weighting = NoiseWeighting::min_snr});
  for (const double level : {0.01, 0.2, 0.9}) {
    const NoiseCoefficients at = epsilon.at(level);
    const double snr = at.signal * at.signal / (at.noise * at.noise);
    EXPECT_NEAR(at.weight, std::min(snr, 5.0) / snr, 1e-9);
    EXPECT_NEAR(v.at(level).weight, std::min(snr, 5.0) / (snr + 1), 1e-9);
  }
}

/// Images of two channels, numbered elements.
class Numbered : public data::LatentSource {
 public:
  int64_t size() const override { return 3; }
  int64_t channels() const override { return 2; }
  Extent extent(int64_t) const override { return {4, 6}; }
  void read(int64_t index, uint64_t, std::span<float> latents) const override {
    std::iota(latents.begin(), latents.end(), 100.0F * static_cast<float>(index));
  }
  int32_t label(int64_t index) const override { return static_cast<int32_t>(index); }
};

DenoiseFormat labeled() {
  models::DenoiserConfig model;
  model.patch = 2;
  model.channels = model.out_channels = 2;
  model.num_classes = 3;
  return {.model = model, .text_tokens = 0};
}

struct MadeRow {
  std::vector<float> tokens, target;
  DenoiseSettings settings;
  int32_t label = -1;
};
MadeRow make_row(const DenoiseRows& rows, uint64_t key, int64_t index) {
  MadeRow made{.tokens = std::vector<float>(48), .target = std::vector<float>(48), .settings = {}};
  std::vector<std::byte> scratch(static_cast<size_t>(rows.scratch_bytes()));
  rows.make(
      {.key = key, .epoch = 0, .index = index, .length = 0, .scratch = scratch.data()},
      {reinterpret_cast<std::byte*>(made.tokens.data()), reinterpret_cast<std::byte*>(made.target.data()),
       reinterpret_cast<std::byte*>(&made.settings), reinterpret_cast<std::byte*>(&made.label)});
  return made;
}

TEST(DenoiseRows, HoldTheImageTheNoiseAndTheirDifference) {
  const Numbered images;
  const Noising noising(Objective::flow);
  const DenoiseRows rows(images, labeled(), noising, 0);
  const MadeRow row = make_row(rows, 5, 1);
  const float sigma = row.settings.time / 1000;
  ASSERT_GT(sigma, 0.01F);
  // x - sigma v is the image: 2 x 2 patches, features (channel, dy, dx).
  const float first_token[] = {100, 101, 106, 107, 124, 125, 130, 131};
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(row.tokens[i] - sigma * row.target[i], first_token[i], 1e-3);
  EXPECT_NEAR(row.tokens[8] - sigma * row.target[8], 102, 1e-3);
  EXPECT_NEAR(row.tokens[24] - sigma * row.target[24], 112, 1e-3);
  EXPECT_EQ(row.label, 1);
  EXPECT_EQ(row.settings.weight, 1);
  // The same key: the same noise; another: another.
  EXPECT_EQ(make_row(rows, 5, 1).tokens, row.tokens);
  EXPECT_NE(make_row(rows, 6, 1).tokens, row.tokens);
}

TEST(DenoiseRows, LoseTheirConditionAsOftenAsAskedFor) {
  const Numbered images;
  const Noising noising(Objective::flow);
  const DenoiseRows rows(images, labeled(), noising, 0.25);
  int dropped = 0;
  for (uint64_t key = 0; key < 4000; ++key) dropped += make_row(rows, key, 2).label == 3 ? 1 : 0;
  EXPECT_NEAR(dropped / 4000.0, 0.25, 0.03);
}

TEST(DenoiseRows, OfEvaluationNeverChange) {
  const Numbered images;
  const Noising noising(Objective::flow);
  const DenoiseRows rows(images, labeled(), noising, {0.2, 0.8}, 2);
  EXPECT_EQ(rows.num_rows(), 4);
  EXPECT_EQ(make_row(rows, 5, 3).tokens, make_row(rows, 6, 3).tokens);
  EXPECT_EQ(make_row(rows, 5, 3).settings.time, 800);
  EXPECT_EQ(make_row(rows, 5, 3).label, 1);
}

TEST(LatentSets, JoinAPriorWithItsWeight) {
  const Numbered images, prior;
  const JoinedLatents joined(images, prior, 0.5);
  EXPECT_EQ(joined.size(), 6);
  EXPECT_EQ(joined.weight(2), 1);
  EXPECT_EQ(joined.weight(3), 0.5);
  std::vector<float> third(48), fifth(48);
  joined.read(2, 0, third);
  joined.read(4, 0, fifth);
  EXPECT_EQ(third[0], 200);
  EXPECT_EQ(fifth[0], 100);
  const Noising noising(Objective::flow);
  EXPECT_EQ(make_row(DenoiseRows(joined, labeled(), noising, 0), 5, 4).settings.weight, 0.5F);
  const PartOfLatents part(joined, 2, 2);
  EXPECT_EQ(part.size(), 2);
  EXPECT_EQ(part.weight(1), 0.5);
}

/// A denoiser that knows the one image there is: its prediction is exact everywhere.
void expect_to_find(Objective objective, const SamplerOptions& sampler, double tolerance) {
  const Noising noising(objective);
  const std::vector<float> image = {0.5F, -1.0F, 0.25F};
  std::vector<float> x(3);
  draw_noise(3, 0, x);
  const auto denoise = [&](std::span<const float> noisy, double time, std::span<float> prediction) {
    const NoiseCoefficients at = noising.at(noising.is_flow() ? time / 1000 : (time + 0.5) / 1000);
    for (size_t i = 0; i < noisy.size(); ++i) {
      const double noise = (noisy[i] - at.signal * image[i]) / at.noise;
      prediction[i] = static_cast<float>(at.target_signal * image[i] + at.target_noise * noise);
    }
  };
  sample(noising, sampler, denoise, x);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], image[i], tolerance);
}

TEST(Sampler, FindsTheOneImageThereIs) {
  for (const int64_t steps : {1, 7, 50}) {
    expect_to_find(Objective::flow, {.steps = steps}, 1e-4);
    expect_to_find(Objective::flow, {.steps = steps, .shift = 3}, 1e-4);
    for (const Objective objective : {Objective::epsilon, Objective::v})
      for (const Solver solver : {Solver::ddim, Solver::dpm})
        expect_to_find(objective, {.solver = solver, .steps = steps}, 2e-3);
  }
}

TEST(Sampler, LevelsGoFromNoiseToTheImage) {
  EXPECT_THAT(sampler_levels({.steps = 4}), testing::ElementsAre(1, 0.75, 0.5, 0.25, 0));
  EXPECT_THAT(sampler_levels({.steps = 2, .shift = 3}), testing::ElementsAre(1, 0.75, 0));
}

TEST(Sampler, NoiseDependsOnSeedAndNumberAlone) {
  std::vector<float> one(8), two(8), other(8);
  draw_noise(1, 2, one);
  draw_noise(1, 2, two);
  draw_noise(1, 3, other);
  EXPECT_EQ(one, two);
  EXPECT_NE(one, other);
}

}  // namespace
}  // namespace hearth::tasks
