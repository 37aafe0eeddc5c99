#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "distributed/shared_memory.h"

namespace hearth::distributed {

/// Current activity of a worker.
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

/// A worker's heartbeat, written in nanoseconds to its entry of a HeartbeatBoard. Copies share the entry; a
/// default-constructed one does nothing. Each entry is written by one thread.
class Heartbeat {
 public:
  /// Statistics of a phase.
  struct Learned {
    std::atomic<int64_t> longest_ns;  ///< longest interval between two beats in nanoseconds; decays over time
    std::atomic<int64_t> num_rounds;  ///< number of times the phase began; for training, steps
  };
  /// Shared state of one worker.
  struct Entry {
    std::atomic<int64_t> step;
    std::atomic<int64_t> time_ns;     ///< time of the last beat, on the steady clock
    std::atomic<int64_t> allowed_ns;  ///< expected max interval of training or evaluation, set by the worker
    std::atomic<Phase> phase;
    std::array<Learned, kPhaseNames.size()> learned;
  };
  Heartbeat() = default;
  explicit Heartbeat(Entry& entry) : entry_(&entry) {}

  /// Begins a phase or its next step; `step` is the number of completed updates.
  void beat(Phase phase, int64_t step) const {
    if (entry_ == nullptr) return;
    beat();
    std::atomic<int64_t>& num_rounds = learned().num_rounds;
    num_rounds.store(num_rounds.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    entry_->phase.store(phase, std::memory_order_relaxed);
    entry_->step.store(step, std::memory_order_relaxed);
  }
  /// Switches to another phase of the same step, and returns the previous one.
  Phase switch_phase(Phase phase) const {
    if (entry_ == nullptr) return phase;
    beat();
    return entry_->phase.exchange(phase);
  }
  /// Reports progress within the current phase.
  void beat() const {
    if (entry_ == nullptr) return;
    const int64_t now = now_ns(), interval = now - entry_->time_ns.load(std::memory_order_relaxed);
    std::atomic<int64_t>& longest = learned().longest_ns;
    const int64_t before = longest.load(std::memory_order_relaxed);
    longest.store(std::max(interval, before - before / kMemory), std::memory_order_relaxed);
    entry_->time_ns.store(now, std::memory_order_relaxed);
  }
  /// Sets the max interval of training and evaluation that is expected until intervals have been measured.
  void allow(double seconds) const {
    if (entry_ != nullptr) entry_->allowed_ns.store(static_cast<int64_t>(1e9 * seconds));
  }
  static int64_t now_ns() { return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  /// Decay of longest_ns: after this many beats an old interval has a third of its weight.
  static constexpr int64_t kMemory = 256;

  Learned& learned() const {
    return entry_->learned.at(static_cast<size_t>(entry_->phase.load(std::memory_order_relaxed)));
  }

  Entry* entry_ = nullptr;
};

/// Scope in which a worker runs programs other than training and evaluation (encoding), whose duration is
/// unknown.
class EncodingPhase {
 public:
  explicit EncodingPhase(const Heartbeat& heartbeat)
      : heartbeat_(heartbeat), before_(heartbeat.switch_phase(Phase::encoding)) {}
  ~EncodingPhase() { heartbeat_.switch_phase(before_); }
  EncodingPhase(const EncodingPhase&) = delete;
  EncodingPhase& operator=(const EncodingPhase&) = delete;

 private:
  Heartbeat heartbeat_;
  Phase before_;
};

/// Heartbeats of all workers, in memory shared with processes forked after construction.
class HeartbeatBoard {
 public:
  /// Initializes all workers as starting now.
  explicit HeartbeatBoard(int size);
  Heartbeat::Entry& entry(int rank) const {
    return reinterpret_cast<Heartbeat::Entry*>(bytes_.data() + kFirst)[rank];
  }
  /// Set by the supervisor to request the workers to stop.
  std::atomic<bool>& stop() const { return flags()[0]; }
  /// Set by the first worker that reports an error all workers have, so that it is reported once.
  std::atomic<bool>& said() const { return flags()[1]; }

 private:
  /// Offset of the first entry, after the flags.
  static constexpr int64_t kFirst = 64;
  std::atomic<bool>* flags() const { return reinterpret_cast<std::atomic<bool>*>(bytes_.data()); }

  SharedMemory bytes_;
};

}  // namespace hearth::distributed
