// Training on an emulated GPU: the same course as on the processor, and clear words where the GPU is the
// reason.
#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "engine/gpu_course.h"
#include "engine/inspect.h"
#include "engine/plan_builder.h"

namespace hearth::engine {
namespace {

TEST_F(GpuTraining, TakesTheCourseOfTheProcessor) {
  for (EngineOptions options : {images(), text()}) {
    for (const int64_t accumulate : {1, 2}) {
      options.accumulate = accumulate;
      Course here(options), there(on_gpu(options));
      EXPECT_LT(there.engine().plan().train_program().num_host_nodes,
                std::ssize(there.engine().plan().train_program().graph.nodes));
      for (int64_t step = 0; step < kSteps; ++step) {
        const StepResult want = here.step(), got = there.step();
        ASSERT_NEAR(got.loss, want.loss, 1e-4 * want.loss) << "step " << step;
        ASSERT_NEAR(got.grad_norm, want.grad_norm, 1e-3 * want.grad_norm) << "step " << step;
      }
      EXPECT_NEAR(there.engine().evaluate(there.batch()), here.engine().evaluate(here.batch()), 1e-3);
    }
  }
}

TEST_F(GpuTraining, LeavesMatmulsToALibraryThatIsFaster) {
  emu::gpus() = {{.library = emu::GpuSettings::Library::right}};
  const TemporaryFolder folder;
  for (EngineOptions options : {images(), text()}) {
    Course here(options);
    options.matmul_cache = folder.path() / "matmuls.json";
    Course there(on_gpu(options));
    int num_left = 0;
    for (const ir::Node& node : there.engine().plan().train_program().graph.nodes)
      num_left += node.attrs.text_or("way", "") == "library" ? 1 : 0;
    EXPECT_GT(num_left, 0);
    for (int64_t step = 0; step < kSteps; ++step) {
      const StepResult want = here.step(), got = there.step();
      ASSERT_NEAR(got.loss, want.loss, 1e-4 * want.loss) << "step " << step;
      ASSERT_NEAR(got.grad_norm, want.grad_norm, 1e-3 * want.grad_norm) << "step " << step;
    }
  }
}

TEST_F(GpuTraining, StateComesAndGoesBitForBit) {
  Course whole(on_gpu(text())), rest(on_gpu(text()));
  const auto kept = whole.state_after(3);
  rest.state_after(3);
  const double want = whole.step().loss;
  std::ranges::fill(rest.engine().state(), std::byte{0});
  EXPECT_NE(rest.engine().evaluate(whole.batch()), want) << "what the host writes reaches the GPU";
  std::ranges::copy(kept, rest.engine().state().begin());
  EXPECT_EQ(rest.step().loss, want);
  EXPECT_TRUE(std::ranges::equal(rest.engine().state(), whole.engine().state()));
}

TEST_F(GpuTraining, NamesTheFirstThatIsNotFinite) {
  Course course(on_gpu(images()));
  values(course.engine(), "fc1.weight")[3] = std::nanf("");
  EXPECT_THAT(Inspector(course.engine()).find_not_finite(course.batch(), 0, 0),
              testing::HasSubstr("fc1.weight"));
}

TEST_F(GpuTraining, APlanThatIsTooLargeIsRefusedBeforeTheFirstStep) {
  emu::gpus() = {{.memory_bytes = 100000}};
  try {
    Course course(on_gpu(text()));
    ADD_FAILURE() << "nothing was refused";
  } catch (const DoesNotFit& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("but emulated GPU 0 has only 97.7 KiB of usable memory"));
    EXPECT_EQ(error.usable_bytes, 100000);
    EXPECT_EQ(error.needed_bytes, error.plan->gpu_bytes());
    EXPECT_GT(error.needed_bytes, error.usable_bytes);
  }
}

TEST_F(GpuTraining, CompilingNeedsNoDevice) {
  const EngineOptions options = on_gpu(images());
  const int64_t want = Course(options).engine().plan().gpu_bytes();
  emu::gpus().clear();
  EXPECT_EQ(make_plan(options, std::vector{kBatch}, std::vector{kBatch}).gpu_bytes(), want);
  EXPECT_THROW(Course{options}, UserError);
}

TEST_F(GpuTraining, AFaultOfTheGpuIsTheGpus) {
  emu::gpus() = {{.faulty_launch = 30}};
  Course course(on_gpu(text()));
  EXPECT_THROW(
      {
        for (int i = 0; i < 20; ++i) course.step();
      },
      gpu::DeviceError);
}

}  // namespace
}  // namespace hearth::engine
