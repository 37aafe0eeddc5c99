// Training on an emulated card: the same course as on the processor, and clear words where the card is the
// reason.
#include <gmock/gmock.h>

#include <cmath>

#include "backend/gpu/emu/stream.h"
#include "base/error.h"
#include "base/philox.h"
#include "models/decoder/config.h"
#include "temporary_folder.h"
#include "tiny_language_model.h"
#include "train/classifier.h"
#include "train/engine.h"
#include "train/language_model.h"

namespace hearth::train {
namespace {

constexpr int64_t kBatch = 4;
constexpr int64_t kSteps = 20;
constexpr size_t kSlack = 16;

class CardTraining : public testing::Test {
 protected:
  ~CardTraining() override { emu::cards() = {{}}; }

  static EngineOptions pictures() {
    EngineOptions options{
        .objective = classifier({.model = {.name = "mlp", .image_size = 8, .hidden = {24}}}),
        .batch = kBatch,
        .seed = 5,
        .num_threads = 2};
    options.optimizer.momentum = 0.9;
    return options;
  }
  static EngineOptions text() {
    const TemporaryFolder folder;
    write_tiny_model(folder.path());
    EngineOptions options{
        .objective = language_model(
            {.config = models::read_decoder_config(folder.path() / "config.json"), .context = 16}),
        .batch = kBatch,
        .seed = 5,
        .num_threads = 2};
    options.optimizer.name = "adamw";
    options.optimizer.clip_norm = 1;
    return options;
  }
  static EngineOptions on_card(EngineOptions options) {
    options.backend = exec::Backend::gpu;
    return options;
  }
};

/// One micro-batch for either kind of model, again and again.
class Course {
 public:
  explicit Course(const EngineOptions& options)
      : is_text_(options.optimizer.name == "adamw"),
        engine_(options, std::vector{kBatch}, std::vector{kBatch}),
        pictures_(kBatch * 8 * 8 * 3 + kSlack),
        numbers_(3, std::vector<int32_t>(kBatch * 16 + kSlack)) {
    PhiloxSequence random(3, 0);
    for (float& value : pictures_) value = random.uniform(-1, 1);
    for (auto& row : numbers_) {
      for (int32_t& number : row) number = static_cast<int32_t>(random.below(is_text_ ? 90 : 10));
    }
    for (size_t i = 0; i < numbers_[2].size(); ++i) numbers_[2][i] = static_cast<int32_t>(i % 16);
    engine_.initialise();
  }
  MicroBatch batch() const {
    if (is_text_) return {{numbers_[0].data(), numbers_[1].data(), numbers_[2].data()}, kBatch};
    return {{pictures_.data(), numbers_[0].data()}, kBatch};
  }
  StepResult step() {
    const int64_t num_micro = engine_.options().accumulate;
    return engine_.train_step(
        num_micro, num_micro * kBatch * (is_text_ ? 16 : 1), [&] { return batch(); }, num_steps_++, 0.01);
  }
  Engine& engine() { return engine_; }

 private:
  bool is_text_;
  Engine engine_;
  std::vector<float> pictures_;
  std::vector<std::vector<int32_t>> numbers_;
  int64_t num_steps_ = 0;
};

TEST_F(CardTraining, TakesTheCourseOfTheProcessor) {
  for (EngineOptions options : {pictures(), text()}) {
    for (const int64_t accumulate : {1, 2}) {
      options.accumulate = accumulate;
      Course here(options), there(on_card(options));
      EXPECT_LT(there.engine().train_program().num_host_nodes(),
                std::ssize(there.engine().train_program().graph().nodes));
      for (int64_t step = 0; step < kSteps; ++step) {
        const StepResult want = here.step(), got = there.step();
        ASSERT_NEAR(got.loss, want.loss, 1e-4 * want.loss) << "step " << step;
        ASSERT_NEAR(got.grad_norm, want.grad_norm, 1e-3 * want.grad_norm) << "step " << step;
      }
      EXPECT_NEAR(there.engine().evaluate(there.batch()), here.engine().evaluate(here.batch()), 1e-3);
    }
  }
}

TEST_F(CardTraining, StateComesAndGoesBitForBit) {
  Course whole(on_card(text())), rest(on_card(text()));
  for (int i = 0; i < 3; ++i) whole.step();
  for (int i = 0; i < 3; ++i) rest.step();
  const std::vector<std::byte> kept(whole.engine().state().begin(), whole.engine().state().end());
  const double want = whole.step().loss;
  for (std::byte& byte : rest.engine().state()) byte = std::byte{0};
  EXPECT_NE(rest.step().loss, want) << "what the host writes reaches the card";
  std::ranges::copy(kept, rest.engine().state().begin());
  EXPECT_EQ(rest.step().loss, want);
  EXPECT_TRUE(std::ranges::equal(rest.engine().state(), whole.engine().state()));
}

TEST_F(CardTraining, NamesTheFirstThatIsNotFinite) {
  Course course(on_card(pictures()));
  course.engine().values("fc1.weight")[3] = std::nanf("");
  EXPECT_THAT(course.engine().find_not_finite(course.batch(), 0, 0), testing::HasSubstr("fc1.weight"));
}

TEST_F(CardTraining, APlanThatIsTooLargeIsRefusedBeforeTheFirstStep) {
  emu::cards() = {{.memory_bytes = 100000}};
  try {
    Course course(on_card(text()));
    ADD_FAILURE() << "nothing was refused";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("expected a plan of at most 97.7 KiB on emulated card 0"));
  }
}

TEST_F(CardTraining, AFaultOfTheCardIsTheCards) {
  emu::cards() = {{.faulty_launch = 30}};
  Course course(on_card(text()));
  EXPECT_THROW(
      {
        for (int i = 0; i < 20; ++i) course.step();
      },
      gpu::DeviceError);
}

}  // namespace
}  // namespace hearth::train
