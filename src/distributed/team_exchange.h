#pragma once

#include <exception>
#include <memory>
#include <vector>

#include "backend/exchange.h"
#include "base/function_ref.h"
#include "distributed/nccl.h"
#include "distributed/transport.h"

namespace hearth::distributed {

/// Kernels' way to the other ranks of a transport, which outlives it, and with `gpus` to those ranks' GPUs.
class TeamExchange : public Exchange, private GpuExchange {
 public:
  explicit TeamExchange(Transport& team, std::shared_ptr<NcclTeam> gpus = nullptr)
      : team_(team), gpus_(std::move(gpus)) {}
  /// The collectives that follow are of this step, numbered anew.
  void start_step(int64_t step) { place_ = {.step = step, .index = 0}; }
  /// That collectives took so far.
  double seconds() const { return seconds_; }
  /// Throws what a collective failed with, CommError as a rule; while no kernel is at work.
  void check() const;
  void all_reduce(std::span<const std::span<float>> pieces, DType wire) override;
  void reduce(std::span<const std::span<float>> pieces, int root) override;
  void broadcast(std::span<const std::span<float>> pieces, int root) override;
  void broadcast(std::span<std::byte> data, int root) override;
  void send(std::span<const std::byte> data, int to) override;
  void receive(std::span<std::byte> data, int from) override;
  GpuExchange* on_gpu() override { return gpus_ == nullptr ? nullptr : this; }

 private:
  using Pieces = std::span<const std::span<float>>;
  void all_reduce(Pieces pieces, gpu::Stream& stream) override;
  void reduce(Pieces pieces, int root, gpu::Stream& stream) override;
  void broadcast(Pieces pieces, int root, gpu::Stream& stream) override;
  /// Makes the next collective, unless one has failed.
  void make(FunctionRef<void()> collective);
  /// Has `collective` done to all pieces as one.
  void make(Pieces pieces, FunctionRef<void(std::span<float>)> collective);

  Transport& team_;
  std::shared_ptr<NcclTeam> gpus_;
  Place place_;
  std::vector<float> joined_;
  std::exception_ptr error_;
  double seconds_ = 0;
};

}  // namespace hearth::distributed
