#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "backend/gpu/emu/grid.h"

namespace hearth::emu {

/// A virtual card, and what goes wrong with it.
struct CardSettings {
  int64_t memory_bytes = int64_t{20} << 30;
  double link_bytes_per_second = 0;  ///< of copies from and to the host; 0: as fast as they go
  /// Counted from 0 over the card's life; -1: never.
  int64_t refused_allocation = -1;
  int64_t faulty_launch = -1;
  int64_t hanging_launch = -1;
};
/// The cards of this process; changed while none is open.
std::vector<CardSettings>& cards();

/// What is common to the streams of an open card.
struct Card {
  CardSettings settings;
  int64_t used_bytes = 0;
  int64_t num_allocations = 0;
  int64_t num_launches = 0;
  bool hangs = false;
};

/// Work in order, done as late as may be: when somebody waits for it. A host that reads a result, or writes
/// over an input, without waiting is found out that way.
class Stream {
 public:
  explicit Stream(Card& card) : card_(card) {}

  using Work = std::function<void()>;

  void enqueue(Work work) { (recording_ ? recorded_ : queue_).push_back(std::move(work)); }
  void launch(const Grid& grid, std::function<void()> kernel);
  void start_recording() { recording_ = true; }
  std::deque<Work> finish_recording() {
    recording_ = false;
    return std::exchange(recorded_, {});
  }
  /// Number of the next piece of work.
  uint64_t end() const { return first_ + queue_.size(); }
  /// Does the work in front of `end`. Throws Fault; the card then hangs.
  void run_until(uint64_t end);
  Card& card() { return card_; }

 private:
  Card& card_;
  std::deque<Work> queue_, recorded_;
  bool recording_ = false;
  uint64_t first_ = 0;
};

}  // namespace hearth::emu
