#pragma once

#include <vector>

#include "distributed/process_group.h"

namespace hearth::distributed {

/// Collectives built from point-to-point messages, for groups without shared memory. For reduce_scatter and
/// all_gather, each rank sends and receives (size - 1) / size of the array, which is optimal; for all_reduce
/// twice as much.
class MessageProcessGroup : public ProcessGroup {
 public:
  void barrier() override;
  void all_reduce(std::span<float> data, DType wire) override;
  void reduce_scatter(std::span<const float> in, std::span<float> out, DType wire) override;
  void all_gather(std::span<const std::byte> in, std::span<std::byte> out) override;
  void broadcast(std::span<std::byte> data, int root) override;
  void send(std::span<const std::byte> data, int to) override;
  void receive(std::span<std::byte> data, int from) override;
  bool has(Capability) const override { return false; }
  void set_collective_id(const CollectiveId& place) override { collective_id_ = place; }

 protected:
  struct Outgoing {
    int to;
    std::span<const std::byte> bytes;
  };
  struct Incoming {
    int from;
    std::span<std::byte> bytes;
  };
  /// Sends and receives all messages, and returns when that is done. Each message has at most
  /// kMaxMessageBytes bytes and exactly the size that the receiver expects; messages between two ranks keep
  /// their order. Throws CommError.
  virtual void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) = 0;
  static constexpr int64_t kMaxMessageBytes = int64_t{1} << 20;
  /// Describes the collective that this rank is in: "all_reduce 3 of step 412".
  std::string whereabouts() const { return to_string(collective_, collective_id_); }

 private:
  void sum_parts(std::span<const std::byte> own, std::span<std::byte> sums, DType wire);

  const char* collective_ = "nothing";
  CollectiveId collective_id_;
  std::vector<std::byte> brought_, arrived_, sums_;
  std::vector<Outgoing> out_;
  std::vector<Incoming> in_;
};

}  // namespace hearth::distributed
