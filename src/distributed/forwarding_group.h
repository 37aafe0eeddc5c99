#pragma once

#include "distributed/process_group.h"

namespace hearth::distributed {

/// Forwards every call to another process group, which must outlive this one; base class of groups that
/// override some calls.
class ForwardingGroup : public ProcessGroup {
 public:
  explicit ForwardingGroup(ProcessGroup& other) : other_(other) {}

  using ProcessGroup::all_gather, ProcessGroup::all_reduce, ProcessGroup::broadcast, ProcessGroup::receive,
      ProcessGroup::reduce, ProcessGroup::reduce_scatter, ProcessGroup::send;
  int rank() const override { return other_.rank(); }
  int size() const override { return other_.size(); }
  bool has(Capability capability) const override { return other_.has(capability); }
  void set_collective_id(const CollectiveId& place) override { other_.set_collective_id(place); }
  void allow(double seconds) override { other_.allow(seconds); }
  void barrier() override { other_.barrier(); }
  void all_reduce(std::span<float> data, DType wire) override { other_.all_reduce(data, wire); }
  void reduce_scatter(std::span<const float> in, std::span<float> out, DType wire) override {
    other_.reduce_scatter(in, out, wire);
  }
  void all_gather(std::span<const std::byte> in, std::span<std::byte> out) override {
    other_.all_gather(in, out);
  }
  void broadcast(std::span<std::byte> data, int root) override { other_.broadcast(data, root); }
  void send(std::span<const std::byte> data, int to) override { other_.send(data, to); }
  void receive(std::span<std::byte> data, int from) override { other_.receive(data, from); }

 private:
  ProcessGroup& other_;
};

}  // namespace hearth::distributed
