// LoRA adapters on an emulated GPU, where fuse_adapters computes the products of one input together.
#include "cost/device.h"
#include "engine/gpu_course.h"
#include "hub/weights.h"
#include "ir/op_def.h"

namespace hearth::engine {
namespace {

int64_t count(Course& course, std::string_view op) {
  const std::vector<ir::Node>& nodes = course.engine().plan().train_program().graph.nodes;
  return std::ranges::count_if(nodes, [&](const ir::Node& node) { return node.op->name == op; });
}

class GpuAdapters : public GpuTraining {
 protected:
  static EngineOptions adapted(std::vector<std::string> passes_off) {
    EngineOptions options = on_gpu(text());
    options.precision = DType::bf16;
    options.device = cost::emulated_gpu(options.precision);
    options.adapter = {.rank = 8, .scale = 1.5};
    options.passes_off = std::move(passes_off);
    return options;
  }
};

TEST_F(GpuAdapters, OfOneInputTrainTogetherAsApart) {
  Course together(adapted({})), apart(adapted({"fuse_adapters"}));
  // q, k and v; gate and up; in each of two layers.
  EXPECT_EQ(count(together, "low_rank_up"), 4);
  EXPECT_EQ(count(together, "low_rank_grad"), 4);
  EXPECT_EQ(count(apart, "low_rank_up"), 0);
  EXPECT_LE(count(together, "matmul") + 3 * 4, count(apart, "matmul") - 30);
  for (Course* course : {&together, &apart}) hub::initialize_frozen(course->engine());
  for (int64_t step = 0; step < kSteps; ++step) {
    const StepResult want = apart.step(), got = together.step();
    ASSERT_NEAR(got.loss, want.loss, 4e-3 * want.loss) << "step " << step;
    ASSERT_NEAR(got.grad_norm, want.grad_norm, 3e-2 * want.grad_norm) << "step " << step;
  }
  const double want = apart.engine().evaluate(apart.batch());
  EXPECT_NEAR(together.engine().evaluate(together.batch()), want, 4e-3 * want);
}

}  // namespace
}  // namespace hearth::engine
