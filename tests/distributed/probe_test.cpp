// The probe passes what is right, and names what is not, on every rank.
#include "distributed/probe.h"

#include <gtest/gtest.h>

#include <thread>

#include "distributed/forwarding_group.h"
#include "distributed/shm/shm.h"

namespace hearth::distributed {
namespace {

/// Shared memory whose sums or copies come wrong on one rank, from arrays of some size on.
class Lying : public ForwardingGroup {
 public:
  enum class Lie : uint8_t { none, sum, copy };
  Lying(ProcessGroup& honest, Lie lie) : ForwardingGroup(honest), lie_(lie) {}

  void all_reduce(std::span<float> data, DType wire) override {
    ForwardingGroup::all_reduce(data, wire);
    if (lie_ == Lie::sum && data.size() > kLarge) data[kLarge] += 1;
  }
  void all_gather(std::span<const std::byte> in, std::span<std::byte> out) override {
    ForwardingGroup::all_gather(in, out);
    if (lie_ == Lie::copy && in.size() > kLarge) std::fill_n(out.begin(), sizeof(float), std::byte{0x7f});
  }

 private:
  static constexpr size_t kLarge = 5000;
  Lie lie_;
};

/// What each of three ranks says, the second of which lies.
std::vector<std::string> said(Lying::Lie lie) {
  ShmGroup group(3);
  std::vector<std::string> faults(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const auto honest = group.open(rank);
      Lying lying(*honest, rank == 1 ? lie : Lying::Lie::none);
      faults[static_cast<size_t>(rank)] = find_fault(lying);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return faults;
}

TEST(Probe, PassesWhatIsRight) { EXPECT_EQ(said(Lying::Lie::none), std::vector<std::string>(3)); }

TEST(Probe, NamesAWrongSumOnEveryRank) {
  EXPECT_EQ(
      said(Lying::Lie::sum),
      std::vector<std::string>(3, "rank 1 got a wrong sum of 524301 test numbers, first at index 5000"));
}

TEST(Probe, NamesAWrongCopyOnEveryRank) {
  EXPECT_EQ(said(Lying::Lie::copy),
            std::vector<std::string>(3, "rank 1 got a wrong copy of 524301 test numbers, first at index 0"));
}

}  // namespace
}  // namespace hearth::distributed
