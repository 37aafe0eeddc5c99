#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "io/run_log.h"
#include "run/from_recipe.h"
#include "run/trainer.h"
#include "temporary_folder.h"

namespace hearth::run {

/// Checkpoints wait for the disk; memory does not make them wait.
inline fs::path quick_folder() {
  return fs::is_directory("/dev/shm") ? "/dev/shm" : fs::temp_directory_path();
}

/// The bytes of weights and states, and the losses, of a run that stops after `stop_after` steps and goes
/// on.
struct Outcome {
  std::vector<std::byte> memory;
  std::vector<double> losses;
  std::vector<std::string> messages;  ///< of the last start
};

inline Outcome run_with_stop(const recipe::Recipe& recipe, int64_t stop_after) {
  const TemporaryFolder folder(quick_folder());
  std::atomic<bool> stop{false};
  int64_t steps = 0;
  Outcome outcome;
  TrainerEvents events{.progress = [&](const Progress&) { stop = ++steps == stop_after; },
                       .message = [&](const std::string& text) { outcome.messages.push_back(text); },
                       .stop = &stop};
  if (stop_after > 0) {
    EXPECT_TRUE(Trainer(tasks::Job(recipe), folder.path(), events).run(false).interrupted);
    stop = false;
    outcome.messages.clear();
  }
  Trainer trainer(tasks::Job(recipe), folder.path(), events);
  EXPECT_FALSE(trainer.run(stop_after > 0).interrupted);
  const auto memory = trainer.engine().state();
  outcome.memory.assign(memory.begin(), memory.end());
  for (const io::CurvePoint& point : io::read_curve(folder.path() / "trainer_log.jsonl", "loss"))
    outcome.losses.push_back(point.value);
  return outcome;
}

}  // namespace hearth::run
