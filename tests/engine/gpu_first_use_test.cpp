// What happens before the first step on a GPU: kernels are tried.
#include <gtest/gtest.h>

#include "engine/gpu_course.h"
#include "planted_kernel.h"

namespace hearth::engine {
namespace {

__global__ void always_one(float* out, int64_t count) {
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) out[i] = 1;
}
ir::Kernel wrong_kernel(const ir::NodeView& node) {
  const int64_t count = node.out_type(0).shape.num_elements();
  return {.run = [=](const ir::KernelArgs& args) {
    rt::launch(always_one, {1, 32}, args.stream->handle(), ops::output_of<float>(args, 0), count);
  }};
}

TEST_F(GpuTraining, AKernelThatIsWrongIsFoundAndTheHostComputesInItsPlace) {
  EngineOptions options = images();
  options.passes_off = {"fuse_epilogues", "fuse_elementwise"};
  const auto losses = [](const EngineOptions& options) {
    Course course(options);
    std::vector<double> losses;
    for (int i = 0; i < 3; ++i) losses.push_back(course.step().loss);
    return losses;
  };
  const std::vector<double> want = losses(on_gpu(options));
  const PlantedKernel planted("relu", wrong_kernel);
  EXPECT_NE(losses(on_gpu(options)), want);
  options.self_test.when = SelfTestMode::always;
  EXPECT_EQ(losses(on_gpu(options)), want);
  EXPECT_EQ(Course(on_gpu(options)).engine().device().failed_kernels.count("relu(f32) -> f32"), 1U);
}

}  // namespace
}  // namespace hearth::engine
