#include "distributed/team_exchange.h"

#include <algorithm>
#include <chrono>

namespace hearth::distributed {

void TeamExchange::check() const {
  if (error_) std::rethrow_exception(error_);
}

void TeamExchange::make(FunctionRef<void()> collective) {
  if (error_) return;
  const auto start = std::chrono::steady_clock::now();
  try {
    team_.set_place(place_);
    ++place_.index;
    collective();
  } catch (...) {
    error_ = std::current_exception();
  }
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void TeamExchange::make(Pieces pieces, FunctionRef<void(std::span<float>)> collective) {
  make([&] {
    if (pieces.size() == 1) return collective(pieces[0]);
    joined_.clear();
    for (const std::span<float> piece : pieces) joined_.insert(joined_.end(), piece.begin(), piece.end());
    collective(joined_);
    auto from = joined_.begin();
    for (const std::span<float> piece : pieces) {
      std::copy_n(from, piece.size(), piece.begin());
      from += std::ssize(piece);
    }
  });
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

void TeamExchange::broadcast(std::span<std::byte> data, int root) {
  make([&] { team_.broadcast(data, root); });
}

void TeamExchange::send(std::span<const std::byte> data, int to) {
  make([&] { team_.send(data, to); });
}

void TeamExchange::receive(std::span<std::byte> data, int from) {
  make([&] { team_.receive(data, from); });
}

void TeamExchange::all_reduce(Pieces pieces, gpu::Stream& stream) {
  make([&] {
    for (const std::span<float> piece : pieces)
      gpus_->all_reduce(piece.data(), std::ssize(piece), DType::f32, stream);
  });
}

void TeamExchange::reduce(Pieces pieces, int root, gpu::Stream& stream) {
  make([&] {
    for (const std::span<float> piece : pieces) gpus_->reduce(piece.data(), std::ssize(piece), root, stream);
  });
}

void TeamExchange::broadcast(Pieces pieces, int root, gpu::Stream& stream) {
  make([&] {
    for (const std::span<float> piece : pieces)
      gpus_->broadcast(piece.data(), static_cast<int64_t>(piece.size_bytes()), root, stream);
  });
}

}  // namespace hearth::distributed
