// Training whose matmuls in transformer blocks have operands of 8 bits.
#include <cmath>

#include "engine/gpu_course.h"
#include "ir/op_def.h"

namespace hearth::engine {
namespace {

class Matmuls : public GpuTraining, public testing::WithParamInterface<MatmulPrecision> {
 protected:
  static EngineOptions rounded_text(MatmulPrecision precision) {
    EngineOptions options = text();
    options.precision = DType::bf16;
    options.matmul_precision = precision;
    return options;
  }
};

int64_t num_nodes(const Engine& engine, std::string_view op) {
  return std::ranges::count_if(engine.plan().train_program().graph.nodes,
                               [&](const ir::Node& node) { return node.op->name == op; });
}

TEST_P(Matmuls, LearnLikeThoseOfSixteenBits) {
  Course rounded(rounded_text(GetParam())), plain(rounded_text(MatmulPrecision::same));
  EXPECT_EQ(num_nodes(plain.engine(), "round_e4m3"), 0);
  EXPECT_GT(num_nodes(rounded.engine(), "round_e4m3"), 0);
  double got = 0, want = 0;
  for (int64_t step = 0; step < 100; ++step) {
    got = rounded.step().loss;
    want = plain.step().loss;
    EXPECT_NE(got, want) << step;
  }
  EXPECT_NEAR(got, want, 0.01 * want);
}

TEST_P(Matmuls, TrainOnAnEmulatedGpuAsOnTheCpu) {
  Course gpu(on_gpu(rounded_text(GetParam()))), cpu(rounded_text(GetParam()));
  for (int64_t step = 0; step < 4; ++step) {
    const double want = cpu.step().loss;
    // Sums that differ in their last bit are sometimes rounded to another E4M3 value.
    EXPECT_NEAR(gpu.step().loss, want, (step == 0 ? 1e-3 : 5e-3) * want) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, Matmuls,
                         testing::Values(MatmulPrecision::fp8, MatmulPrecision::fp8_tensor,
                                         MatmulPrecision::fp8_blocks),
                         [](const auto& info) {
                           std::string name(name_of(info.param));
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace hearth::engine
