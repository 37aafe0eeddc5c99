#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <memory>
#include <thread>

#include "base/error.h"
#include "comm/shm.h"
#include "train/stopped_run.h"

namespace hearth::train {

/// Adds up what a rank brings to sums.
class CountingTransport : public comm::Transport {
 public:
  CountingTransport(std::unique_ptr<comm::Transport> real, int64_t& num_bytes)
      : real_(std::move(real)), num_bytes_(num_bytes) {}
  int rank() const override { return real_->rank(); }
  int size() const override { return real_->size(); }
  void set_place(const comm::Place& place) override { real_->set_place(place); }
  void barrier() override { real_->barrier(); }
  void all_reduce(std::span<float> data, DType wire) override {
    num_bytes_ += std::ssize(data) * dtype_bytes(wire);
    real_->all_reduce(data, wire);
  }
  void reduce_scatter(std::span<const float> in, std::span<float> out, DType wire) override {
    real_->reduce_scatter(in, out, wire);
  }
  void all_gather(std::span<const std::byte> in, std::span<std::byte> out) override {
    real_->all_gather(in, out);
  }
  void broadcast(std::span<std::byte> data, int root) override { real_->broadcast(data, root); }
  void send(std::span<const std::byte> data, int to) override { real_->send(data, to); }
  void receive(std::span<std::byte> data, int from) override { real_->receive(data, from); }

 private:
  std::unique_ptr<comm::Transport> real_;
  int64_t& num_bytes_;
};

/// What is left of a run by `devices` workers, threads of this process; with `stop_after`, it stops behind
/// that update. `sent_bytes`: of one worker's gradients.
inline Outcome train_with(const std::string& yaml, int devices, const fs::path& folder, int64_t stop_after,
                          bool resume, int64_t* sent_bytes = nullptr) {
  const Recipe recipe = parse_recipe(yaml, "test", std::vector{fmt::format("devices={}", devices)});
  comm::ShmGroup group(devices);
  Outcome outcome;
  std::atomic<bool> stop{false};
  std::vector<std::exception_ptr> errors(static_cast<size_t>(devices));
  const auto work = [&](int rank) {
    int64_t steps = 0;
    const TrainerEvents events{.progress = [&](const Progress&) { stop = ++steps == stop_after; },
                               .message = [](const std::string&) {},
                               .stop = &stop};
    std::unique_ptr<comm::Transport> team = devices == 1 ? nullptr : group.open(rank);
    if (rank == 0 && sent_bytes != nullptr)
      team = std::make_unique<CountingTransport>(std::move(team), *sent_bytes);
    Trainer trainer(recipe, folder, events, team.get());
    const RunSummary summary = trainer.run(resume);
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
inline Outcome train_with(const std::string& yaml, int devices) {
  const TemporaryFolder folder(quick_folder());
  return train_with(yaml, devices, folder.path(), 0, false);
}

inline void expect_same(const Outcome& got, const Outcome& want, const char* what) {
  EXPECT_EQ(got.losses, want.losses) << what;
  EXPECT_TRUE(got.memory == want.memory) << what;
}

}  // namespace hearth::train
