#include "tasks/predictor.h"

#include <cmath>

#include "base/error.h"

namespace hearth::tasks {

void check_finite(double result, const fs::path& weights) {
  if (std::isfinite(result)) return;
  user_error(
      "expected weights that give finite numbers, got others from {}; try another run, or train again "
      "with a lower optimizer.lr",
      weights.string());
}

}  // namespace hearth::tasks
