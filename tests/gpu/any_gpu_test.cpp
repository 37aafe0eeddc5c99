// What device.h promises, of an emulated GPU or, in a build for GPUs, of the first one here.
#include <dlfcn.h>

#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "gpu/gpu.h"
#include "ir/graph.h"
#include "ops/op_list.h"
#include "ops/random/draw.h"

namespace hearth::gpu {
namespace {

constexpr size_t kCount = 100000;

class AnyGpu : public testing::Test {
 protected:
  void SetUp() override { HEARTH_NEED_GPU(); }
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

TEST_F(AnyGpu, IsNotBlamedForWhatOtherLibrariesDoWrong) {
  Gpu gpu;
  // A HIP runtime that is open offers its functions to all.
  const auto malloc = reinterpret_cast<int (*)(void**, size_t)>(dlsym(RTLD_DEFAULT, "hipMalloc"));
  if (malloc == nullptr) GTEST_SKIP() << "SKIPPED: errors of others on a GPU: HIP's runtime is not here";
  const ir::Type type{.dtype = DType::f32, .shape = {int64_t{kCount}}};
  auto* drawn = gpu.room<std::byte>(static_cast<size_t>(type.num_bytes()));
  void* memory = nullptr;
  EXPECT_NE(malloc(&memory, size_t{1} << 60), 0);
  ops::draw_on_gpu(gpu.device(), gpu.stream(), type, drawn, 7);
  gpu.stream().synchronize();
}

TEST_F(AnyGpu, OrdersStreamsByEvents) {
  Gpu gpu;
  Stream other(gpu.device());
  HostMemory in(gpu.device(), kBytes), out(gpu.device(), kBytes);
  const std::vector<int> values = counted(3);
  std::memcpy(in.data(), values.data(), kBytes);
  int* there = gpu.room<int>(kCount);
  Event begun(Event::Kind::timed), arrived(Event::Kind::timed);
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

/// 700 nodes on four streams: kernels that add, and copies by way of the host of what another stream has just
/// made. Each node writes a slot of its own, so that none can be missing unnoticed.
class FourQueues {
 public:
  static constexpr size_t kNumQueues = 4, kNumNodes = 700, kSlot = 64;

  explicit FourQueues(Gpu& gpu)
      : gpu_(gpu),
        others_{Stream(gpu.device()), Stream(gpu.device()), Stream(gpu.device())},
        slots_(gpu.put(std::vector<float>((kNumNodes + kNumQueues) * kSlot))),
        host_(gpu.device(), kNumNodes * kSlotBytes) {
    const ir::Type type{.dtype = DType::f32, .shape = {kSlot}};
    const ir::ValueId a = graph_.add_value("a", type, ir::Role::input);
    graph_.add1(*ops::find_op("add"), {a, a}, {}, "add");
    const ir::Node& node = graph_.nodes[0];
    add_ = gpu.kernel(graph_, node);
  }

  void begin_with(float first) {
    const std::vector<float> values((kNumNodes + kNumQueues) * kSlot, first);
    gpu_.stream().copy_in(bytes(0), values.data(), std::ssize(values) * int64_t{sizeof(float)});
    gpu_.stream().synchronize();
  }
  void queue() {
    gpu_.stream().record(begun_);
    for (Stream& other : others_) other.wait(begun_);
    for (size_t node = 0; node < kNumNodes; ++node) queue(node);
    for (size_t node = kNumNodes - kNumQueues; node < kNumNodes; ++node) gpu_.stream().wait(done_[node]);
  }
  std::vector<float> results() { return gpu_.get(slots_, (kNumNodes + kNumQueues) * kSlot); }

 private:
  static constexpr int64_t kSlotBytes = kSlot * sizeof(float);
  float* slot(size_t number) { return slots_ + number * kSlot; }
  std::byte* bytes(size_t number) { return reinterpret_cast<std::byte*>(slot(number)); }

  void queue(size_t node) {
    const size_t own = node % kNumQueues;
    Stream& stream = own == 0 ? gpu_.stream() : others_[own - 1];
    std::byte* const host = host_.data() + static_cast<int64_t>(node / 5) * kSlotBytes;
    if (node % 5 > 0) stream.wait(done_[node - 1]);
    if (node % 5 == 1) {
      stream.copy_out(host, bytes(node + kNumQueues - 1), kSlotBytes);
      stream.copy_in(bytes(node + kNumQueues), host, kSlotBytes);
    } else {
      void* const in[] = {slot(node), slot(node % 5 == 0 ? node : node + kNumQueues - 1)};
      void* const out[] = {slot(node + kNumQueues)};
      add_.run({.in = in, .out = out, .stream = &stream});
    }
    stream.record(done_[node]);
  }

  Gpu& gpu_;
  std::array<Stream, kNumQueues - 1> others_;
  float* slots_;
  HostMemory host_;
  ir::Graph graph_;
  ir::Kernel add_;
  Event begun_;
  std::array<Event, kNumNodes> done_;
};

TEST_F(AnyGpu, ComputesBesideAnEmulatedOne) {
  Gpu gpu;
  Device emulated(emulator().list_devices().at(0));
  Stream stream(emulated);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const ir::Type type{.dtype = dtype, .shape = {int64_t{kCount}}};
    const Memory there(emulated, type.num_bytes());
    std::vector<std::byte> here(static_cast<size_t>(type.num_bytes()));
    ops::draw_on_gpu(emulated, stream, type, there.data(), 7);
    stream.copy_out(here.data(), there.data(), type.num_bytes());
    auto* drawn = gpu.room<std::byte>(here.size());
    ops::draw_on_gpu(gpu.device(), gpu.stream(), type, drawn, 7);
    stream.synchronize();
    EXPECT_EQ(gpu.get(drawn, here.size()), here);
  }
}

TEST_F(AnyGpu, RepeatsALongRecordingOfFourStreams50Times) {
  Gpu gpu;
  FourQueues work(gpu);
  gpu.stream().start_recording();
  work.queue();
  const auto recording = gpu.stream().finish_recording();
  ASSERT_NE(recording, nullptr);
  for (int i = 0; i < 50; ++i) {
    const float first = std::ldexp(1.0F + static_cast<float>(i), -120);
    work.begin_with(first);
    work.queue();
    gpu.stream().synchronize();
    const std::vector<float> queued = work.results();
    work.begin_with(first);
    gpu.stream().replay(*recording);
    gpu.stream().synchronize();
    ASSERT_EQ(std::memcmp(work.results().data(), queued.data(), queued.size() * sizeof(float)), 0) << i;
  }
}

}  // namespace
}  // namespace hearth::gpu
