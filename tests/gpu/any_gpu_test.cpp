// What device.h promises, of an emulated GPU or, in a build for GPUs, of the first one here.
#include <cstring>
#include <numeric>

#include "gpu/gpu.h"

namespace hearth::gpu {
namespace {

constexpr size_t kCount = 100000;

class AnyGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (list_devices().empty()) GTEST_SKIP() << "SKIPPED: a GPU's memory and streams: there is none here";
  }
  static std::vector<int> counted(int first) {
    std::vector<int> values(kCount);
    std::iota(values.begin(), values.end(), first);
    return values;
  }
  static std::byte* bytes(int* values) { return reinterpret_cast<std::byte*>(values); }
};

constexpr int64_t kBytes = kCount * sizeof(int);

TEST_F(AnyGpu, KeepsWhatItIsGiven) {
  Gpu gpu;
  int* there = gpu.put(counted(7));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(there) % 256, 0U);
  EXPECT_EQ(gpu.get(there, kCount), counted(7));
  gpu.stream().fill_zero(bytes(there), kBytes / 2);
  const std::vector<int> half = gpu.get(there, kCount);
  EXPECT_EQ(half[kCount / 2 - 1], 0);
  EXPECT_EQ(half[kCount / 2], 7 + static_cast<int>(kCount / 2));
}

TEST_F(AnyGpu, SaysThatItIsFull) {
  Gpu gpu;
  const int64_t free_bytes = gpu.device().free_bytes();
  EXPECT_GT(free_bytes, 0);
  EXPECT_LE(free_bytes, gpu.device().info().memory_bytes);
  try {
    gpu.device().allocate(2 * gpu.device().info().memory_bytes);
    ADD_FAILURE() << "twice its memory was given";
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.kind(), DeviceError::Kind::out_of_memory) << error.what();
  }
  EXPECT_EQ(gpu.get(gpu.put(counted(1)), kCount), counted(1)) << "and continues";
}

TEST_F(AnyGpu, OrdersStreamsByEvents) {
  Gpu gpu;
  Stream other(gpu.device());
  HostMemory in(gpu.device(), kBytes), out(gpu.device(), kBytes);
  const std::vector<int> values = counted(3);
  std::memcpy(in.data(), values.data(), kBytes);
  int* there = gpu.room<int>(kCount);
  Event begun, arrived;
  other.record(begun);
  other.copy_in(bytes(there), in.data(), kBytes);
  other.record(arrived);
  gpu.stream().wait(arrived);
  gpu.stream().copy_out(out.data(), bytes(there), kBytes);
  gpu.stream().synchronize();
  EXPECT_EQ(std::memcmp(out.data(), values.data(), kBytes), 0);
  other.synchronize();
  EXPECT_GE(arrived.seconds_since(begun), 0);
  EXPECT_LT(arrived.seconds_since(begun), 10);
}

TEST_F(AnyGpu, RepeatsARecordingOfTwoStreams) {
  Gpu gpu;
  Stream other(gpu.device());
  HostMemory in(gpu.device(), kBytes), out(gpu.device(), kBytes);
  int* there = gpu.room<int>(kCount);
  Event begun, arrived;
  gpu.stream().start_recording();
  gpu.stream().record(begun);
  other.wait(begun);
  other.copy_in(bytes(there), in.data(), kBytes);
  other.record(arrived);
  gpu.stream().wait(arrived);
  gpu.stream().copy_out(out.data(), bytes(there), kBytes);
  const auto recording = gpu.stream().finish_recording();
  ASSERT_NE(recording, nullptr);
  for (const int first : {5, 11}) {
    const std::vector<int> values = counted(first);
    std::memcpy(in.data(), values.data(), kBytes);
    gpu.stream().replay(*recording);
    gpu.stream().synchronize();
    EXPECT_EQ(std::memcmp(out.data(), values.data(), kBytes), 0) << first;
  }
}

}  // namespace
}  // namespace hearth::gpu
