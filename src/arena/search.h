#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "arena/pieces.h"

namespace hearth::arena {

using TimePoint = std::chrono::steady_clock::time_point;

/// Limits of a search. A step is one visit of an item, about five nanoseconds.
struct Budget {
  int64_t steps = INT64_MAX;
  TimePoint deadline = TimePoint::max();
};

/// Result of a search: a solution was found, none exists, or a limit was reached.
enum class Verdict : uint8_t { found, impossible, stopped };

/// Traits by which items are ranked, largest first: units alive in the item's fullest clique, number
/// of cliques, area.
struct Traits {
  double total = 0;
  double width = 0;
  double area = 0;
};

/// Depth-first search for offsets of one piece within a given height, after MiniMalloc (Moffitt, ASPLOS 2023,
/// doi 10.1145/3623278.3624752). Every solution can be compacted until each item rests on another, and then
/// be listed by (offset, rank). The search places items in that order, so an item's offset is the end of the
/// highest overlapping item before it. A node is pruned if
///   - its next offset would leave a hole into which a skipped item fits, or which no remaining
///   item can fill,
///   - in some clique, the lowest remaining offset plus the remaining sizes exceeds the height,
///   - the same state failed before (states are compared by 64-bit hashes).
/// Parts that no longer share any time are searched independently. Several rank orders are tried in turn, and
/// after the first round they are shuffled slightly: runtimes are heavy-tailed, so restarts help, and no
/// order is good for every problem. Step limits of the restarts follow Luby, Sinclair and Zuckerman (1993).
/// Items in the cliques that failed most often are moved to the front, as in constraint weighting (Boussemart
/// et al. 2004, "Boosting systematic search by weighting constraints").
class Search {
 public:
  explicit Search(const Piece& piece);

  /// Searches for offsets within `capacity` units. The deadline is checked every few thousand steps.
  Verdict run(int64_t capacity, const Budget& budget);
  int64_t steps_used() const { return steps_used_; }
  /// Offsets of the items of the piece, in units; valid after Verdict::found.
  const std::vector<int64_t>& offsets() const { return offset_; }

 private:
  /// Canonical position of an item: items are placed by increasing key.
  struct Key {
    int64_t offset = 0;
    int rank = -1;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  /// A part of the remaining items that is connected in time: a linked list from item `begin` to item `end`,
  /// which is not included.
  struct Part {
    int begin = 0;
    int end = 0;
    uint64_t hash = 0;
  };
  /// The state of one level of the depth-first search.
  struct Frame {
    Part part;
    /// Key of the last choice tried in this frame; initially the key chosen in the frame above.
    Key tried;
    int placed = -1;
    size_t num_placed = 0;
    size_t num_raised = 0;
    size_t num_parts = 0;
    size_t next_part = 0;
  };
  /// An item whose offset was raised, and the offset before that; used by undo().
  struct RaisedOffset {
    int item = 0;
    int64_t before = 0;
  };
  /// Copy of the fields of a remaining item that the innermost loops read.
  struct Remaining {
    int first = 0;
    int last = 0;
    /// Lower bound of the item's offset, used to decide whether skipped items can rest on the item.
    int64_t min_offset = 0;
    int64_t size = 0;
    int item = 0;
  };
  enum class Answer : uint8_t { none, yes, no };

  std::vector<Traits> weighted(std::vector<Traits> traits);
  Verdict run_order(int attempt, int64_t limit, const Budget& budget);
  void reset(int attempt);
  Answer step();
  bool choose(Frame& frame);
  bool place(Frame& frame);
  int first_remaining(const Frame& frame) const;
  void raise_overlapping(const Frame& frame);
  bool find_min_offsets(const Frame& frame);
  bool split(const Frame& frame);
  bool close_part(Part part, int from, int to);
  void undo(Frame& frame);
  void cache_failure(uint64_t hash);
  void add_clique_totals(const Item& item, int64_t size);
  Key key_of(int item) const;
  uint64_t hash_of(int item, bool is_skipped) const;

  const Piece& piece_;
  int num_items_ = 0;
  int64_t capacity_ = 0;
  uint64_t seed_ = 0;
  int64_t steps_used_ = 0;
  std::vector<Traits> traits_;
  std::vector<int> rank_;
  /// Lowest offset that an item can have, given the placed items; for a placed item, its offset.
  std::vector<int64_t> offset_;
  /// Remaining items visited by find_min_offsets(), by first clique, and the indices of those that were
  /// skipped.
  std::vector<Remaining> remaining_;
  std::vector<size_t> skipped_;
  std::vector<int> next_;
  std::vector<int> previous_;
  std::vector<char> is_placed_;
  /// For each clique: total units of its items that are not placed yet, and the lowest offset of these items.
  std::vector<int64_t> total_;
  std::vector<int64_t> floor_;
  /// For each clique: the number of failures caused by it, with exponential decay.
  std::vector<double> failures_;
  std::vector<Frame> frames_;
  std::vector<Part> parts_;
  std::vector<int> placed_;
  std::vector<RaisedOffset> raised_;
  /// Hash table of states without a solution, indexed by hash modulo size; new entries replace old ones.
  std::vector<uint64_t> failed_;
  size_t num_failed_ = 0;
};

}  // namespace hearth::arena
