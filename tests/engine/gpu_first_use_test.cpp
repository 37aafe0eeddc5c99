// What happens before the first step on a GPU: kernels are tried, and a plan that does not fit says
// what would.
#include <gmock/gmock.h>

#include <sstream>

#include "base/error.h"
#include "engine/gpu_course.h"
#include "engine/gpu_fit.h"
#include "ops/gpu_support.h"
#include "ops/op_list.h"
#include "run/from_recipe.h"
#include "run/trainer.h"

namespace hearth::engine {
namespace {

using testing::HasSubstr;

__global__ void always_one(float* out, int64_t count) {
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) out[i] = 1;
}
ir::Kernel wrong_kernel(const ir::NodeView& node) {
  const int64_t count = node.out_type(0).shape.num_elements();
  return {.run = [=](const ir::KernelArgs& args) {
    rt::launch(always_one, {1, 32}, args.stream->handle(), ops::output_of<float>(args, 0), count);
  }};
}

/// The graph of another objective with a wrong kernel in it.
class Planted : public Objective {
 public:
  Planted(std::shared_ptr<const Objective> other, std::string_view op)
      : other_(std::move(other)), planted_(*ops::find_op(op)) {
    planted_.gpu = wrong_kernel;
  }
  Graph build(nn::Builder& builder, BatchShape shape) const override {
    Graph graph = other_->build(builder, shape);
    for (ir::Node& node : builder.graph().nodes) {
      if (node.op->name == planted_.name) node.op = &planted_;
    }
    return graph;
  }

 private:
  std::shared_ptr<const Objective> other_;
  ir::OpDef planted_;
};

TEST_F(GpuTraining, AKernelThatIsWrongIsFoundAndTheHostComputesInItsPlace) {
  EngineOptions options = pictures();
  options.passes_off = {"fuse_epilogues", "fuse_elementwise"};
  const auto losses = [](const EngineOptions& options) {
    Course course(options);
    std::vector<double> losses;
    for (int i = 0; i < 3; ++i) losses.push_back(course.step().loss);
    return losses;
  };
  const std::vector<double> want = losses(on_gpu(options));
  options.objective = std::make_shared<Planted>(options.objective, "relu");
  EXPECT_NE(losses(on_gpu(options)), want);
  options.self_test.when = exec::SelfTest::When::always;
  EXPECT_EQ(losses(on_gpu(options)), want);
  EXPECT_EQ(Course(on_gpu(options)).engine().distrusted().count("relu(f32) -> f32"), 1U);
}

class GpuFit : public GpuTraining {
 protected:
  static recipe::Recipe recipe(std::vector<std::string> overrides) {
    for (const char* fixed :
         {"device=emulated", "self_test=never", "model=mlp", "model.hidden=[450,700]", "data=shapes",
          "data.image_size=16", "train.steps=2", "data.val_count=16", "optimizer.momentum=0.9"})
      overrides.emplace(overrides.begin(), fixed);
    return run::parse_recipe("", "a test", overrides);
  }
  static int64_t gpu_bytes(const recipe::Recipe& recipe) {
    EngineOptions options = run::engine_options(recipe);
    options.plan_only = true;
    return Engine(options, std::span(&recipe.train.batch, 1), std::span(&recipe.train.batch, 1)).gpu_bytes();
  }
  static run::RunSummary train(const recipe::Recipe& recipe) {
    const TemporaryFolder folder;
    return run::Trainer(recipe, folder.path() / "run",
                        {[](const run::Progress&) {}, [](const std::string&) {}, nullptr})
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
    EXPECT_THAT(message, HasSubstr("expected a plan of at most"));
    EXPECT_THAT(message, HasSubstr("arena (packed)")) << "the table";
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
}  // namespace hearth::engine
