// Kernel launches of a training step, the bytes that separate additions and casts move, and on AMD all bytes
// that a step of an image model moves. All may only fall.
#include <gtest/gtest.h>

#include <string>

#include "bench/case.h"
#include "bench/open_workload.h"
#include "planner/step_model.h"

namespace hearth::bench {
namespace {

struct Bound {
  const char* name;
  int64_t max_launches;
  double max_gigabytes;  ///< moved by the ops add and cast
};

class Launches : public testing::TestWithParam<Bound> {};

TEST_P(Launches, AreFew) {
  engine::EngineOptions options = engine_options(find_bench_case(GetParam().name), {});
  options.optimizer.in_backward = false;
  const planner::StepModel model = planner::model_step(options, cost::find_gpu("h200"));
  double bytes = 0;
  for (const auto& row : model.roofline.rows)
    if (row.op == "add" || row.op == "cast") bytes += row.bytes;
  EXPECT_LE(model.roofline.launches, GetParam().max_launches);
  EXPECT_LE(bytes, GetParam().max_gigabytes * 1e9);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Launches,
    testing::Values(Bound{"llama1b-b4-bf16", 510, 7.6}, Bound{"llama1b_lora-b4-bf16", 749, 0.3},
                    Bound{"llama1b_qlora-b4-bf16", 749, 0.3}, Bound{"resnet50-b128-bf16", 282, 0.3},
                    Bound{"yolox_s-b16-bf16", 589, 1.0}, Bound{"flux_tiny-b4-bf16", 617, 0.5}),
    [](const auto& bound) {
      std::string name = bound.param.name;
      for (char& c : name)
        if (c == '-') c = '_';
      return name;
    });

TEST(MovedBytes, OfImageModelsAreFew) {
  const auto gigabytes = [](const char* name) {
    const engine::EngineOptions options = engine_options(find_bench_case(name), {});
    return planner::model_step(options, cost::find_gpu("rx7900xt")).roofline.bytes / 1e9;
  };
  EXPECT_LE(gigabytes("resnet50-b128-bf16"), 35.5);
  EXPECT_LE(gigabytes("yolox_s-b16-bf16"), 16.5);
}

}  // namespace
}  // namespace hearth::bench
