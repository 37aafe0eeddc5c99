// A plan that does not fit a GPU says what would.
#include <gmock/gmock.h>

#include <sstream>

#include "base/error.h"
#include "engine/gpu_course.h"
#include "engine/plan_builder.h"
#include "run/from_recipe.h"
#include "run/trainer.h"

namespace hearth::run {
namespace {

class GpuFit : public engine::GpuTraining {
 protected:
  static recipe::Recipe recipe(std::vector<std::string> overrides) {
    for (const char* fixed :
         {"device=emulated", "self_test=never", "model=mlp", "model.hidden=[450,700]", "data=shapes",
          "data.image_size=16", "train.steps=2", "data.val_count=16", "optimizer.momentum=0.9"})
      overrides.emplace(overrides.begin(), fixed);
    return parse_recipe("", "a test", overrides);
  }
  static int64_t gpu_bytes(const recipe::Recipe& recipe) {
    const engine::EngineOptions options = engine_options(tasks::Job(recipe));
    return engine::make_plan(options, std::span(&recipe.train.batch, 1), std::span(&recipe.train.batch, 1))
        .gpu_bytes();
  }
  static RunSummary train(const recipe::Recipe& recipe) {
    const TemporaryFolder folder;
    return Trainer(tasks::Job(recipe), folder.path() / "run",
                   {[](const Progress&) {}, [](const std::string&) {}, nullptr})
        .run(false);
  }
};

TEST_F(GpuFit, WhatIsPastedTrains) {
  for (const std::vector<std::string>& plan :
       {std::vector<std::string>{"train.batch=16"}, {"train.batch=256", "model.hidden=[64,64]"}}) {
    emu::gpus() = {{.memory_bytes = gpu_bytes(recipe(plan)) * 9 / 10}};
    std::string message;
    try {
      train(recipe(plan));
    } catch (const UserError& error) {
      message = error.what();
    }
    EXPECT_THAT(message, testing::HasSubstr("the plan needs"));
    EXPECT_THAT(message, testing::HasSubstr("arena (packed)")) << "the table";
    std::istringstream lines(message);
    int num_ways = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.find(" times as long)") == line.npos) continue;
      std::istringstream words(line.substr(0, line.find("   (")));
      std::vector<std::string> pasted = plan;
      for (std::string word; words >> word;) pasted.push_back(word);
      EXPECT_EQ(train(recipe(pasted)).steps, 2) << line;
      ++num_ways;
    }
    EXPECT_GE(num_ways, 1) << message;
    EXPECT_LE(num_ways, 3);
  }
}

}  // namespace
}  // namespace hearth::run
