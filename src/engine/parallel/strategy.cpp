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

std::unique_ptr<Strategy> make_strategy(Parallel parallel) {
  const auto* const row = std::ranges::find(kStrategies, parallel, &Row::parallel);
  HEARTH_CHECK(row != std::end(kStrategies));
  return row->make();
}

}  // namespace hearth::engine
