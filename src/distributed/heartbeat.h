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

/// Writer of a worker's heartbeat: each beat stores the time in the worker's entry of a HeartbeatBoard.
/// Copies share the entry, to which only one thread may write. A default-constructed Heartbeat does nothing.
class Heartbeat {
 public:
  /// Statistics of one phase, from which timeouts are derived.
  struct Learned {
    std::atomic<int64_t> longest_ns;  ///< longest interval between two beats in nanoseconds; decays over time
    std::atomic<int64_t> num_rounds;  ///< number of times the phase began; for training, number of steps
  };
  /// Entry of one worker, read by the supervisor.
  struct Entry {
    std::atomic<int64_t> step;
    std::atomic<int64_t> time_ns;  ///< time of the last beat, on the steady clock
    /// Max interval expected in training or evaluation, as the worker predicts it.
    std::atomic<int64_t> allowed_ns;
    std::atomic<Phase> phase;
    std::array<Learned, kPhaseNames.size()> learned;
  };
  Heartbeat() = default;
  explicit Heartbeat(Entry& entry) : entry_(&entry) {}

  /// Begins a phase, or the next step of the current phase. `step`: number of completed updates.
  void beat(Phase phase, int64_t step) const {
    if (entry_ == nullptr) return;
    beat();
    std::atomic<int64_t>& num_rounds = learned().num_rounds;
    num_rounds.store(num_rounds.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    entry_->phase.store(phase, std::memory_order_relaxed);
    entry_->step.store(step, std::memory_order_relaxed);
  }
  /// Switches to another phase within the same step. Returns the previous phase.
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
  /// Sets the max interval between beats in training and evaluation, which counts until intervals have been
  /// measured.
  void allow(double seconds) const {
    if (entry_ != nullptr) entry_->allowed_ns.store(static_cast<int64_t>(1e9 * seconds));
  }
  static int64_t now_ns() { return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  /// Decay of longest_ns: each beat reduces the stored interval by 1 / kMemory, so that after kMemory beats
  /// about a third of it is left.
  static constexpr int64_t kMemory = 256;

  Learned& learned() const {
    return entry_->learned.at(static_cast<size_t>(entry_->phase.load(std::memory_order_relaxed)));
  }

  Entry* entry_ = nullptr;
};

/// Sets Phase::encoding for a scope in which a worker encodes inputs, which takes an unknown time.
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
  /// Sets the phase of all workers to starting, with a beat now.
  explicit HeartbeatBoard(int size);
  Heartbeat::Entry& entry(int rank) const {
    return reinterpret_cast<Heartbeat::Entry*>(bytes_.data() + kFirst)[rank];
  }
  /// True once the supervisor requests the workers to stop.
  std::atomic<bool>& stop() const { return flags()[0]; }
  /// True once a worker has printed an error that all workers have: the others do not print it again.
  std::atomic<bool>& said() const { return flags()[1]; }

 private:
  /// Offset in bytes of the first entry, which follows the flags.
  static constexpr int64_t kFirst = 64;
  std::atomic<bool>* flags() const { return reinterpret_cast<std::atomic<bool>*>(bytes_.data()); }

  SharedMemory bytes_;
};

}  // namespace hearth::distributed
