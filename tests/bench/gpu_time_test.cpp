// Tests that steps on a GPU are timed by its events.
#include <gtest/gtest.h>

#include "backend/gpu/emu/stream.h"
#include "bench/case.h"

namespace hearth::bench {
namespace {

TEST(GpuTime, OfAStepComesFromEvents) {
  // Events of this GPU count launched threads, of which every step has the same number.
  emu::gpus() = {{.counts_threads = true}};
  const BenchCase bench = tiny_case(find_bench_case("mlp-b64-fp32"));
  const BenchResult result = run_bench(bench, 2, {.device = "emulated"});
  emu::gpus() = {{}};
  ASSERT_EQ(result.step_seconds.size(), 2U);
  EXPECT_GT(result.step_seconds[0], 0);
  EXPECT_EQ(result.step_seconds[0], result.step_seconds[1]);
}

}  // namespace
}  // namespace hearth::bench
