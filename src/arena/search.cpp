// Exact packing by branch and bound, after MiniMalloc (Moffitt, "MiniMalloc: A lightweight memory
// allocator for hardware-accelerated machine learning", ASPLOS 2023, doi 10.1145/3623278.3624752).
// Buffers are boxes: an interval of time by a height in bytes. Any packing can be compacted downwards
// until each box rests on another box or on the floor, so only these offsets are candidates. The search
// places boxes by increasing offset, always one with the lowest possible offset. It prunes a branch if
// a box no longer fits below the height, or if the gap left under the next box could have held a
// skipped box. The order of the boxes decides how long the search takes, so several orders are tried in
// turn with growing step limits. Worst case: exponential.
#include "arena/search.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>
#include <utility>

namespace hearth::arena {
namespace {

constexpr int64_t kNever = INT64_MAX;
/// Step limits of one attempt, multiplied by the square of the number of items. The unmodified orders are
/// tried in two rounds with kPlainSteps; after them, shuffled orders with kShuffledSteps times an element of
/// the Luby sequence.
constexpr std::array<int64_t, 2> kPlainSteps = {10, 40};
constexpr int64_t kShuffledSteps = 20;
constexpr double kShuffle = 0.1;
/// Items in cliques that often caused failures are placed earlier: kFailureWeight is the extra weight of an
/// item in the clique with the most failures. Failure counts are multiplied by kFailureDecay at each attempt.
constexpr double kFailureWeight = 8;
constexpr double kFailureDecay = 0.95;
constexpr int64_t kStepsPerClock = 1 << 16;
constexpr size_t kFirstFailed = size_t{1} << 10;
constexpr size_t kMaxFailed = size_t{1} << 20;

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ULL;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ULL;
  return x ^ (x >> 32);
}

std::vector<Traits> traits_of(const Piece& piece) {
  std::vector<int64_t> alive(static_cast<size_t>(piece.num_cliques), 0);
  for (const Item& item : piece.items) {
    for (int c = item.first; c < item.last; ++c) alive[static_cast<size_t>(c)] += item.size;
  }
  std::vector<Traits> traits;
  for (const Item& item : piece.items) {
    const double width = item.last - item.first;
    const int64_t total = *std::max_element(alive.begin() + item.first, alive.begin() + item.last);
    traits.push_back({.total = static_cast<double>(total),
                      .width = width,
                      .area = width * static_cast<double>(item.size)});
  }
  return traits;
}

using Order = std::array<double Traits::*, 3>;
constexpr std::array<Order, 4> kOrders = {Order{&Traits::width, &Traits::area, &Traits::total},
                                          Order{&Traits::total, &Traits::area, &Traits::width},
                                          Order{&Traits::total, &Traits::width, &Traits::area},
                                          Order{&Traits::area, &Traits::total, &Traits::width}};

constexpr int kNumPlain = static_cast<int>(kPlainSteps.size() * kOrders.size());

/// Returns a random factor, uniform in [1 - kShuffle, 1 + kShuffle).
double shuffling(uint64_t seed) {
  return 1 - kShuffle + 2 * kShuffle * static_cast<double>(mix(seed) >> 11) / 0x1p53;
}

std::vector<Traits> shuffled(const std::vector<Traits>& traits, int attempt) {
  std::vector<Traits> result = traits;
  uint64_t seed = static_cast<uint64_t>(attempt) << 40;
  for (Traits& t : result) {
    t.total *= shuffling(++seed);
    t.width *= shuffling(++seed);
    t.area *= shuffling(++seed);
  }
  return result;
}

std::vector<int> ranks_of(const std::vector<Traits>& traits, const Order& order) {
  std::vector<int> sorted(traits.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  const auto key = [&](int i) {
    const Traits& t = traits[static_cast<size_t>(i)];
    return std::tuple(-(t.*order[0]), -(t.*order[1]), -(t.*order[2]), i);
  };
  std::sort(sorted.begin(), sorted.end(), [&](int a, int b) { return key(a) < key(b); });
  std::vector<int> ranks(traits.size());
  for (size_t i = 0; i < sorted.size(); ++i) ranks[static_cast<size_t>(sorted[i])] = static_cast<int>(i);
  return ranks;
}

/// Returns element i >= 1 of the Luby sequence 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 ...
int64_t luby(int64_t i) {
  while (true) {
    int64_t size = 1;
    while (2 * size + 1 <= i) size = 2 * size + 1;
    if (i == size) return (size + 1) / 2;
    i -= size;
  }
}

}  // namespace

Search::Search(const Piece& piece)
    : piece_(piece),
      num_items_(static_cast<int>(piece.items.size())),
      traits_(traits_of(piece)),
      offset_(piece.items.size()),
      next_(piece.items.size() + 1),
      previous_(piece.items.size() + 1),
      is_placed_(piece.items.size()),
      total_(static_cast<size_t>(piece.num_cliques)),
      floor_(static_cast<size_t>(piece.num_cliques)),
      failures_(static_cast<size_t>(piece.num_cliques)) {}

Verdict Search::run(int64_t capacity, const Budget& budget) {
  if (piece_.bound > capacity) return Verdict::impossible;
  capacity_ = capacity;
  const int64_t num_pairs = int64_t{num_items_} * num_items_;
  for (int attempt = 0;; ++attempt) {
    const auto round = static_cast<size_t>(attempt) / kOrders.size();
    const int64_t steps = attempt < kNumPlain
                              ? kPlainSteps[round]
                              : kShuffledSteps * luby(static_cast<int64_t>(round - kPlainSteps.size()) + 1);
    const Verdict verdict = run_order(attempt, steps * num_pairs, budget);
    if (verdict != Verdict::stopped) return verdict;
    if (steps_used_ >= budget.steps || std::chrono::steady_clock::now() >= budget.deadline) return verdict;
  }
}

void Search::reset(int attempt) {
  const Order& order = kOrders[static_cast<size_t>(attempt) % kOrders.size()];
  rank_ = ranks_of(attempt < kNumPlain ? traits_ : weighted(shuffled(traits_, attempt)), order);
  std::fill(offset_.begin(), offset_.end(), 0);
  std::fill(is_placed_.begin(), is_placed_.end(), 0);
  std::fill(total_.begin(), total_.end(), 0);
  for (int i = 0; i <= num_items_; ++i) {
    next_[static_cast<size_t>(i)] = i == num_items_ ? 0 : i + 1;
    previous_[static_cast<size_t>(i)] = i == 0 ? num_items_ : i - 1;
  }
  for (const Item& item : piece_.items) add_clique_totals(item, item.size);
  raised_.clear();
  parts_.clear();
  placed_.clear();
  frames_.clear();
  frames_.push_back({.part = {.begin = 0, .end = num_items_}});
}

/// Multiplies the traits of each item by a factor that grows with the failures of its cliques, and lets the
/// failure counts decay.
std::vector<Traits> Search::weighted(std::vector<Traits> traits) {
  const double max_failures = *std::max_element(failures_.begin(), failures_.end());
  for (size_t i = 0; max_failures > 0 && i < traits.size(); ++i) {
    const Item& item = piece_.items[i];
    const double worst = *std::max_element(failures_.begin() + item.first, failures_.begin() + item.last);
    const double factor = 1 + kFailureWeight * worst / max_failures;
    traits[i] = {.total = factor * traits[i].total,
                 .width = factor * traits[i].width,
                 .area = factor * traits[i].area};
  }
  for (double& failures : failures_) failures *= kFailureDecay;
  return traits;
}

Verdict Search::run_order(int attempt, int64_t limit, const Budget& budget) {
  reset(attempt);
  seed_ = mix((static_cast<uint64_t>(capacity_) << 12) + static_cast<uint64_t>(attempt));
  const int64_t last = limit < budget.steps - steps_used_ ? steps_used_ + limit : budget.steps;
  for (int64_t next_look = steps_used_ + kStepsPerClock; steps_used_ < last;) {
    const Answer answer = step();
    if (answer != Answer::none) return answer == Answer::yes ? Verdict::found : Verdict::impossible;
    if (steps_used_ < next_look) continue;
    next_look = steps_used_ + kStepsPerClock;
    if (std::chrono::steady_clock::now() >= budget.deadline) break;
  }
  return Verdict::stopped;
}

/// Performs one step of the depth-first search: enters the next part of the top frame, makes its next
/// choice, or backtracks.
Search::Answer Search::step() {
  Frame& frame = frames_.back();
  if (frame.placed >= 0 && frame.next_part < parts_.size()) {
    const Part part = parts_[frame.next_part++];
    const Key tried = frame.tried;
    frames_.push_back({.part = part, .tried = tried});
    return Answer::none;
  }
  if (frame.placed >= 0) {
    parts_.resize(frame.num_parts);
    frames_.pop_back();
    return frames_.empty() ? Answer::yes : Answer::none;
  }
  while (choose(frame)) {
    if (place(frame)) return Answer::none;
    undo(frame);
  }
  cache_failure(frame.part.hash);
  frames_.pop_back();
  if (frames_.empty()) return Answer::no;
  undo(frames_.back());
  return Answer::none;
}

void Search::cache_failure(uint64_t hash) {
  if (num_failed_ * 2 >= failed_.size() && failed_.size() < kMaxFailed) {
    const std::vector<uint64_t> before =
        std::exchange(failed_, std::vector<uint64_t>(std::max<size_t>(kFirstFailed, 4 * failed_.size())));
    for (const uint64_t old : before) failed_[old % failed_.size()] = old;
  }
  failed_[hash % failed_.size()] = hash;
  ++num_failed_;
}

/// Chooses the remaining item with the smallest key after the key tried last. Returns false if there is none,
/// or if another remaining item would fit completely below the chosen offset: a solution that leaves such a
/// hole can be compacted and is found by another choice. Twins are placed in index order, because exchanging
/// them gives an equivalent packing.
bool Search::choose(Frame& frame) {
  Key best{.offset = kNever};
  int choice = -1;
  int64_t ceiling = kNever;
  for (int i = frame.part.begin; i < frame.part.end; i = next_[static_cast<size_t>(i)]) {
    ++steps_used_;
    const auto item = static_cast<size_t>(i);
    const Key key = key_of(i);
    ceiling = std::min(ceiling, key.offset + piece_.items[item].size);
    if (key <= frame.tried || key >= best) continue;
    const int twin = piece_.items[item].twin;
    if (twin >= 0 && !is_placed_[static_cast<size_t>(twin)]) continue;
    best = key;
    choice = i;
  }
  if (choice < 0 || best.offset >= ceiling) return false;
  frame.tried = best;
  frame.placed = choice;
  return true;
}

/// Places the chosen item. Returns false if the remaining items cannot fit any more. In both cases undo()
/// removes the item again.
bool Search::place(Frame& frame) {
  const auto item = static_cast<size_t>(frame.placed);
  frame.num_placed = placed_.size();
  frame.num_raised = raised_.size();
  frame.num_parts = parts_.size();
  frame.next_part = parts_.size();
  placed_.push_back(frame.placed);
  is_placed_[item] = 1;
  next_[static_cast<size_t>(previous_[item])] = next_[item];
  previous_[static_cast<size_t>(next_[item])] = previous_[item];
  add_clique_totals(piece_.items[item], -piece_.items[item].size);
  raise_overlapping(frame);
  return find_min_offsets(frame) && split(frame);
}

void Search::undo(Frame& frame) {
  for (; raised_.size() > frame.num_raised; raised_.pop_back()) {
    offset_[static_cast<size_t>(raised_.back().item)] = raised_.back().before;
  }
  for (; placed_.size() > frame.num_placed; placed_.pop_back()) {
    const auto item = static_cast<size_t>(placed_.back());
    is_placed_[item] = 0;
    next_[static_cast<size_t>(previous_[item])] = placed_.back();
    previous_[static_cast<size_t>(next_[item])] = placed_.back();
    add_clique_totals(piece_.items[item], piece_.items[item].size);
  }
  parts_.resize(frame.num_parts);
  frame.placed = -1;
}

void Search::add_clique_totals(const Item& item, int64_t size) {
  for (int c = item.first; c < item.last; ++c) total_[static_cast<size_t>(c)] += size;
}

int Search::first_remaining(const Frame& frame) const {
  const int begin = frame.part.begin;
  return begin == frame.placed ? next_[static_cast<size_t>(begin)] : begin;
}

/// Raises each remaining item that overlaps the placed item in time to at least the placed item's top,
/// because items are placed in order of increasing offset.
void Search::raise_overlapping(const Frame& frame) {
  const Item& placed = piece_.items[static_cast<size_t>(frame.placed)];
  const int64_t top = frame.tried.offset + placed.size;
  for (int i = first_remaining(frame); i < frame.part.end; i = next_[static_cast<size_t>(i)]) {
    const Item& item = piece_.items[static_cast<size_t>(i)];
    if (item.first >= placed.last) break;
    int64_t& offset = offset_[static_cast<size_t>(i)];
    if (item.last <= placed.first || offset >= top) continue;
    raised_.push_back({.item = i, .before = offset});
    offset = aligned(top, item.alignment);
  }
}

/// Computes a lower bound of the offset of each remaining item. Skipped items are remaining items whose key
/// is below the placed item's. A skipped item must rest on a remaining item that starts below the skipped
/// item's top, because otherwise it would fit into the hole below itself; returns false if there is no such
/// item.
bool Search::find_min_offsets(const Frame& frame) {
  remaining_.clear();
  skipped_.clear();
  for (int i = first_remaining(frame); i < frame.part.end; i = next_[static_cast<size_t>(i)]) {
    const Item& item = piece_.items[static_cast<size_t>(i)];
    if (key_of(i) <= frame.tried) skipped_.push_back(remaining_.size());
    const int64_t min_offset = std::max(offset_[static_cast<size_t>(i)], frame.tried.offset);
    remaining_.push_back(
        {.first = item.first, .last = item.last, .min_offset = min_offset, .size = item.size, .item = i});
  }
  steps_used_ += static_cast<int64_t>(remaining_.size());
  for (const size_t k : skipped_) {
    Remaining& skipped = remaining_[k];
    const int64_t top = offset_[static_cast<size_t>(skipped.item)] + skipped.size;
    skipped.min_offset = kNever;
    int64_t min_offset = kNever;
    size_t j = 0;
    for (; j < remaining_.size() && remaining_[j].first < skipped.last; ++j) {
      const Remaining& below = remaining_[j];
      const bool carries = below.last > skipped.first && below.min_offset < top;
      min_offset = std::min(min_offset, carries ? below.min_offset + below.size : kNever);
    }
    steps_used_ += static_cast<int64_t>(j);
    if (min_offset == kNever) return false;
    skipped.min_offset = aligned(min_offset, piece_.items[static_cast<size_t>(skipped.item)].alignment);
  }
  return true;
}

/// Splits the remaining items into parts without common time, and checks for each part whether it
/// can still fit.
bool Search::split(const Frame& frame) {
  if (remaining_.empty()) return true;
  Part part{.begin = remaining_.front().item};
  int from = remaining_.front().first;
  int to = from;
  for (const Remaining& left : remaining_) {
    steps_used_ += 1 + (left.last - left.first) / 8;
    if (left.first >= to && left.item != part.begin) {
      part.end = left.item;
      if (!close_part(part, from, to)) return false;
      part = {.begin = left.item};
      from = to = left.first;
    }
    part.hash += hash_of(left.item, key_of(left.item) <= frame.tried);
    const int old_end = std::min(to, left.last);
    for (int c = left.first; c < old_end; ++c) {
      floor_[static_cast<size_t>(c)] = std::min(floor_[static_cast<size_t>(c)], left.min_offset);
    }
    for (int c = to; c < left.last; ++c) floor_[static_cast<size_t>(c)] = left.min_offset;
    to = std::max(to, left.last);
  }
  part.end = frame.part.end;
  return close_part(part, from, to);
}

bool Search::close_part(Part part, int from, int to) {
  for (int c = from; c < to; ++c) {
    if (floor_[static_cast<size_t>(c)] + total_[static_cast<size_t>(c)] <= capacity_) continue;
    ++failures_[static_cast<size_t>(c)];
    return false;
  }
  part.hash += seed_;
  if (!failed_.empty() && failed_[part.hash % failed_.size()] == part.hash) return false;
  parts_.push_back(part);
  return true;
}

Search::Key Search::key_of(int item) const {
  return {.offset = offset_[static_cast<size_t>(item)], .rank = rank_[static_cast<size_t>(item)]};
}

uint64_t Search::hash_of(int item, bool is_skipped) const {
  return mix(static_cast<uint64_t>(offset_[static_cast<size_t>(item)]) * 0x9e3779b97f4a7c15ULL +
             2 * static_cast<uint64_t>(item) + (is_skipped ? 1 : 0));
}

}  // namespace hearth::arena
