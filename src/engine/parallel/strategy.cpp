#include "engine/parallel/strategy.h"

#include <algorithm>

#include "base/error.h"

namespace hearth::engine {
namespace {

struct Row {
  Parallel parallel;
  std::unique_ptr<Strategy> (*make)();
};
constexpr Row kStrategies[] = {
    {Parallel::data, make_data},           {Parallel::zero1, make_zero},
    {Parallel::sharded, make_sharded},     {Parallel::pipeline, make_pipeline},
    {Parallel::local_sgd, make_local_sgd},
};

}  // namespace

void set_scalars(exec::Executor& executor, const Divisors& divisors, bool is_present, double learning_rate) {
  executor.set_scalar(kInverseSamples, is_present ? static_cast<float>(1.0 / divisors.num_samples) : 0.0F);
  executor.set_scalar(kPresent, is_present ? 1.0F : 0.0F);
  executor.set_scalar(kInverseMicro, static_cast<float>(1.0 / static_cast<double>(divisors.num_micro)));
  executor.set_scalar(kLearningRate, static_cast<float>(learning_rate));
  executor.set_scalar("one", 1.0F);
}

std::unique_ptr<Strategy> make_strategy(Parallel parallel) {
  const auto* const row = std::ranges::find(kStrategies, parallel, &Row::parallel);
  HEARTH_CHECK(row != std::end(kStrategies));
  return row->make();
}

}  // namespace hearth::engine
