#include "arena/pieces.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace hearth::arena {
namespace {

int64_t common_unit(const Problem& problem) {
  int64_t unit = 0;
  for (const Buffer& buffer : problem.buffers) unit = std::gcd(unit, buffer.size);
  for (bool changed = unit != 0; changed;) {
    changed = false;
    for (const Buffer& buffer : problem.buffers) {
      if (unit % buffer.alignment == 0 || buffer.alignment % unit == 0) continue;
      unit = std::gcd(unit, buffer.alignment);
      changed = true;
    }
  }
  return std::max<int64_t>(unit, 1);
}

/// Finds the maximal cliques of the interval graph: sets of buffers alive at the same time to which no other
/// buffer can be added. In time order, such a set is complete when a buffer ends and at least one began since
/// the previous end. Only these cliques bound the height; there are at most as many as buffers.
class CliqueCutter {
 public:
  CliqueCutter(const Problem& problem, int64_t unit) : problem_(problem), unit_(unit) {}

  std::vector<Piece> run() {
    fill_events();
    for (const auto& [time, starts, buffer] : events_) {
      if (starts) {
        open(buffer);
      } else {
        close(buffer);
      }
    }
    return std::move(pieces_);
  }

 private:
  void fill_events() {
    for (size_t i = 0; i < problem_.buffers.size(); ++i) {
      const Buffer& buffer = problem_.buffers[i];
      if (buffer.size == 0) continue;
      events_.emplace_back(buffer.lower, true, static_cast<int>(i));
      events_.emplace_back(buffer.upper, false, static_cast<int>(i));
    }
    std::sort(events_.begin(), events_.end());
    item_of_.resize(problem_.buffers.size());
  }

  void open(int index) {
    if (num_alive_ == 0) pieces_.emplace_back();
    Piece& piece = pieces_.back();
    const Buffer& buffer = problem_.buffers[static_cast<size_t>(index)];
    item_of_[static_cast<size_t>(index)] = piece.items.size();
    piece.items.push_back({.first = piece.num_cliques,
                           .size = buffer.size / unit_,
                           .alignment = std::max<int64_t>(buffer.alignment / unit_, 1),
                           .buffer = index});
    ++num_alive_;
    alive_ += buffer.size / unit_;
    piece.bound = std::max(piece.bound, alive_);
    clique_is_new_ = true;
  }

  void close(int index) {
    Piece& piece = pieces_.back();
    if (clique_is_new_) ++piece.num_cliques;
    clique_is_new_ = false;
    Item& item = piece.items[item_of_[static_cast<size_t>(index)]];
    item.last = piece.num_cliques;
    --num_alive_;
    alive_ -= item.size;
  }

  const Problem& problem_;
  int64_t unit_;
  /// Begins and ends of buffers in time order, as tuples (time, true if begin, index in Problem::buffers). At
  /// equal times, ends come before begins.
  std::vector<std::tuple<int64_t, bool, int>> events_;
  std::vector<size_t> item_of_;
  std::vector<Piece> pieces_;
  int num_alive_ = 0;
  int64_t alive_ = 0;
  bool clique_is_new_ = false;
};

void link_twins(Piece& piece) {
  std::map<std::tuple<int, int, int64_t, int64_t>, int> newest;
  for (size_t i = 0; i < piece.items.size(); ++i) {
    Item& item = piece.items[i];
    const auto [place, is_new] =
        newest.try_emplace({item.first, item.last, item.size, item.alignment}, static_cast<int>(i));
    if (!is_new) item.twin = std::exchange(place->second, static_cast<int>(i));
  }
}

}  // namespace

Pieces cut(const Problem& problem) {
  Pieces result{.pieces = {}, .unit = common_unit(problem)};
  result.pieces = CliqueCutter(problem, result.unit).run();
  for (Piece& piece : result.pieces) link_twins(piece);
  return result;
}

}  // namespace hearth::arena
