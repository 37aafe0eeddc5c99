#pragma once

#include <vector>

#include "distributed/process_group.h"

namespace hearth::distributed {

/// Collectives made of messages between pairs of ranks, for groups that have no memory in common. Every rank
/// sends and receives (size - 1) / size of an array for a reduce_scatter or an all_gather, the least there
/// is, and twice that for an all_reduce.
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
  void set_place(const Place& place) override { place_ = place; }

 protected:
  struct Outgoing {
    int to;
    std::span<const std::byte> bytes;
  };
  struct Incoming {
    int from;
    std::span<std::byte> bytes;
  };
  /// Sends and receives all of them; between two ranks they arrive in the order in which they are sent, and
  /// have the sizes that are expected. None has more than kMostBytes. Throws CommError.
  virtual void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) = 0;
  static constexpr int64_t kMostBytes = int64_t{1} << 20;
  /// The collective that this rank is in: "all_reduce 3 of step 412".
  std::string whereabouts() const { return to_string(collective_, place_); }

 private:
  void sum_parts(std::span<const std::byte> own, std::span<std::byte> sums, DType wire);

  const char* collective_ = "nothing";
  Place place_;
  std::vector<std::byte> brought_, arrived_, sums_;
  std::vector<Outgoing> out_;
  std::vector<Incoming> in_;
};

}  // namespace hearth::distributed
