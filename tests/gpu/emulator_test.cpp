// The emulator itself: what kernels may do works in every order, and what they must not do is named.
#include <gmock/gmock.h>

#include <numeric>

#include "backend/gpu/emu/stream.h"
#include "backend/gpu/rt.h"
#include "gpu/gpu.h"

namespace hearth::gpu {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Emulator : public EmulatorTest {
 protected:
  /// What the GPU says of the work in its stream.
  static std::string fault_of(Gpu& gpu) {
    try {
      gpu.stream().synchronize();
    } catch (const DeviceError& error) {
      EXPECT_EQ(error.kind(), DeviceError::Kind::fault);
      return error.what();
    }
    return "";
  }
};

__global__ void number_threads(int* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned size = blockDim.x * blockDim.y * blockDim.z;
  out[block * size + thread] = static_cast<int>(block * size + thread);
}
TEST_F(Emulator, RunsEveryThreadOfEveryBlockOnce) {
  in_every_order([] {
    Gpu gpu;
    int* out = gpu.put(std::vector<int>(3 * 2 * 2 * 40, -1));
    rt::launch(number_threads, {rt::Dim3{3, 2, 2}, rt::Dim3{5, 4, 2}}, gpu.handle(), out);
    std::vector<int> want(3 * 2 * 2 * 40);
    std::iota(want.begin(), want.end(), 0);
    EXPECT_EQ(gpu.get(out, want.size()), want);
  });
}

__global__ void reverse_in_blocks(const float* in, float* out) {
  RT_SHARED(row, float[96]);
  const unsigned first = blockIdx.x * blockDim.x;
  row[threadIdx.x] = in[first + threadIdx.x];
  rt::sync_block();
  out[first + threadIdx.x] = row[blockDim.x - 1 - threadIdx.x];
  rt::sync_block();
  row[threadIdx.x] = 0;
}
TEST_F(Emulator, ABarrierOrdersABlock) {
  in_every_order([] {
    Gpu gpu;
    std::vector<float> in(3 * 96);
    std::iota(in.begin(), in.end(), 0.0F);
    float* out = gpu.room<float>(in.size());
    rt::launch(reverse_in_blocks, {3, 96}, gpu.handle(), gpu.put(in), out);
    const auto got = gpu.get(out, in.size());
    for (size_t i = 0; i < in.size(); ++i) EXPECT_EQ(got[i], in[i / 96 * 96 + 95 - i % 96]);
  });
}

__global__ void warp_operations(int* out) {
  const int lane = rt::lane(), thread = static_cast<int>(threadIdx.x);
  int* own = out + 5 * threadIdx.x;
  own[0] = rt::shuffle(thread, 3);
  own[1] = rt::shuffle_xor(thread, 8);
  own[2] = rt::shuffle_down(thread, 4);
  own[3] = static_cast<int>(rt::ballot(lane % 3 == 0));
  own[4] = static_cast<int>(rt::shuffle(static_cast<double>(thread), lane + 1));
}
TEST_F(Emulator, LanesReadOneAnother) {
  in_every_order([] {
    Gpu gpu;
    int* out = gpu.room<int>(5 * 64);
    rt::launch(warp_operations, {1, 64}, gpu.handle(), out);
    const auto got = gpu.get(out, 5 * 64);
    for (int t = 0; t < 64; ++t) {
      const int first = t / 32 * 32;
      const int* own = got.data() + 5 * t;
      EXPECT_EQ(own[0], first + 3);
      EXPECT_EQ(own[1], t ^ 8);
      EXPECT_EQ(own[2], t % 32 < 28 ? t + 4 : t);
      EXPECT_EQ(static_cast<uint32_t>(own[3]), 0x49249249U);
      EXPECT_EQ(own[4], first + (t + 1) % 32);
    }
  });
}

__global__ void sums(const float* in, float* out, float* most) {
  const float value = in[blockIdx.x * blockDim.x + threadIdx.x];
  const float sum = rt::reduce_block(value, rt::Add(), 0.0F);
  const float top = rt::reduce_block(value, rt::Max(), -1e30F);
  if (threadIdx.x == 7) out[blockIdx.x] = sum;
  if (threadIdx.x == 40) most[blockIdx.x] = top;
}
TEST_F(Emulator, ReductionsReachEveryThreadWithTheSameBits) {
  std::vector<std::vector<float>> results;
  in_every_order([&] {
    Gpu gpu;
    std::vector<float> in(2 * 224);
    for (size_t i = 0; i < in.size(); ++i) in[i] = std::sin(static_cast<float>(i));
    float* out = gpu.room<float>(2);
    float* most = gpu.room<float>(2);
    rt::launch(sums, {2, 224}, gpu.handle(), gpu.put(in), out, most);
    results.push_back(gpu.get(out, 2));
    EXPECT_EQ(results.back(), results.front());
    EXPECT_NEAR(results.back()[1], std::accumulate(in.begin() + 224, in.end(), 0.0), 1e-4);
    EXPECT_EQ(gpu.get(most, 2)[0], *std::max_element(in.begin(), in.begin() + 224));
  });
}

template <typename T>
__global__ void through(const T* in, T* out) {
  const rt::Vec<T, 8> eight = rt::load<T, 8>(in + 8 * threadIdx.x);
  rt::Vec<T, 8> made;
  for (int i = 0; i < 8; ++i) made.at[i] = rt::from_float<T>(rt::to_float(eight.at[i]));
  rt::store(out + 8 * threadIdx.x, made);
}
TEST_F(Emulator, SixteenBitsAreThoseOfTheHost) {
  Gpu gpu;
  std::vector<rt::bf16> wide(32 * 8);
  std::vector<rt::f16> half(wide.size());
  for (size_t i = 0; i < wide.size(); ++i) {
    const float value = std::exp(static_cast<float>(i) / 16 - 8) * (i % 2 == 0 ? 1.0F : -1.0F);
    wide[i].bits = to_bf16(value).bits;
    half[i].bits = to_f16(value).bits;
    EXPECT_EQ(rt::from_float<rt::bf16>(value).bits, wide[i].bits);
    EXPECT_EQ(rt::from_float<rt::f16>(value).bits, half[i].bits);
  }
  auto* wide_out = gpu.room<rt::bf16>(wide.size());
  auto* half_out = gpu.room<rt::f16>(half.size());
  rt::launch(through<rt::bf16>, {1, 32}, gpu.handle(), gpu.put(wide), wide_out);
  rt::launch(through<rt::f16>, {1, 32}, gpu.handle(), gpu.put(half), half_out);
  const auto wide_got = gpu.get(wide_out, wide.size());
  const auto half_got = gpu.get(half_out, half.size());
  for (size_t i = 0; i < wide.size(); ++i) {
    EXPECT_EQ(wide_got[i].bits, wide[i].bits);
    EXPECT_EQ(half_got[i].bits, half[i].bits);
  }
}

__global__ void barrier_for_some(int limit) {
  if (static_cast<int>(threadIdx.x) < limit) rt::sync_block();
}
TEST_F(Emulator, NamesABarrierThatSomeThreadsNeverReach) {
  in_every_order([] {
    Gpu gpu;
    rt::launch(barrier_for_some, {2, 64}, gpu.handle(), 40);
    EXPECT_THAT(fault_of(gpu), AllOf(HasSubstr("divergent barrier"), HasSubstr("emulator_test.cpp:")));
    rt::launch(barrier_for_some, {2, 64}, gpu.handle(), 64);
    EXPECT_EQ(fault_of(gpu), "") << "the next grid is not harmed";
  });
}

__global__ void two_barriers() {
  if (threadIdx.x % 2 == 0) {  // NOLINT(bugprone-branch-clone)
    rt::sync_block();
  } else {
    rt::sync_block();
  }
}
TEST_F(Emulator, NamesTwoBarriersThatAreTakenForOne) {
  in_every_order([] {
    Gpu gpu;
    rt::launch(two_barriers, {1, 64}, gpu.handle());
    EXPECT_THAT(fault_of(gpu), HasSubstr("divergent barrier"));
  });
}

__global__ void shuffle_for_some(int* out) {
  if (rt::lane() != 5) out[threadIdx.x] = rt::shuffle(1, 0);
}
__global__ void two_shuffles(int* out) {
  if (rt::lane() < 16) {
    out[threadIdx.x] = rt::shuffle(1, 0);
  } else {
    out[threadIdx.x] = rt::shuffle(2, 0);
  }
}
__global__ void half_waits() {
  if (rt::lane() < 16) {
    rt::sync_warp();
  } else {
    rt::sync_block();
  }
}
TEST_F(Emulator, NamesLanesThatAreMissing) {
  in_every_order([] {
    Gpu gpu;
    int* out = gpu.room<int>(32);
    rt::launch(shuffle_for_some, {1, 32}, gpu.handle(), out);
    EXPECT_THAT(fault_of(gpu), HasSubstr("missing lane"));
    rt::launch(two_shuffles, {1, 32}, gpu.handle(), out);
    EXPECT_THAT(fault_of(gpu), HasSubstr("divergent warp"));
    rt::launch(half_waits, {1, 32}, gpu.handle());
    EXPECT_THAT(fault_of(gpu), AllOf(HasSubstr("divergent threads"), HasSubstr("16 of 32 lanes")));
  });
}

__global__ void spin(const volatile int* flag) {
  while (*flag == 0) {
  }
}
TEST_F(Emulator, NamesALoopWithoutEnd) {
  emu::settings().deadline_seconds = 0.1;
  Gpu gpu;
  int* flag = gpu.put(std::vector<int>{0});
  rt::launch(spin, {1, 64}, gpu.handle(), flag);
  EXPECT_THAT(fault_of(gpu), AllOf(HasSubstr("loop without end"), HasSubstr("thread 0 of block (0, 0, 0)")));
  int* set = gpu.put(std::vector<int>{1});
  rt::launch(spin, {1, 64}, gpu.handle(), set);
  EXPECT_EQ(fault_of(gpu), "");
}

__global__ void much_shared(float* out) {
  RT_SHARED(first, float[8192]);
  RT_SHARED(second, float[8193]);
  first[threadIdx.x] = second[threadIdx.x] = 1;
  out[threadIdx.x] = first[threadIdx.x];
}
__global__ void nothing() {}
TEST_F(Emulator, RefusesWhatNoGpuHas) {
  Gpu gpu;
  rt::launch(much_shared, {1, 32}, gpu.handle(), gpu.room<float>(32));
  EXPECT_THAT(fault_of(gpu), AllOf(HasSubstr("65540 bytes of shared memory"), HasSubstr("65536")));
  rt::launch(nothing, {1, 1025}, gpu.handle());
  EXPECT_THAT(fault_of(gpu), HasSubstr("1025 threads"));
  rt::launch(nothing, {1, 32, 65537}, gpu.handle());
  EXPECT_THAT(fault_of(gpu), HasSubstr("65537 bytes of shared memory"));
}

__global__ void read_unset(float* out) {
  RT_SHARED(values, float[32]);
  RT_DYNAMIC_SHARED(float, more);
  out[threadIdx.x] = values[threadIdx.x] + more[threadIdx.x];
}
TEST_F(Emulator, SharedMemoryStartsAsNaN) {
  Gpu gpu;
  float* out = gpu.room<float>(32);
  rt::launch(read_unset, {1, 32, 128}, gpu.handle(), out);
  for (const float value : gpu.get(out, 32)) EXPECT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace hearth::gpu
