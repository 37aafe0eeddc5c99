// Every optimizer takes the processor's course on an emulated GPU, which lends nothing to the host.
#include "engine/gpu_course.h"

namespace hearth::engine {
namespace {

class GpuOptimizer : public GpuTraining, public testing::WithParamInterface<std::string> {
 protected:
  static EngineOptions options() {
    EngineOptions made = GetParam() == "adamw" ? text() : images();
    made.optimizer = {.name = GetParam(), .weight_decay = 0.01, .clip_norm = 1, .ema_decay = 0.9};
    return made;
  }
  /// Signs and 8-bit codes turn over by a rounding, so steps are small; Lion's a tenth of the others', as
  /// usual.
  static double rate() { return GetParam() == "lion" ? 1e-4 : 1e-3; }
  static void expect_course(const EngineOptions& options, double tolerance) {
    Course here(options), there(on_gpu(options));
    EXPECT_EQ(there.engine().plan().train_program().num_host_nodes, 0);
    for (int64_t step = 0; step < kSteps; ++step) {
      const StepResult want = here.step(rate()), got = there.step(rate());
      ASSERT_NEAR(got.loss, want.loss, tolerance * want.loss) << "step " << step;
      ASSERT_EQ(got.skipped, want.skipped) << "step " << step;
    }
    const double want = here.engine().evaluate(here.batch());
    EXPECT_NEAR(there.engine().evaluate(there.batch()), want, tolerance * want);
  }
};

TEST_P(GpuOptimizer, TakesTheCourseOfTheProcessor) { expect_course(options(), 1e-4); }

TEST_P(GpuOptimizer, ScalesTheLossOfHalves) {
  EngineOptions halves = options();
  halves.precision = DType::f16;
  expect_course(halves, 1e-2);
}

INSTANTIATE_TEST_SUITE_P(All, GpuOptimizer,
                         testing::ValuesIn(optimizer_names().begin(), optimizer_names().end()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hearth::engine
