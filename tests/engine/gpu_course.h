#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "backend/gpu/emu/stream.h"
#include "base/philox.h"
#include "engine/engine.h"
#include "models/decoder/config.h"
#include "tasks/classify/classifier.h"
#include "tasks/language/language_model.h"
#include "temporary_folder.h"
#include "tiny_language_model.h"

namespace hearth::engine {

inline constexpr int64_t kBatch = 4;
inline constexpr int64_t kSteps = 20;
inline constexpr size_t kSlack = 16;

class GpuTraining : public testing::Test {
 protected:
  ~GpuTraining() override { emu::gpus() = {{}}; }

  static EngineOptions images() {
    EngineOptions options{
        .objective = tasks::classifier({.model = {.name = "mlp", .image_size = 8, .hidden = {24}}}),
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
        .objective = tasks::language_model(
            {.config = models::read_decoder_config(folder.path() / "config.json"), .context = 16}),
        .batch = kBatch,
        .seed = 5,
        .num_threads = 2};
    options.optimizer.name = "adamw";
    options.optimizer.clip_norm = 1;
    return options;
  }
  static EngineOptions on_gpu(EngineOptions options) {
    options.backend = exec::Backend::gpu;
    return options;
  }
};

/// Steps over random micro-batches, for either kind of model. As a BatchStream does, it hands out memory that
/// it writes over at the next-but-one call.
class Course {
 public:
  explicit Course(const EngineOptions& options)
      : is_text_(options.optimizer.name == "adamw"),
        engine_(options, std::vector{kBatch}, std::vector{kBatch}) {
    engine_.initialize();
    next();
  }
  MicroBatch next() {
    Slot& slot = slots_[num_batches_ % 2];
    PhiloxSequence random(3, num_batches_++);
    slot.images.resize(kBatch * 8 * 8 * 3 + kSlack);
    for (float& value : slot.images) value = random.uniform(-1, 1);
    for (auto& row : slot.numbers) {
      row.resize(kBatch * 16 + kSlack);
      for (int32_t& number : row) number = static_cast<int32_t>(random.below(is_text_ ? 90 : 10));
    }
    for (size_t i = 0; i < slot.numbers[2].size(); ++i) slot.numbers[2][i] = static_cast<int32_t>(i % 16);
    return batch();
  }
  /// The last one.
  MicroBatch batch() const {
    const Slot& slot = slots_[(num_batches_ + 1) % 2];
    const auto& numbers = slot.numbers;
    if (!is_text_) return {{{"images", slot.images.data()}, {"labels", numbers[0].data()}}, kBatch};
    return {{{"tokens", numbers[0].data()}, {"labels", numbers[1].data()}, {"positions", numbers[2].data()}},
            kBatch};
  }
  StepResult step(double learning_rate = 0.01) {
    const int64_t num_micro = engine_.plan().options.accumulate;
    return engine_.train_step(
        num_micro, num_micro * kBatch * (is_text_ ? 16 : 1), [&] { return next(); }, num_steps_++,
        learning_rate);
  }
  Engine& engine() { return engine_; }
  std::vector<std::byte> state_after(int64_t num_steps) {
    for (int64_t i = 0; i < num_steps; ++i) EXPECT_FALSE(step().skipped);
    return {engine_.state().begin(), engine_.state().end()};
  }

 private:
  struct Slot {
    std::vector<float> images;
    std::array<std::vector<int32_t>, 3> numbers;
  };
  bool is_text_;
  Engine engine_;
  std::array<Slot, 2> slots_;
  uint64_t num_batches_ = 0;
  int64_t num_steps_ = 0;
};

}  // namespace hearth::engine
