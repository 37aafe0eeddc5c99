#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "arena/pieces.h"

namespace hearth::arena {

using TimePoint = std::chrono::steady_clock::time_point;

/// What a search may use. A step is a look at an item, about five nanoseconds.
struct Budget {
  int64_t steps = INT64_MAX;
  TimePoint deadline = TimePoint::max();
};

enum class Verdict : uint8_t { found, impossible, stopped };

/// What an item is ranked by, most first: units alive in its fullest clique, cliques, area.
struct Traits {
  double total = 0;
  double width = 0;
  double area = 0;
};

/// Depth-first search for offsets of one piece within a height, after MiniMalloc (Moffitt, ASPLOS 2023,
/// doi 10.1145/3623278.3624752). Every solution can be pushed down until each item rests on another, and then
/// be listed by (offset, rank); the search places items in that order, so an item's offset is the end of the
/// highest overlapping item before it. A node is left when
///   - its next offset would leave a hole that an item left out fits into, or nothing to come can fill it,
///   - in some clique, the lowest offset left plus everything left exceeds the height,
///   - the same state failed before (64-bit hashes of the state stand for it).
/// Parts that share no time any more are searched one by one. Orders of rank take turns, and after the first
/// round they are shuffled a little: a lucky order needs a thousandth of the steps of the others, and none is
/// lucky for every problem. Limits of the rounds follow Luby, Sinclair and Zuckerman (1993). Items in the
/// cliques that failed most come first from then on, as constraints do in Boussemart et al. (2004), "Boosting
/// systematic search by weighting constraints".
class Search {
 public:
  explicit Search(const Piece& piece);

  /// `capacity` in units. The deadline is looked at every few thousand steps.
  Verdict run(int64_t capacity, const Budget& budget);
  int64_t steps_used() const { return steps_used_; }
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
  /// An item left, as the innermost loops read it.
  struct Left {
    int first = 0;
    int last = 0;
    /// A bound on its offset that counts in what skipped items wait for.
    int64_t least = 0;
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
  int first_left(const Frame& frame) const;
  void raise_overlapping(const Frame& frame);
  bool find_least(const Frame& frame);
  bool split(const Frame& frame);
  bool close_part(Part part, int from, int to);
  void undo(Frame& frame);
  void remember_failure(uint64_t hash);
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
  /// Lowest offset an item can have, given what is placed; once placed, its offset.
  std::vector<int64_t> offset_;
  /// What find_least() looked at, by first clique, and which of them were passed over.
  std::vector<Left> left_;
  std::vector<size_t> skipped_;
  std::vector<int> next_;
  std::vector<int> previous_;
  std::vector<char> is_placed_;
  /// Per clique: units not placed yet, and the lowest offset left.
  std::vector<int64_t> total_;
  std::vector<int64_t> floor_;
  /// Per clique: how often it was too full, older failures counting less.
  std::vector<double> failures_;
  std::vector<Frame> frames_;
  std::vector<Part> parts_;
  std::vector<int> placed_;
  std::vector<Raise> raised_;
  /// Hashes of states without a solution, each where its remainder says; later ones displace earlier ones.
  std::vector<uint64_t> failed_;
  size_t num_failed_ = 0;
};

}  // namespace hearth::arena
