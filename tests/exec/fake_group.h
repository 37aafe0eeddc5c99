#pragma once

#include <gtest/gtest.h>

#include "distributed/process_group.h"

namespace hearth::exec {

/// A worker's end of a group that is not there, for programs: a test says what comes of those collectives
/// that it expects.
class FakeGroup : public distributed::ProcessGroup {
 public:
  using ProcessGroup::all_gather, ProcessGroup::all_reduce, ProcessGroup::broadcast, ProcessGroup::receive,
      ProcessGroup::reduce, ProcessGroup::reduce_scatter, ProcessGroup::send;
  int rank() const override { return 0; }
  int size() const override { return 2; }
  bool has(distributed::Capability /*capability*/) const override { return false; }
  void set_collective_id(const distributed::CollectiveId& /*place*/) override {}
  void barrier() override { ADD_FAILURE(); }
  void all_reduce(std::span<float> /*data*/, DType /*wire*/) override { ADD_FAILURE(); }
  void reduce_scatter(std::span<const float> /*in*/, std::span<float> /*out*/, DType /*wire*/) override {
    ADD_FAILURE();
  }
  void all_gather(std::span<const std::byte> /*in*/, std::span<std::byte> /*out*/) override { ADD_FAILURE(); }
  void broadcast(std::span<std::byte> /*data*/, int root) override { ADD_FAILURE() << "from " << root; }
  void send(std::span<const std::byte> /*data*/, int to) override { ADD_FAILURE() << "to " << to; }
  void receive(std::span<std::byte> /*data*/, int from) override { ADD_FAILURE() << "from " << from; }
};

}  // namespace hearth::exec
