// What device.h promises, of an emulated card or, in a build for cards, of the first one here.
#include <cstring>
#include <numeric>

#include "gpu/card.h"

namespace hearth::gpu {
namespace {

constexpr size_t kCount = 100000;

class AnyCard : public testing::Test {
 protected:
  void SetUp() override {
    if (list_devices().empty()) GTEST_SKIP() << "SKIPPED: a card's memory and streams: there is none here";
  }
  static std::vector<int> counted(int first) {
    std::vector<int> values(kCount);
    std::iota(values.begin(), values.end(), first);
    return values;
  }
  static std::byte* bytes(int* values) { return reinterpret_cast<std::byte*>(values); }
};

constexpr int64_t kBytes = kCount * sizeof(int);

TEST_F(AnyCard, KeepsWhatItIsGiven) {
  Card card;
  int* there = card.put(counted(7));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(there) % 256, 0U);
  EXPECT_EQ(card.get(there, kCount), counted(7));
  card.stream().fill_zero(bytes(there), kBytes / 2);
  const std::vector<int> half = card.get(there, kCount);
  EXPECT_EQ(half[kCount / 2 - 1], 0);
  EXPECT_EQ(half[kCount / 2], 7 + static_cast<int>(kCount / 2));
}

TEST_F(AnyCard, SaysThatItIsFull) {
  Card card;
  const int64_t free_bytes = card.device().free_bytes();
  EXPECT_GT(free_bytes, 0);
  EXPECT_LE(free_bytes, card.device().info().memory_bytes);
  try {
    card.device().allocate(2 * card.device().info().memory_bytes);
    ADD_FAILURE() << "twice its memory was given";
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.kind(), DeviceError::Kind::out_of_memory) << error.what();
  }
  EXPECT_EQ(card.get(card.put(counted(1)), kCount), counted(1)) << "and goes on";
}

TEST_F(AnyCard, OrdersStreamsByEvents) {
  Card card;
  Stream other(card.device());
  HostMemory in(card.device(), kBytes), out(card.device(), kBytes);
  const std::vector<int> values = counted(3);
  std::memcpy(in.data(), values.data(), kBytes);
  int* there = card.room<int>(kCount);
  Event begun, arrived;
  other.record(begun);
  other.copy_in(bytes(there), in.data(), kBytes);
  other.record(arrived);
  card.stream().wait(arrived);
  card.stream().copy_out(out.data(), bytes(there), kBytes);
  card.stream().synchronise();
  EXPECT_EQ(std::memcmp(out.data(), values.data(), kBytes), 0);
  other.synchronise();
  EXPECT_GE(arrived.seconds_since(begun), 0);
  EXPECT_LT(arrived.seconds_since(begun), 10);
}

TEST_F(AnyCard, RepeatsARecordingOfTwoStreams) {
  Card card;
  Stream other(card.device());
  HostMemory in(card.device(), kBytes), out(card.device(), kBytes);
  int* there = card.room<int>(kCount);
  Event begun, arrived;
  card.stream().start_recording();
  card.stream().record(begun);
  other.wait(begun);
  other.copy_in(bytes(there), in.data(), kBytes);
  other.record(arrived);
  card.stream().wait(arrived);
  card.stream().copy_out(out.data(), bytes(there), kBytes);
  const auto recording = card.stream().finish_recording();
  ASSERT_NE(recording, nullptr);
  for (const int first : {5, 11}) {
    const std::vector<int> values = counted(first);
    std::memcpy(in.data(), values.data(), kBytes);
    card.stream().replay(*recording);
    card.stream().synchronise();
    EXPECT_EQ(std::memcmp(out.data(), values.data(), kBytes), 0) << first;
  }
}

}  // namespace
}  // namespace hearth::gpu
