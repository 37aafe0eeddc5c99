#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <latch>
#include <memory>
#include <thread>

#include "base/error.h"
#include "distributed/forwarding_group.h"
#include "distributed/shm/shm.h"
#include "run/stopped_run.h"
#include "tiny_language_model.h"

namespace hearth::engine {

/// A recipe in which the first `from`, which it has, is `to`.
inline std::string replaced(std::string yaml, const std::string& from, const std::string& to) {
  return yaml.replace(yaml.find(from), from.size(), to);
}

/// Adds up what a rank brings to sums.
class CountingGroup : public distributed::ForwardingGroup {
 public:
  CountingGroup(std::unique_ptr<distributed::ProcessGroup> real, int64_t& num_bytes)
      : ForwardingGroup(*real), real_(std::move(real)), num_bytes_(num_bytes) {}
  void all_reduce(std::span<float> data, DType wire) override {
    num_bytes_ += std::ssize(data) * dtype_bytes(wire);
    ForwardingGroup::all_reduce(data, wire);
  }

 private:
  std::unique_ptr<distributed::ProcessGroup> real_;
  int64_t& num_bytes_;
};

/// Trains a tiny language model on lines that are written into the folder.
inline std::string words_recipe(const fs::path& folder, const std::string& train) {
  write_tiny_model(folder / "model");
  std::string text;
  for (int i = 0; i < 400; ++i) text += fmt::format("line {} of {}\n", i * 7 % 23, i);
  write_file_atomically(folder / "lines.txt", text);
  return fmt::format(
      "model: {{config: {0}/model/config.json}}\n"
      "data: {{path: {0}/lines.txt, cache: {0}/cache, context: 64, val_share: 0.2}}\n"
      "train: {{{1}}}\noptimizer: {{name: adamw, lr: 0.01}}\nthreads: 1\nseed: 3\n",
      folder.string(), train);
}

/// What is left of a run by `devices` workers, threads of this process; with `stop_after`, it stops after
/// that update. `sent_bytes`: of one worker's gradients.
inline run::Outcome train_with(const std::string& yaml, int devices, const fs::path& folder,
                               int64_t stop_after, bool resume, int64_t* sent_bytes = nullptr) {
  const recipe::Recipe recipe =
      run::parse_recipe(yaml, "test", std::vector{fmt::format("devices={}", devices)});
  distributed::ShmGroup group(devices);
  run::Outcome outcome;
  std::atomic<bool> stop{false};
  std::vector<std::exception_ptr> errors(static_cast<size_t>(devices));
  // Rank 0 makes what all of them read, as it does in the program.
  std::latch leader_is_there(1);
  const auto work = [&](int rank) {
    if (rank > 0) leader_is_there.wait();
    int64_t steps = 0;
    const run::TrainerEvents events{.progress = [&](const run::Progress&) { stop = ++steps == stop_after; },
                                    .message = [](const std::string&) {},
                                    .stop = &stop};
    std::unique_ptr<distributed::ProcessGroup> own = devices == 1 ? nullptr : group.open(rank);
    if (rank == 0 && sent_bytes != nullptr)
      own = std::make_unique<CountingGroup>(std::move(own), *sent_bytes);
    run::Trainer trainer(tasks::Job(recipe), folder, events, {.group = own.get()});
    if (rank == 0) leader_is_there.count_down();
    const run::RunSummary summary = trainer.run(resume);
    EXPECT_EQ(summary.interrupted, stop_after > 0);
    EXPECT_EQ(summary.led, rank == 0);
    if (rank != 0) return;
    const auto memory = trainer.engine().state();
    outcome.memory.assign(memory.begin(), memory.end());
  };
  std::vector<std::thread> workers;
  for (int rank = 0; rank < devices; ++rank) {
    workers.emplace_back([&, rank] {
      try {
        work(rank);
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
        if (rank == 0 && !leader_is_there.try_wait()) leader_is_there.count_down();
        group.give_up(rank);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  for (const io::CurvePoint& point : io::read_curve(folder / "trainer_log.jsonl", "loss"))
    outcome.losses.push_back(point.value);
  return outcome;
}
inline run::Outcome train_with(const std::string& yaml, int devices) {
  const TemporaryFolder folder(run::quick_folder());
  return train_with(yaml, devices, folder.path(), 0, false);
}

inline void expect_same(const run::Outcome& got, const run::Outcome& want, const char* what) {
  EXPECT_EQ(got.losses, want.losses) << what;
  EXPECT_TRUE(got.memory == want.memory) << what;
}

/// Two and four workers that share the work end as one does alone.
inline void expect_bits_of_one(const std::string& shared, const std::string& alone) {
  const run::Outcome want = train_with(alone, 1);
  ASSERT_EQ(want.losses.size(), 6U);
  expect_same(train_with(shared, 2), want, "two workers");
  expect_same(train_with(shared, 4), want, "four workers");
}
/// So does a run that four begin, `num_between` continue with as the recipe `alone` says, and two end.
inline void expect_bits_in_turns(const std::string& shared, const std::string& alone, int num_between) {
  const run::Outcome want = train_with(alone, 1);
  const TemporaryFolder folder(run::quick_folder());
  train_with(shared, 4, folder.path(), 1, false);
  train_with(alone, num_between, folder.path(), 2, true);
  expect_same(train_with(shared, 2, folder.path(), 0, true), want, "in turns");
}

}  // namespace hearth::engine
