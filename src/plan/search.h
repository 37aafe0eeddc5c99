#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "plan/pieces.h"

namespace hearth::plan {

using TimePoint = std::chrono::steady_clock::time_point;

enum class Verdict : uint8_t { found, impossible, stopped };

/// Depth-first search for offsets of one piece within a height, after MiniMalloc (Moffitt, ASPLOS 2023,
/// doi 10.1145/3623278.3624752). Every solution can be pushed down until each item rests on another, and then
/// be listed by (offset, rank); the search places items in that order, so an item's offset is the end of the
/// highest overlapping item before it. A node is left when
///   - its next offset would leave a hole that an item left out fits into,
///   - in some clique, the lowest offset left plus everything left exceeds the height,
///   - the same state failed before (64-bit hashes of the state stand for it).
/// Parts that share no time any more are searched one by one. Orders of rank take turns, with growing limits.
class Search {
 public:
  explicit Search(const Piece& piece);

  /// Units; `deadline` is looked at every few thousand steps.
  int64_t nodes = 0;
  Verdict run(int64_t capacity, TimePoint deadline);
  /// One per item of the piece, in units, after Verdict::found.
  const std::vector<int64_t>& offsets() const { return offset_; }

 private:
  /// Canonical place of an item: items are placed by increasing key.
  struct Key {
    int64_t offset = 0;
    int rank = -1;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  /// Items that are connected in time and not placed yet: those from begin up to end (not included).
  struct Part {
    int begin = 0;
    int end = 0;
    uint64_t hash = 0;
  };
  struct Frame {
    Part part;
    /// Key of the last choice, tried already; at first that of the choice above.
    Key tried;
    int placed = -1;
    size_t num_placed = 0;
    size_t num_raised = 0;
    size_t num_parts = 0;
    size_t next_part = 0;
  };
  struct Raise {
    int item = 0;
    int64_t before = 0;
  };
  enum class Answer : uint8_t { none, yes, no };

  Verdict run_order(int order, int64_t limit, TimePoint deadline);
  void reset(int order);
  Answer step();
  bool choose(Frame& frame);
  bool place(Frame& frame);
  int first_left(const Frame& frame) const;
  void raise_overlapping(const Frame& frame);
  bool split(const Frame& frame);
  bool close_part(Part part, int from, int to);
  void undo(Frame& frame);
  void add_clique_totals(const Item& item, int64_t size);
  uint64_t hash_of(int item, Key key, Key least) const;

  const Piece& piece_;
  int num_items_ = 0;
  int64_t capacity_ = 0;
  uint64_t seed_ = 0;
  int64_t work_ = 0;
  std::vector<std::vector<int>> ranks_;
  const int* rank_ = nullptr;
  /// Lowest offset an item can have, given what is placed; once placed, its offset.
  std::vector<int64_t> offset_;
  std::vector<int> next_;
  std::vector<int> previous_;
  std::vector<char> is_placed_;
  /// Per clique: units not placed yet, and the lowest offset left.
  std::vector<int64_t> total_;
  std::vector<int64_t> floor_;
  std::vector<Frame> frames_;
  std::vector<Part> parts_;
  std::vector<int> placed_;
  std::vector<Raise> raised_;
  std::vector<uint64_t> failed_;
};

}  // namespace hearth::plan
