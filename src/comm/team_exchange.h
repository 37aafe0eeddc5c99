#pragma once

#include <exception>
#include <vector>

#include "backend/exchange.h"
#include "base/function_ref.h"
#include "comm/transport.h"

namespace hearth::comm {

/// Kernels' way to the other ranks of a transport, which outlives it.
class TeamExchange : public Exchange {
 public:
  explicit TeamExchange(Transport& team) : team_(team) {}
  /// The collectives that follow are of this step, numbered anew.
  void start_step(int64_t step) { place_ = {.step = step, .index = 0}; }
  /// Throws what a collective failed with, CommError as a rule; while no kernel is at work.
  void check() const;
  void all_reduce(std::span<const std::span<float>> pieces, DType wire) override;
  void reduce(std::span<const std::span<float>> pieces, int root) override;
  void broadcast(std::span<const std::span<float>> pieces, int root) override;
  void send(std::span<const std::byte> data, int to) override;
  void receive(std::span<std::byte> data, int from) override;

 private:
  using Pieces = std::span<const std::span<float>>;
  /// Makes the next collective, unless one has failed.
  void make(FunctionRef<void()> collective);
  /// Has `collective` done to all pieces as one.
  void make(Pieces pieces, FunctionRef<void(std::span<float>)> collective);

  Transport& team_;
  Place place_;
  std::vector<float> joined_;
  std::exception_ptr error_;
};

}  // namespace hearth::comm
