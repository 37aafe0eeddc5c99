// Tests how src/backend/gpu/vendor calls a runtime; the fake runtime in fake_hip.cpp stores the calls.
#include <gmock/gmock.h>

#include <cstring>

#include "backend/gpu/driver.h"
#include "backend/gpu/launched.h"
#include "backend/gpu/modules.h"
#include "backend/gpu/vendor/parts.h"
#include "base/error.h"
#include "base/file.h"
#include "fake_hip.h"
#include "temporary_folder.h"

namespace hearth::gpu {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kBytes = 16;

class Vendor : public testing::Test {
 protected:
  Vendor() { fake_hip() = {.architecture_offset = 400}; }
  ~Vendor() override { vendor::timed_out = false; }

  DeviceInfo info() const { return driver_->list_devices().at(0); }

  const std::unique_ptr<Driver> driver_ =
      make_driver([](std::string_view) -> const ir::GpuKernel* { return nullptr; });
};

TEST_F(Vendor, ReadsThePropertiesOfAnyRelease) {
  for (const size_t offset : {396, 1160}) {
    fake_hip().architecture_offset = offset;
    const DeviceInfo gpu = info();
    EXPECT_EQ(gpu.architecture, "gfx1100");
    EXPECT_EQ(gpu.name, "a GPU of gfx9999");
    EXPECT_EQ(gpu.memory_bytes, int64_t{20} << 30);
    EXPECT_EQ(gpu.shared_bytes, 65536);
    EXPECT_EQ(gpu.num_multiprocessors, 84);
    EXPECT_FALSE(gpu.integrated);
  }
}

TEST_F(Vendor, WaitsWithoutLongSleeps) {
  Device device(info());
  Stream stream(device);
  int max_queries = 0;
  // Repeats the wait, because other programs may occupy the processor during some of them.
  for (int i = 0; i < 10 && max_queries < 40; ++i) {
    fake_hip().num_queries = 0;
    fake_hip().busy_until = steady_clock::now() + 10ms;
    stream.synchronize();
    EXPECT_GE(steady_clock::now(), fake_hip().busy_until);
    max_queries = std::max(max_queries, fake_hip().num_queries);
  }
  EXPECT_GE(max_queries, 40);
}

TEST_F(Vendor, GivesUpOnAGpuThatHangs) {
  Device device(info());
  Stream stream(device);
  fake_hip().busy_until = steady_clock::now() + 1h;
  try {
    stream.synchronize(0.02);
    ADD_FAILURE() << "it waited for nothing";
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.kind(), DeviceError::Kind::timed_out);
  }
}

TEST_F(Vendor, EventsThatOrderHaveNoTimes) {
  Device device(info());
  Stream stream(device);
  Event order, begun(Event::Kind::timed), ended(Event::Kind::timed);
  stream.record(order);
  stream.record(begun);
  stream.record(ended);
  EXPECT_THAT(fake_hip().event_flags, ElementsAre(2U, 0U, 0U));
  EXPECT_GT(ended.seconds_since(begun), 0);
  EXPECT_THROW(static_cast<void>(ended.seconds_since(order)), InternalError);
}

TEST_F(Vendor, HostMemoryIsCoherentForAllGpus) {
  Device device(info());
  const HostMemory memory(device, kBytes);
  EXPECT_EQ(fake_hip().host_flags, 0x40000001U);
}

TEST_F(Vendor, StreamsBesideADisplayHaveTheLowestPriority) {
  DeviceInfo gpu = info();
  Device first(gpu);
  const Stream usual(first);
  gpu.has_display = true;
  Device second(gpu);
  const Stream low(second);
  EXPECT_THAT(fake_hip().priorities, ElementsAre(0, 1));
}

TEST_F(Vendor, TellsThatAModuleHasNoCodeForAGpu) {
  Device device(info());
  Stream stream(device);
  for (const auto& [result, kind] : {std::pair(209, DeviceError::Kind::no_code),
                                     {98, DeviceError::Kind::no_code},
                                     {1, DeviceError::Kind::fault}}) {
    launched(result);
    try {
      stream.synchronize();
      ADD_FAILURE() << "the launch failed";
    } catch (const DeviceError& error) {
      EXPECT_EQ(error.kind(), kind) << result;
    }
  }
}

TEST(VendorModules, GetEightHardwareQueuesFromHip) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "libhearth_hip.so", "");
  setenv("HEARTH_MODULES", folder.path().c_str(), 1);
  unsetenv("GPU_MAX_HW_QUEUES");
  EXPECT_EQ(runtimes().size(), 1U);
  EXPECT_STREQ(std::getenv("GPU_MAX_HW_QUEUES"), "8");
}

/// Two streams, whose work copies one array to another by way of a third.
class VendorRecordings : public Vendor {
 protected:
  void queue() {
    first_.record(begun_);
    second_.wait(begun_);
    second_.copy_in(bytes(1), from_, kBytes);
    second_.record(arrived_);
    first_.wait(arrived_);
    first_.record(own_);
    first_.wait(own_);
    first_.copy_out(to_, bytes(1), kBytes);
  }
  /// Why the work cannot be recorded.
  std::string fault() {
    std::string text;
    first_.start_recording();
    queue();
    EXPECT_EQ(first_.finish_recording(&text), nullptr);
    return text;
  }
  std::byte* bytes(int number) { return memory_.data() + number * kBytes; }

  Device device_{info()};
  Stream first_{device_}, second_{device_};
  Memory memory_{device_, 2 * kBytes};
  Event begun_, arrived_, own_;
  char from_[kBytes] = "what is copied";
  char to_[kBytes] = "";
};

TEST_F(VendorRecordings, WaitForOtherStreamsOnly) {
  first_.start_recording();
  queue();
  std::string why;
  const auto recording = first_.finish_recording(&why);
  ASSERT_NE(recording, nullptr) << why;
  EXPECT_EQ(why, "");
  EXPECT_EQ(fake_hip().num_waits, 2);
  EXPECT_STREQ(to_, "") << "nothing runs while it is recorded";
  first_.replay(*recording);
  EXPECT_STREQ(to_, from_);
}

TEST_F(VendorRecordings, SayWhyThereIsNone) {
  fake_hip().refused = "hipMemcpyAsync";
  EXPECT_EQ(fault(), "a copy to the GPU failed: no (hipError)") << "the first reason";
  fake_hip().refused = "hipGraphInstantiate";
  EXPECT_THAT(fault(), HasSubstr("preparing a recording failed"));
  fake_hip().refused = "";
  first_.start_recording();
  queue();
  second_.copy_in(bytes(0), from_, kBytes);
  std::string why;
  EXPECT_EQ(first_.finish_recording(&why), nullptr);
  EXPECT_THAT(why, HasSubstr("unjoined work"));
  first_.start_recording();
  first_.synchronize();
  EXPECT_EQ(first_.finish_recording(&why), nullptr);
  EXPECT_THAT(why, HasSubstr("the host waited"));
}

TEST_F(VendorRecordings, LeaveWorkUndoneThatIsNotRecorded) {
  fake_hip().refused = "hipStreamWaitEvent";
  EXPECT_THAT(fault(), HasSubstr("waiting for an event failed"));
  EXPECT_STRNE(reinterpret_cast<const char*>(bytes(1)), from_)
      << "the second stream is outside of the recording";
  fake_hip().refused = "hipStreamBeginCapture";
  EXPECT_THROW(first_.start_recording(), DeviceError);
  fake_hip().refused = "";
  queue();
  EXPECT_STREQ(to_, from_) << "queued work runs";
}

}  // namespace
}  // namespace hearth::gpu
