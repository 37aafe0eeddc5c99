#include "plan/search.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace hearth::plan {
namespace {

constexpr int64_t kNever = INT64_MAX;
constexpr int64_t kFirstLimit = 1 << 19;
constexpr int64_t kWorkPerClock = 1 << 16;
constexpr size_t kMaxFailed = size_t{1} << 20;

int64_t aligned(int64_t offset, int64_t alignment) {
  return alignment == 1 ? offset : (offset + alignment - 1) / alignment * alignment;
}

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ULL;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ULL;
  return x ^ (x >> 32);
}

/// What an item is sorted by, most first: units alive in its fullest clique, cliques, area.
struct Traits {
  int64_t total = 0;
  int64_t width = 0;
  int64_t area = 0;
};

std::vector<Traits> traits_of(const Piece& piece) {
  std::vector<int64_t> alive(static_cast<size_t>(piece.num_cliques), 0);
  for (const Item& item : piece.items) {
    for (int c = item.first; c < item.last; ++c) alive[static_cast<size_t>(c)] += item.size;
  }
  std::vector<Traits> traits;
  for (const Item& item : piece.items) {
    const int64_t width = item.last - item.first;
    traits.push_back({.total = *std::max_element(alive.begin() + item.first, alive.begin() + item.last),
                      .width = width,
                      .area = width * item.size});
  }
  return traits;
}

using Order = std::array<int64_t Traits::*, 3>;
constexpr std::array<Order, 3> kOrders = {Order{&Traits::width, &Traits::area, &Traits::total},
                                          Order{&Traits::total, &Traits::area, &Traits::width},
                                          Order{&Traits::total, &Traits::width, &Traits::area}};

std::vector<int> ranks_of(const std::vector<Traits>& traits, const Order& order) {
  std::vector<int> sorted(traits.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  const auto before = [&](int a, int b) {
    for (const auto trait : order) {
      const int64_t x = traits[static_cast<size_t>(a)].*trait;
      const int64_t y = traits[static_cast<size_t>(b)].*trait;
      if (x != y) return x > y;
    }
    return a < b;
  };
  std::sort(sorted.begin(), sorted.end(), before);
  std::vector<int> ranks(traits.size());
  for (size_t i = 0; i < sorted.size(); ++i) ranks[static_cast<size_t>(sorted[i])] = static_cast<int>(i);
  return ranks;
}

}  // namespace

Search::Search(const Piece& piece)
    : piece_(piece),
      num_items_(static_cast<int>(piece.items.size())),
      offset_(piece.items.size()),
      next_(piece.items.size() + 1),
      previous_(piece.items.size() + 1),
      is_placed_(piece.items.size()),
      total_(static_cast<size_t>(piece.num_cliques)),
      floor_(static_cast<size_t>(piece.num_cliques)) {
  const std::vector<Traits> traits = traits_of(piece);
  for (const Order& order : kOrders) ranks_.push_back(ranks_of(traits, order));
}

Verdict Search::run(int64_t capacity, TimePoint deadline) {
  if (piece_.bound > capacity) return Verdict::impossible;
  capacity_ = capacity;
  for (int64_t limit = kFirstLimit;; limit *= 2) {
    for (int order = 0; order < static_cast<int>(ranks_.size()); ++order) {
      const Verdict verdict = run_order(order, limit * num_items_, deadline);
      if (verdict != Verdict::stopped) return verdict;
      if (std::chrono::steady_clock::now() >= deadline) return Verdict::stopped;
    }
  }
}

void Search::reset(int order) {
  rank_ = ranks_[static_cast<size_t>(order)].data();
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

Verdict Search::run_order(int order, int64_t limit, TimePoint deadline) {
  reset(order);
  seed_ = mix(static_cast<uint64_t>(3 * capacity_ + order));
  work_ = 0;
  for (int64_t next_look = kWorkPerClock;;) {
    const Answer answer = step();
    if (answer != Answer::none) return answer == Answer::yes ? Verdict::found : Verdict::impossible;
    if (work_ < next_look) continue;
    next_look = work_ + kWorkPerClock;
    if (work_ >= limit || std::chrono::steady_clock::now() >= deadline) return Verdict::stopped;
  }
}

/// One move on the stack: into the next part of the top choice, to the next choice, or back.
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
  if (failed_.empty()) failed_.resize(kMaxFailed);
  failed_[frame.part.hash % failed_.size()] = frame.part.hash;
  frames_.pop_back();
  if (frames_.empty()) return Answer::no;
  undo(frames_.back());
  return Answer::none;
}

/// The next key after the one tried last, unless a hole below it would stay that an item left out fits into.
/// Of twins, the first goes first.
bool Search::choose(Frame& frame) {
  Key best{.offset = kNever};
  int choice = -1;
  int64_t ceiling = kNever;
  for (int i = frame.part.begin; i < frame.part.end; i = next_[static_cast<size_t>(i)]) {
    const auto item = static_cast<size_t>(i);
    const Key key{.offset = offset_[item], .rank = rank_[item]};
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

/// False if what is left cannot fit any more; undo() takes it back either way.
bool Search::place(Frame& frame) {
  const auto item = static_cast<size_t>(frame.placed);
  frame.num_placed = placed_.size();
  frame.num_raised = raised_.size();
  frame.num_parts = parts_.size();
  frame.next_part = parts_.size();
  ++nodes;
  placed_.push_back(frame.placed);
  is_placed_[item] = 1;
  next_[static_cast<size_t>(previous_[item])] = next_[item];
  previous_[static_cast<size_t>(next_[item])] = previous_[item];
  add_clique_totals(piece_.items[item], -piece_.items[item].size);
  raise_overlapping(frame);
  return split(frame);
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

int Search::first_left(const Frame& frame) const {
  const int begin = frame.part.begin;
  return begin == frame.placed ? next_[static_cast<size_t>(begin)] : begin;
}

/// Items are placed upwards: what overlaps the placed one in time goes above it.
void Search::raise_overlapping(const Frame& frame) {
  const Item& placed = piece_.items[static_cast<size_t>(frame.placed)];
  const int64_t top = frame.tried.offset + placed.size;
  for (int i = first_left(frame); i < frame.part.end; i = next_[static_cast<size_t>(i)]) {
    const Item& item = piece_.items[static_cast<size_t>(i)];
    if (item.first >= placed.last) break;
    int64_t& offset = offset_[static_cast<size_t>(i)];
    if (item.last <= placed.first || offset >= top) continue;
    raised_.push_back({.item = i, .before = offset});
    offset = aligned(top, item.alignment);
  }
}

/// Cuts what is left of the frame's part in time and looks whether each part can still fit.
bool Search::split(const Frame& frame) {
  Part part{.begin = first_left(frame)};
  if (part.begin >= frame.part.end) return true;
  int from = piece_.items[static_cast<size_t>(part.begin)].first;
  int to = from;
  for (int i = part.begin; i < frame.part.end; i = next_[static_cast<size_t>(i)]) {
    ++work_;
    const Item& item = piece_.items[static_cast<size_t>(i)];
    if (item.first >= to && i != part.begin) {
      part.end = i;
      if (!close_part(part, from, to)) return false;
      part = {.begin = i};
      from = to = item.first;
    }
    const Key key{.offset = offset_[static_cast<size_t>(i)], .rank = rank_[static_cast<size_t>(i)]};
    part.hash += hash_of(i, key, frame.tried);
    const int64_t least = std::max(key.offset, frame.tried.offset);
    const int old_end = std::min(to, item.last);
    for (int c = item.first; c < old_end; ++c) {
      floor_[static_cast<size_t>(c)] = std::min(floor_[static_cast<size_t>(c)], least);
    }
    for (int c = to; c < item.last; ++c) floor_[static_cast<size_t>(c)] = least;
    to = std::max(to, item.last);
  }
  part.end = frame.part.end;
  return close_part(part, from, to);
}

bool Search::close_part(Part part, int from, int to) {
  for (int c = from; c < to; ++c) {
    if (floor_[static_cast<size_t>(c)] + total_[static_cast<size_t>(c)] > capacity_) return false;
  }
  part.hash += seed_;
  if (!failed_.empty() && failed_[part.hash % failed_.size()] == part.hash) return false;
  parts_.push_back(part);
  return true;
}

uint64_t Search::hash_of(int item, Key key, Key least) const {
  const uint64_t is_behind = key <= least ? 1 : 0;
  return mix(static_cast<uint64_t>(key.offset) * 0x9e3779b97f4a7c15ULL + 2 * static_cast<uint64_t>(item) +
             is_behind);
}

}  // namespace hearth::plan
