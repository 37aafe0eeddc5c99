// Two workers that send less of their gradients, or seldom: the loss is nearly that of all gradients, the
// bytes are as few as promised, and a run that was stopped ends with the bits of one that was not.
#include <gtest/gtest.h>

#include <numeric>

#include "backend/gpu/emu/stream.h"
#include "engine/group_run.h"

namespace hearth::engine {
namespace {

/// Weights of [192, 64] are worth factors of rank 4, those of [64, 10] are not.
constexpr int64_t kLarge = 192 * 64, kSmall = 64 * 10, kVectors = 64 + 10 + 2 * 64;
constexpr int64_t kNumWeights = 6;
/// A batch norm's statistics are summed as they are.
constexpr int64_t kStatisticBytes = 4 * 2 * 64;
constexpr int64_t kLinkSteps = 240;
constexpr const char* kLinkImages = R"(
model: {name: mlp, num_classes: 10, hidden: [64], dropout: 0}
data: {kind: shapes, image_size: 8, count: 192, val_count: 20, threads: 1}
train: {steps: 240, batch: 8, accumulate: 2, checkpoint_every: 7, eval_every: 240, log_every: 1}
optimizer: {name: sgd, lr: 0.02, momentum: 0.9}
schedule: {name: constant}
threads: 1
)";

struct Way {
  const char* name;
  std::string exchange;
  int64_t sent_bytes;  ///< in all steps
  double most_loss;    ///< of that without it, over the last epoch
};

void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

double last_loss(const run::Outcome& outcome) {
  constexpr int64_t kEpoch = 12;
  return std::accumulate(outcome.losses.end() - kEpoch, outcome.losses.end(), 0.0) / kEpoch;
}

std::string shortened(const std::string& yaml) { return replaced(yaml, "steps: 240", "steps: 20"); }

class SlowLink : public testing::TestWithParam<Way> {
 protected:
  std::string recipe() const { return kLinkImages + GetParam().exchange; }
};

TEST_P(SlowLink, LearnsAsWellFromFewerBytes) {
  const TemporaryFolder folder(run::quick_folder());
  int64_t sent_bytes = 0;
  const run::Outcome got = train_with(recipe(), 2, folder.path(), 0, false, &sent_bytes);
  const run::Outcome want = train_with(kLinkImages, 2);
  ASSERT_EQ(std::ssize(got.losses), kLinkSteps);
  EXPECT_EQ(sent_bytes, GetParam().sent_bytes);
  EXPECT_LT(last_loss(got), GetParam().most_loss * last_loss(want))
      << got.losses[0] << " to " << last_loss(got) << " and " << last_loss(want);
}

TEST_P(SlowLink, GoesOnWithTheSameBits) {
  const TemporaryFolder folder(run::quick_folder());
  const run::Outcome want = train_with(recipe(), 2);
  train_with(recipe(), 2, folder.path(), 10, false);
  train_with(recipe(), 2, folder.path(), 15, true);
  expect_same(train_with(recipe(), 2, folder.path(), 0, true), want, "in turns");
}

TEST_P(SlowLink, SaysThatEachWorkerHasItsOwnStates) {
  const TemporaryFolder folder(run::quick_folder());
  train_with(recipe(), 2, folder.path(), 1, false);
  try {
    train_with(recipe(), 1, folder.path(), 0, true);
    ADD_FAILURE();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("set devices=2"), std::string::npos) << error.what();
  }
}

TEST_P(SlowLink, GoesAsWellBetweenGpus) {
  emu::gpus() = {{}, {}};
  const std::string few = recipe() + "device: emulated\nself_test: never\n";
  const std::vector<double> want = train_with(shortened(recipe()), 2).losses;
  const std::vector<double> got = train_with(shortened(few), 2).losses;
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-3) << i;
  emu::gpus() = {{}};
}

INSTANTIATE_TEST_SUITE_P(
    Ways, SlowLink,
    testing::Values(Way{"Bf16", "exchange: {compress: bf16}\n",
                        kLinkSteps*(2 * (kLarge + kSmall + kVectors) + kStatisticBytes), 1.15},
                    Way{"Fp8", "exchange: {compress: fp8}\n",
                        kLinkSteps*(kLarge + kSmall + kVectors + 4 * kNumWeights + kStatisticBytes), 1.15},
                    Way{"PowerSgd", "exchange: {compress: powersgd}\n",
                        kLinkSteps*(4 * (4 * (192 + 64) + kSmall + kVectors) + kStatisticBytes), 1.3},
                    Way{"LocalSteps", "exchange: {local_steps: 8}\n",
                        kLinkSteps / 8 * (4 * (kLarge + kSmall + kVectors) + kStatisticBytes), 1.3}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hearth::engine
