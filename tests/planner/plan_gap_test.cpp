#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string_view>

#include "engine/plan_builder.h"
#include "planner/plan_report.h"
#include "tasks/classify/classifier.h"

namespace hearth::planner {
namespace {

constexpr double kMostGap = 0.01;
constexpr const char* kModels[] = {"mlp", "simplecnn", "smallcnn", "resnet18", "resnet34", "resnet50"};

engine::EngineOptions options_of(const char* model, int64_t batch, int64_t image_size = 32) {
  return {.objective = tasks::classifier({.model = {.name = model, .image_size = image_size}}),
          .batch = batch};
}

/// The training step as it is, then with its arena held to shares of that.
void expect_tight(std::string_view model, engine::EngineOptions options,
                  std::initializer_list<double> shares) {
  const PlanReport free = make_plan_report(options);
  const std::string name = fmt::format("{} at batch {}", model, options.batch);
  EXPECT_LE(free.gap(), kMostGap) << name;
  for (const double share : shares) {
    options.budget_bytes = static_cast<int64_t>(static_cast<double>(free.arena_bytes) * share);
    const PlanReport held = make_plan_report(options);
    EXPECT_LE(held.gap(), kMostGap) << name << " held to " << share;
    EXPECT_LE(held.arena_bytes, free.arena_bytes) << name << " held to " << share;
  }
}

TEST(PlanGap, IsBelowOnePercentForEveryModel) {
  for (const char* model : kModels) expect_tight(model, options_of(model, 16), {});
}

TEST(PlanGap, SurvivesRecomputation) {
  for (const char* model : {"mlp", "simplecnn", "resnet18"})
    expect_tight(model, options_of(model, 32), {0.5});
}

TEST(PlanGap, ThePlanIsTheSameEveryTime) {
  engine::EngineOptions options = options_of("resnet18", 8);
  options.budget_bytes = make_plan_report(options).arena_bytes / 2;
  const auto offsets = [&] {
    return engine::make_plan(options, std::span(&options.batch, 1), {}).train_program().solution.offsets;
  };
  EXPECT_EQ(offsets(), offsets());
}

TEST(SlowPlanGap, IsBelowOnePercentForEveryModelAndBatch) {
  for (const char* model : kModels) {
    for (const int64_t batch : {1, 8, 16, 32, 64, 128}) {
      // Batch normalization of single rows is refused.
      if (batch == 1 && std::string_view(model) == "mlp") continue;
      expect_tight(model, options_of(model, batch), {0.75, 0.5, 0.25});
    }
  }
}

TEST(SlowPlanGap, IsBelowOnePercentForLargeImages) {
  for (const char* model : {"resnet18", "resnet50"}) {
    for (const int64_t batch : {1, 32}) expect_tight(model, options_of(model, batch, 224), {0.5});
  }
}

TEST(SlowPlanGap, IsBelowOnePercentInHalfPrecisionAndWithAccumulation) {
  for (const char* model : kModels) {
    engine::EngineOptions options = options_of(model, 32);
    options.precision = DType::bf16;
    expect_tight(model, options, {0.5});
    options.precision = DType::f32;
    options.accumulate = 4;
    expect_tight(model, options, {0.5});
  }
}

TEST(SlowPlanGap, IsBelowOnePercentWithTheWorkspacesOfMoreThreads) {
  for (const char* model : kModels) {
    engine::EngineOptions options = options_of(model, 32);
    for (const int num_threads : {2, 4, 6, 8, 12, 16, 24}) {
      options.num_threads = num_threads;
      expect_tight(model, options, {0.5});
    }
  }
}

}  // namespace
}  // namespace hearth::planner
