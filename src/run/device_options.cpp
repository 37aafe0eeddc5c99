#include "run/device_options.h"

namespace hearth::run {
namespace {

exec::Record record_of(recipe::Record record) {
  switch (record) {
    case recipe::Record::always:
      return exec::Record::always;
    case recipe::Record::never:
      return exec::Record::never;
    case recipe::Record::automatic:
      break;
  }
  return exec::Record::automatic;
}

}  // namespace

exec::GpuWish gpu_of(const recipe::Recipe& recipe, int device) {
  return {.device = recipe.device,
          .number = device,
          .reserve_bytes = recipe.reserve,
          .record = record_of(recipe.record)};
}

exec::SelfTest::When self_test_of(const recipe::Recipe& recipe) {
  using When = exec::SelfTest::When;
  switch (recipe.self_test) {
    case recipe::SelfTest::always:
      return When::always;
    case recipe::SelfTest::never:
      return When::never;
    case recipe::SelfTest::once:
      break;
  }
  return When::once;
}

encoders::Compute compute_of(const recipe::Recipe& recipe, int device) {
  encoders::Compute compute{.num_threads = recipe::num_threads(recipe), .self_test = self_test_of(recipe)};
  if (recipe.device != recipe::kCpu) compute.gpu = gpu_of(recipe, device);
  return compute;
}

}  // namespace hearth::run
