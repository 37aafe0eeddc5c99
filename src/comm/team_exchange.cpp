#include "comm/team_exchange.h"

#include <algorithm>

namespace hearth::comm {

void TeamExchange::check() const {
  if (error_) std::rethrow_exception(error_);
}

std::span<float> TeamExchange::join(std::span<const std::span<float>> pieces) {
  joined_.clear();
  for (const std::span<float> piece : pieces) joined_.insert(joined_.end(), piece.begin(), piece.end());
  return joined_;
}

void TeamExchange::all_reduce(std::span<const std::span<float>> pieces, DType wire) {
  if (error_) return;
  try {
    team_.set_place(place_);
    ++place_.index;
    if (pieces.size() == 1) return team_.all_reduce(pieces[0], wire);
    std::span<float> sums = join(pieces);
    team_.all_reduce(sums, wire);
    for (const std::span<float> piece : pieces) {
      std::copy_n(sums.begin(), piece.size(), piece.begin());
      sums = sums.subspan(piece.size());
    }
  } catch (...) {
    error_ = std::current_exception();
  }
}

}  // namespace hearth::comm
