// GPUs as the engine sees them: memory with a limit, streams that run late, and failures.
#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>

#include <cstdlib>

#include "backend/gpu/emu/stream.h"
#include "backend/gpu/rt.h"
#include "base/error.h"
#include "gpu/gpu.h"

namespace hearth::gpu {
namespace {

class Devices : public testing::Test {
 protected:
  ~Devices() override { emu::gpus() = {{}}; }

  template <typename Body>
  static DeviceError::Kind failure_of(Body body) {
    try {
      body();
    } catch (const DeviceError& error) {
      return error.kind();
    }
    ADD_FAILURE() << "nothing failed";
    return {};
  }
};

__global__ void add_one(int* value) { *value += 1; }

TEST_F(Devices, AreListedWithTheirMemory) {
  emu::gpus() = {{.memory_bytes = 1 << 20}, {.memory_bytes = 1 << 21}};
  const auto all = tested_devices();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[1].memory_bytes, 1 << 21);
  EXPECT_NE(all[0].pci_address, all[1].pci_address);
  EXPECT_EQ(Device(all[1]).free_bytes(), 1 << 21);
}

TEST_F(Devices, AreAsManyAsTheEnvironmentSays) {
  const auto gpus = emu::gpus_of("20GiB, 1.5GiB");
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(gpus[0].memory_bytes, int64_t{20} << 30);
  EXPECT_EQ(gpus[1].memory_bytes, int64_t{3} << 29);
  for (const char* sizes : {"", "20GiB,", ",20GiB", "two", "-1GiB", "0", "1KiB", "20GiB;20GiB", "library",
                            "library,20GiB", "20GiB,library,20GiB"})
    EXPECT_THROW(emu::gpus_of(sizes), UserError) << sizes;
  const auto ill = emu::gpus_of("1GiB, 2GiB; link=6GB;fault=500, 1GiB;hang=7;refuse=0");
  ASSERT_EQ(ill.size(), 3U);
  EXPECT_EQ(ill[0].faulty_launch, -1);
  EXPECT_EQ(ill[1].link_bytes_per_second, 6e9);
  EXPECT_EQ(ill[1].faulty_launch, 500);
  EXPECT_EQ(ill[2].hanging_launch, 7);
  EXPECT_EQ(ill[2].refused_allocation, 0);
  for (const char* troubles : {"1GiB;flood=1", "1GiB;fault", "1GiB;fault=-1", "1GiB;link=0"})
    EXPECT_THROW(emu::gpus_of(troubles), UserError) << troubles;
  using Library = emu::GpuSettings::Library;
  EXPECT_EQ(gpus[0].library, Library::none);
  const auto with = emu::gpus_of("20GiB,2GiB, library");
  ASSERT_EQ(with.size(), 2U);
  for (const emu::GpuSettings& gpu : with) EXPECT_EQ(gpu.library, Library::right);
}

TEST_F(Devices, RefuseWhatDoesNotFit) {
  emu::gpus() = {{.memory_bytes = 4096, .refused_allocation = 2}};
  Device device(tested_devices()[0]);
  std::byte* first = device.allocate(3000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 256, 0U);
  EXPECT_EQ(device.free_bytes(), 1096);
  EXPECT_EQ(failure_of([&] { device.allocate(1097); }), DeviceError::Kind::out_of_memory);
  EXPECT_EQ(failure_of([&] { device.allocate(1); }), DeviceError::Kind::out_of_memory)
      << "the third of its life";
  device.release(first);
  device.release(device.allocate(4096));
}

TEST_F(Devices, StreamsRunWhenSomebodyWaits) {
  Gpu gpu;
  int value = 1;
  int* on_gpu = gpu.room<int>(1);
  gpu.stream().copy_in(reinterpret_cast<std::byte*>(on_gpu), &value, sizeof value);
  value = 5;
  int back = 0;
  rt::launch(add_one, {1, 1}, gpu.handle(), on_gpu);
  gpu.stream().copy_out(&back, reinterpret_cast<std::byte*>(on_gpu), sizeof back);
  EXPECT_EQ(back, 0);
  gpu.stream().synchronize();
  EXPECT_EQ(back, 6) << "the copy reads its source when its turn comes";
}

TEST_F(Devices, EventsOrderStreams) {
  Gpu gpu;
  Stream other(gpu.device());
  int* value = gpu.put(std::vector<int>{10});
  Event added;
  int back = 0;
  rt::launch(add_one, {1, 1}, other.handle(), value);
  other.record(added);
  rt::launch(add_one, {1, 1}, other.handle(), value);
  gpu.stream().wait(added);
  gpu.stream().copy_out(&back, reinterpret_cast<std::byte*>(value), sizeof back);
  gpu.stream().synchronize();
  EXPECT_EQ(back, 11) << "what stands after the event is not waited for";
  other.synchronize();
  EXPECT_EQ(gpu.get(value, 1)[0], 12);
}

void need_gpu() { HEARTH_NEED_GPU(); }

TEST_F(Devices, WhereNoneIsTestsFailIfOneIsExpected) {
  emu::gpus().clear();
  setenv("HEARTH_EXPECT_GPU", "1", 1);
  EXPECT_FATAL_FAILURE(need_gpu(), "expected a GPU, because HEARTH_EXPECT_GPU=1, got none");
  unsetenv("HEARTH_EXPECT_GPU");
  testing::TestPartResultArray results;
  {
    const testing::ScopedFakeTestPartResultReporter reporter(&results);
    need_gpu();
  }
  ASSERT_EQ(results.size(), 1);
  EXPECT_TRUE(results.GetTestPartResult(0).skipped());
}

TEST_F(Devices, ReplayWhatTheyRecorded) {
  Gpu gpu;
  int* value = gpu.put(std::vector<int>{1});
  HostMemory host(gpu.device(), sizeof(int));
  gpu.stream().start_recording();
  rt::launch(add_one, {1, 1}, gpu.handle(), value);
  gpu.stream().copy_out(host.data(), reinterpret_cast<std::byte*>(value), sizeof(int));
  const auto recording = gpu.stream().finish_recording();
  gpu.stream().synchronize();
  EXPECT_EQ(gpu.get(value, 1)[0], 1) << "nothing runs while it is recorded";
  for (int i = 0; i < 2; ++i) gpu.stream().replay(*recording);
  gpu.stream().synchronize();
  EXPECT_EQ(*reinterpret_cast<const int*>(host.data()), 3);
}

TEST_F(Devices, RecordWhatOtherStreamsDoForTheRecordedOne) {
  Gpu gpu;
  Stream other(gpu.device());
  int* value = gpu.put(std::vector<int>{1});
  int* doubled = gpu.put(std::vector<int>{0});
  HostMemory host(gpu.device(), sizeof(int));
  Event added, copied;
  gpu.stream().start_recording();
  rt::launch(add_one, {1, 1}, gpu.handle(), value);
  gpu.stream().record(added);
  other.wait(added);
  other.copy_out(host.data(), reinterpret_cast<std::byte*>(value), sizeof(int));
  other.record(copied);
  gpu.stream().wait(copied);
  gpu.stream().copy_in(reinterpret_cast<std::byte*>(doubled), host.data(), sizeof(int));
  const auto recording = gpu.stream().finish_recording();
  other.synchronize();
  EXPECT_EQ(gpu.get(value, 1)[0], 1) << "nothing runs while it is recorded";
  for (int i = 0; i < 2; ++i) gpu.stream().replay(*recording);
  EXPECT_EQ(gpu.get(doubled, 1)[0], 3) << "the replayed copy waits for the replayed kernel";
}

TEST_F(Devices, GetAheadOfOneAnotherBySeed) {
  int results[2] = {0, 0};
  for (uint64_t seed = 1; seed < 20; ++seed) {
    emu::gpus() = {{.order_seed = seed}};
    Gpu gpu;
    Stream other(gpu.device());
    int* value = gpu.put(std::vector<int>{10});
    int back = 0;
    rt::launch(add_one, {1, 1}, other.handle(), value);
    gpu.stream().copy_out(&back, reinterpret_cast<std::byte*>(value), sizeof back);
    gpu.stream().synchronize();
    ++results[back - 10];
  }
  EXPECT_GT(results[0], 0);
  EXPECT_GT(results[1], 0);
}

TEST_F(Devices, EventsTellTime) {
  emu::gpus() = {{.link_bytes_per_second = 1e6}};
  Gpu gpu;
  std::vector<std::byte> bytes(20000);
  std::byte* memory = gpu.room<std::byte>(bytes.size());
  Event before(Event::Kind::timed), after(Event::Kind::timed);
  gpu.stream().record(before);
  gpu.stream().copy_in(memory, bytes.data(), std::ssize(bytes));
  gpu.stream().record(after);
  gpu.stream().synchronize();
  EXPECT_GE(after.seconds_since(before), 0.02);
}

TEST_F(Devices, AreWaitedForAsLongAsTheWorkOfTheirStreamsIsAllowed) {
  Device device(tested_devices()[0]);
  Stream a(device), b(device);
  EXPECT_EQ(a.timeout_seconds(), 60);
  a.allow(5);
  a.allow(7, 100);
  a.allow(0, 100);
  b.allow(1, 80);
  EXPECT_EQ(a.timeout_seconds(), 113) << "work adds up, waiting for others does not";
  EXPECT_EQ(b.timeout_seconds(), 113) << "what one stream does the other may wait for";
  a.synchronize();
  EXPECT_EQ(b.timeout_seconds(), 81);
  {
    Stream gone(device);
    gone.allow(1000);
  }
  b.synchronize();
  EXPECT_EQ(b.timeout_seconds(), 60);
}

TEST_F(Devices, FailWhereTheyAreTold) {
  emu::gpus() = {{.faulty_launch = 1}, {.hanging_launch = 1}};
  for (const size_t index : {0, 1}) {
    Device device(tested_devices()[index]);
    Stream stream(device);
    std::byte* memory = device.allocate(4);
    stream.fill_zero(memory, 4);
    for (int i = 0; i < 2; ++i) {
      rt::launch(add_one, {1, 1}, stream.handle(), reinterpret_cast<int*>(memory));
      if (i == 0) stream.synchronize();
    }
    EXPECT_EQ(failure_of([&] { stream.synchronize(0.05); }),
              index == 0 ? DeviceError::Kind::fault : DeviceError::Kind::timed_out);
  }
}

}  // namespace
}  // namespace hearth::gpu
