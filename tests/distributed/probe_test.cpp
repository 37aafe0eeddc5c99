// The probe passes what is right, and names what is not, on every rank.
#include "distributed/probe.h"

#include <gtest/gtest.h>

#include <thread>

#include "distributed/shm.h"

namespace hearth::distributed {
namespace {

/// Shared memory whose sums or copies come wrong on one rank, from arrays of some size on.
class Lying : public Transport {
 public:
  enum class Lie : uint8_t { none, sum, copy };
  Lying(std::unique_ptr<Transport> honest, Lie lie) : honest_(std::move(honest)), lie_(lie) {}

  int rank() const override { return honest_->rank(); }
  int size() const override { return honest_->size(); }
  void set_place(const Place& place) override { honest_->set_place(place); }
  void barrier() override { honest_->barrier(); }
  void all_reduce(std::span<float> data, DType wire) override {
    honest_->all_reduce(data, wire);
    if (lie_ == Lie::sum && data.size() > kLarge) data[kLarge] += 1;
  }
  void reduce_scatter(std::span<const float> in, std::span<float> out, DType wire) override {
    honest_->reduce_scatter(in, out, wire);
  }
  void all_gather(std::span<const std::byte> in, std::span<std::byte> out) override {
    honest_->all_gather(in, out);
    if (lie_ == Lie::copy && in.size() > kLarge) std::fill_n(out.begin(), sizeof(float), std::byte{0x7f});
  }
  void broadcast(std::span<std::byte> data, int root) override { honest_->broadcast(data, root); }
  void send(std::span<const std::byte> data, int to) override { honest_->send(data, to); }
  void receive(std::span<std::byte> data, int from) override { honest_->receive(data, from); }

 private:
  static constexpr size_t kLarge = 5000;
  std::unique_ptr<Transport> honest_;
  Lie lie_;
};

/// What each of three ranks says, the second of which lies.
std::vector<std::string> said(Lying::Lie lie) {
  ShmGroup group(3);
  std::vector<std::string> faults(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      Lying transport(group.open(rank), rank == 1 ? lie : Lying::Lie::none);
      faults[static_cast<size_t>(rank)] = find_fault(transport);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return faults;
}

TEST(Probe, PassesWhatIsRight) { EXPECT_EQ(said(Lying::Lie::none), std::vector<std::string>(3)); }

TEST(Probe, NamesAWrongSumOnEveryRank) {
  EXPECT_EQ(said(Lying::Lie::sum),
            std::vector<std::string>(3, "rank 1 got a wrong sum of 524301 known numbers, at 5000"));
}

TEST(Probe, NamesAWrongCopyOnEveryRank) {
  EXPECT_EQ(said(Lying::Lie::copy),
            std::vector<std::string>(3, "rank 1 got a wrong copy of 524301 known numbers, at 0"));
}

}  // namespace
}  // namespace hearth::distributed
