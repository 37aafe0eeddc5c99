#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "distributed/shared_memory.h"

namespace hearth::distributed {

/// What a worker of a run is at.
enum class Phase : uint32_t {
  starting,
  training,
  evaluating,
  saving,
  finishing,
  reporting,
  resting,
  encoding
};
inline constexpr std::array<const char*, 8> kPhaseNames = {
    "starting", "training", "evaluating", "saving", "finishing", "reporting", "resting", "encoding"};

/// How a worker shows that it continues, in some nanoseconds: an entry of a HeartbeatBoard, of which copies
/// are one; or nothing, where nobody watches. An entry belongs to one thread.
class Heartbeat {
 public:
  /// What is known of a phase, from every time that a worker was in it.
  struct Learned {
    std::atomic<int64_t> longest_ns;  ///< between two beats; long ago counts less
    std::atomic<int64_t> num_rounds;  ///< times that it was gone through: of training, steps
  };
  struct Entry {
    std::atomic<int64_t> step;
    std::atomic<int64_t> time_ns;     ///< of the last beat, on the steady clock
    std::atomic<int64_t> allowed_ns;  ///< between two beats of training or evaluating, by the worker's word
    std::atomic<Phase> phase;
    std::array<Learned, kPhaseNames.size()> learned;
  };
  Heartbeat() = default;
  explicit Heartbeat(Entry& entry) : entry_(&entry) {}

  /// Begins a phase, or the next step of it; `step` counts the updates that are done.
  void beat(Phase phase, int64_t step) const {
    if (entry_ == nullptr) return;
    beat();
    std::atomic<int64_t>& num_rounds = learned().num_rounds;
    num_rounds.store(num_rounds.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    entry_->phase.store(phase, std::memory_order_relaxed);
    entry_->step.store(step, std::memory_order_relaxed);
  }
  /// Continues in another phase of the same step, and returns the one before it.
  Phase turn_to(Phase phase) const {
    if (entry_ == nullptr) return phase;
    beat();
    return entry_->phase.exchange(phase);
  }
  /// Continues with what was begun.
  void beat() const {
    if (entry_ == nullptr) return;
    const int64_t now = now_ns(), interval = now - entry_->time_ns.load(std::memory_order_relaxed);
    std::atomic<int64_t>& longest = learned().longest_ns;
    const int64_t before = longest.load(std::memory_order_relaxed);
    longest.store(std::max(interval, before - before / kMemory), std::memory_order_relaxed);
    entry_->time_ns.store(now, std::memory_order_relaxed);
  }
  /// Of training and evaluating: while their rhythm is not known, two beats may be so far apart.
  void allow(double seconds) const {
    if (entry_ != nullptr) entry_->allowed_ns.store(static_cast<int64_t>(1e9 * seconds));
  }
  static int64_t now_ns() { return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  /// After so many beats an interval counts a third.
  static constexpr int64_t kMemory = 256;

  Learned& learned() const {
    return entry_->learned.at(static_cast<size_t>(entry_->phase.load(std::memory_order_relaxed)));
  }

  Entry* entry_ = nullptr;
};

/// While it lives, a worker runs other programs than those that it trains and evaluates, at a pace that
/// nobody knows.
class OtherWork {
 public:
  explicit OtherWork(const Heartbeat& heartbeat)
      : heartbeat_(heartbeat), before_(heartbeat.turn_to(Phase::encoding)) {}
  ~OtherWork() { heartbeat_.turn_to(before_); }
  OtherWork(const OtherWork&) = delete;
  OtherWork& operator=(const OtherWork&) = delete;

 private:
  Heartbeat heartbeat_;
  Phase before_;
};

/// The heartbeats of a group of workers, shared with processes that are forked once it is made.
class HeartbeatBoard {
 public:
  /// Every worker starts, as of this moment.
  explicit HeartbeatBoard(int size);
  Heartbeat::Entry& entry(int rank) const {
    return reinterpret_cast<Heartbeat::Entry*>(bytes_.data() + kFirst)[rank];
  }
  /// Asks the workers to end.
  std::atomic<bool>& stop() const { return flags()[0]; }
  /// For the workers: whether one has said what all would.
  std::atomic<bool>& said() const { return flags()[1]; }

 private:
  /// Of the first entry: before it are the flags.
  static constexpr int64_t kFirst = 64;
  std::atomic<bool>* flags() const { return reinterpret_cast<std::atomic<bool>*>(bytes_.data()); }

  SharedMemory bytes_;
};

}  // namespace hearth::distributed
