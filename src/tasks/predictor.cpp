#include "tasks/predictor.h"

#include <cmath>

#include "base/error.h"

namespace hearth::tasks {

void check_finite(double result, const fs::path& weights) {
  if (std::isfinite(result)) return;
  user_error(
      "{}: results of these weights are not finite (NaN or infinite); use another run, or train with a lower "
      "optimizer.lr",
      weights.string());
}

}  // namespace hearth::tasks
