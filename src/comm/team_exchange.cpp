#include "comm/team_exchange.h"

#include <algorithm>

namespace hearth::comm {

void TeamExchange::check() const {
  if (error_) std::rethrow_exception(error_);
}

void TeamExchange::make(Pieces pieces, FunctionRef<void(std::span<float>)> collective) {
  if (error_) return;
  try {
    team_.set_place(place_);
    ++place_.index;
    if (pieces.size() == 1) return collective(pieces[0]);
    joined_.clear();
    for (const std::span<float> piece : pieces) joined_.insert(joined_.end(), piece.begin(), piece.end());
    collective(joined_);
    auto from = joined_.begin();
    for (const std::span<float> piece : pieces) {
      std::copy_n(from, piece.size(), piece.begin());
      from += std::ssize(piece);
    }
  } catch (...) {
    error_ = std::current_exception();
  }
}

void TeamExchange::all_reduce(Pieces pieces, DType wire) {
  make(pieces, [&](std::span<float> data) { team_.all_reduce(data, wire); });
}

void TeamExchange::reduce(Pieces pieces, int /*root*/) {
  // To every rank: their links to the host's memory carry only what they fetch from there.
  all_reduce(pieces, DType::f32);
}

void TeamExchange::broadcast(Pieces pieces, int root) {
  make(pieces, [&](std::span<float> data) { team_.broadcast(std::as_writable_bytes(data), root); });
}

}  // namespace hearth::comm
