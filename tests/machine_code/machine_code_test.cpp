// The instruction emulator under test: kernels with a mistake each, which it must name, and instructions
// against the host.
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

extern "C" const char* machineCodeFault();
extern "C" void machineCodeOrder(uint64_t seed, uint32_t poison);
extern "C" const char* machineCodeCounted(const char* part);

namespace {

constexpr uint32_t kPoison = 0x7fbadbad;

/// Memory of the emulated GPU.
template <typename T>
class Buffer {
 public:
  explicit Buffer(size_t count) : count_(count) {
    EXPECT_EQ(hipMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)), hipSuccess);
  }
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) {
    std::memcpy(data_, values.data(), count_ * sizeof(T));
  }
  ~Buffer() { EXPECT_EQ(hipFree(data_), hipSuccess); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  T* get() const { return data_; }
  std::vector<T> values() const { return {data_, data_ + count_}; }

 private:
  T* data_ = nullptr;
  size_t count_;
};

std::string fault() { return machineCodeFault(); }
void expect_fault(const std::string& kernel, const std::string& what) {
  const std::string text = fault();
  EXPECT_NE(text.find(what), std::string::npos) << text;
  EXPECT_NE(text.find(kernel), std::string::npos) << text;
}

// --- Mistakes.
__global__ void swaps(uint32_t* out, bool waits) {
  __shared__ uint32_t word[64];
  word[threadIdx.x] = threadIdx.x;
  if (waits) __syncthreads();
  out[threadIdx.x] = word[63 - threadIdx.x];
}
__global__ void reads_at(const uint32_t* in, uint32_t* out, int at) {
  out[threadIdx.x] = in[at + static_cast<int>(threadIdx.x)];
}
__global__ void writes_at(uint32_t* out, int at) { out[at + static_cast<int>(threadIdx.x)] = 1; }
__global__ void writes_bytes_at(uint8_t* out, int at) { out[at + static_cast<int>(threadIdx.x)] = 1; }
__global__ void shared_at(uint32_t* out, uint32_t at) {
  extern __shared__ uint32_t dynamic[];
  dynamic[at + threadIdx.x] = 1;
  out[threadIdx.x] = dynamic[threadIdx.x];
}
__global__ void loads_without_wait(const uint32_t* in, uint32_t* out) {
  uint32_t value;
  asm volatile("global_load_b32 %0, %1, off" : "=&v"(value) : "v"(in + threadIdx.x));
  out[threadIdx.x] = value + 1;
}
__global__ void shared_without_wait(uint32_t* out) {
  uint32_t value;
  asm volatile("ds_load_b32 %0, %1" : "=&v"(value) : "v"(threadIdx.x * 4));
  out[threadIdx.x] = value + 1;
}
#if defined(__GFX12__)
#define WAIT_FOR_LOADS(left) "s_wait_loadcnt " #left "\n"
#else
#define WAIT_FOR_LOADS(left) "s_waitcnt vmcnt(" #left ")\n"
#endif
/// Both halves of a register are loaded, and the first one is waited for; it is read, or both are.
template <bool both>
__global__ void half_of_two(const uint16_t* in, float* out) {
  uint32_t halves;
  float value;
#define LOAD_AND_READ(instruction)                                                                       \
  asm volatile("global_load_d16_b16 %1, %2, off\nglobal_load_d16_hi_b16 %1, %2, off\n" WAIT_FOR_LOADS(1) \
                   instruction "\n" WAIT_FOR_LOADS(0)                                                    \
               : "=&v"(value), "=&v"(halves)                                                             \
               : "v"(in))
  if constexpr (both)
    LOAD_AND_READ("v_lshrrev_b32 %0, 16, %1");
  else
    LOAD_AND_READ("v_cvt_f32_f16 %0, %1");
#undef LOAD_AND_READ
  *out = value;
}
__global__ void blocks_meet(uint32_t* out) { out[threadIdx.x] = blockIdx.x; }
/// Block b the bytes b, 2 + b, 4 + b...: no byte is met twice, every word is. With `apart` 0 all blocks meet.
__global__ void bytes_beside(uint8_t* out, uint32_t apart) { out[2 * threadIdx.x + apart * blockIdx.x] = 1; }
__global__ void halves_swapped(uint16_t* out) {
  __shared__ uint16_t half[64];
  half[threadIdx.x] = static_cast<uint16_t>(threadIdx.x);
  out[threadIdx.x] = half[63 - threadIdx.x];
}
__global__ void adds(uint32_t* sum, bool sets) {
  if (sets && blockIdx.x == 1)
    *sum = 7;
  else
    atomicAdd(sum, 1u);
}
__global__ void traps(uint32_t* out) {
  asm volatile("s_trap 2");
  out[0] = 1;
}
__global__ void shows_shared(uint32_t* out) {
  __shared__ volatile uint32_t word[32];
  out[threadIdx.x] = word[threadIdx.x];
}
__global__ void takes_turns(uint32_t* next, uint32_t* out) {
  if (threadIdx.x == 0) out[blockIdx.x] = atomicAdd(next, 1u);
}

/// Through a column of a square in shared memory, from a row in memory to a column there.
__global__ void turns(const uint32_t* in, uint32_t* out, int row) {
  __shared__ uint32_t square[32 * 33];
  const int lane = static_cast<int>(threadIdx.x);
  square[lane * row] = in[lane];
  __syncthreads();
  out[lane * 32] = square[(31 - lane) * row];
}

TEST(MachineCode, ABarrierOrdersTwoWaves) {
  Buffer<uint32_t> out(64);
  swaps<<<1, 64>>>(out.get(), true);
  EXPECT_EQ(fault(), "");
  EXPECT_EQ(out.values()[0], 63u);
}
TEST(MachineCode, ARaceInSharedMemoryIsNamed) {
  Buffer<uint32_t> out(64);
  swaps<<<1, 64>>>(out.get(), false);
  expect_fault("swaps", "a race at");
}
TEST(MachineCode, AccessesOutsideAllocationsAreNamed) {
  Buffer<uint32_t> in(32), out(32);
  Buffer<uint8_t> bytes(33);
  reads_at<<<1, 32>>>(in.get(), out.get(), 0);
  writes_bytes_at<<<1, 32>>>(bytes.get(), 1);
  EXPECT_EQ(fault(), "");
  reads_at<<<1, 32>>>(in.get(), out.get(), 1);
  expect_fault("reads_at", "reads 4 bytes");
  writes_at<<<1, 32>>>(out.get(), -1);
  expect_fault("writes_at", "writes 4 bytes");
  writes_bytes_at<<<1, 32>>>(bytes.get(), 2);
  expect_fault("writes_bytes_at", "writes 1 bytes");
}
TEST(MachineCode, AccessesBeyondSharedMemoryAreNamed) {
  Buffer<uint32_t> out(32);
  shared_at<<<1, 32, 128>>>(out.get(), 0);
  EXPECT_EQ(fault(), "");
  shared_at<<<1, 32, 128>>>(out.get(), 1);
  expect_fault("shared_at", "of shared memory");
}
TEST(MachineCode, AMissingWaitIsNamed) {
  Buffer<uint32_t> in(32), out(32);
  loads_without_wait<<<1, 32>>>(in.get(), out.get());
  expect_fault("loads_without_wait", "before a wait");
  shared_without_wait<<<1, 32, 128>>>(out.get());
  expect_fault("shared_without_wait", "before a wait");
}
TEST(MachineCode, HalvesOfARegisterAreWaitedForApart) {
  Buffer<uint16_t> in(std::vector<uint16_t>{0x4000, 0});
  Buffer<float> out(1);
  half_of_two<false><<<1, 1>>>(in.get(), out.get());
  EXPECT_EQ(fault(), "");
  EXPECT_EQ(out.values()[0], 2.0F);
  half_of_two<true><<<1, 1>>>(in.get(), out.get());
  expect_fault("half_of_two", "before a wait");
}
TEST(MachineCode, BlocksThatMeetAreNamed) {
  Buffer<uint32_t> out(32);
  blocks_meet<<<1, 32>>>(out.get());
  EXPECT_EQ(fault(), "");
  blocks_meet<<<2, 32>>>(out.get());
  expect_fault("blocks_meet", "a race at");
}
TEST(MachineCode, BytesAreWatchedOneByOne) {
  Buffer<uint8_t> out(64);
  bytes_beside<<<2, 32>>>(out.get(), 1);
  EXPECT_EQ(fault(), "");
  bytes_beside<<<2, 32>>>(out.get(), 0);
  expect_fault("bytes_beside", "a race at");
  Buffer<uint16_t> halves(64);
  halves_swapped<<<1, 64>>>(halves.get());
  expect_fault("halves_swapped", "of shared memory: another wave");
}
TEST(MachineCode, AtomicsMeetEachOtherAlone) {
  Buffer<uint32_t> sum(std::vector<uint32_t>{0});
  adds<<<4, 32>>>(sum.get(), false);
  EXPECT_EQ(fault(), "");
  EXPECT_EQ(sum.values()[0], 128u);
  adds<<<4, 32>>>(sum.get(), true);
  expect_fault("adds", "a race at");
}
TEST(MachineCode, AnUnknownInstructionIsNamed) {
  Buffer<uint32_t> out(1);
  traps<<<1, 32>>>(out.get());
  expect_fault("traps", "S_TRAP");
}
TEST(MachineCode, BanksAndLinesAreCounted) {
  Buffer<uint32_t> in(32), out(32 * 32);
  machineCodeCounted("");
  const auto counted = [&](int row) {
    turns<<<1, 32>>>(in.get(), out.get(), row);
    EXPECT_EQ(fault(), "");
    return std::string(machineCodeCounted("turns"));
  };
  // A store and a load of 32 words of one bank each; then of 32 banks.
  EXPECT_NE(counted(32).find(" passes=64 least_passes=2 "), std::string::npos) << counted(32);
  EXPECT_NE(counted(33).find(" passes=2 least_passes=2 "), std::string::npos) << counted(33);
  // One line is read, and 32 are written where one could hold them.
  EXPECT_NE(counted(33).find(" lines=33 least_lines=2 block_lines=33 traffic_lines=33 "), std::string::npos)
      << counted(33);
}
TEST(MachineCode, NothingIsZeroByLuck) {
  Buffer<uint32_t> out(32);
  EXPECT_EQ(out.values()[31], kPoison);
  shows_shared<<<1, 32>>>(out.get());
  EXPECT_EQ(out.values()[5], kPoison);
  machineCodeOrder(0, 0x12345678);
  shows_shared<<<1, 32>>>(out.get());
  machineCodeOrder(0, kPoison);
  EXPECT_EQ(out.values()[5], 0x12345678u);
}
TEST(MachineCode, ASeedChoosesTheOrderOfBlocks) {
  std::vector<std::vector<uint32_t>> orders;
  for (const uint64_t seed : {0, 1, 2}) {
    machineCodeOrder(seed, kPoison);
    Buffer<uint32_t> next(std::vector<uint32_t>{0}), out(16);
    takes_turns<<<16, 32>>>(next.get(), out.get());
    EXPECT_EQ(fault(), "");
    orders.push_back(out.values());
  }
  machineCodeOrder(0, kPoison);
  for (uint32_t i = 0; i < 16; ++i) EXPECT_EQ(orders[0][i], i);
  EXPECT_NE(orders[1], orders[0]);
  EXPECT_NE(orders[1], orders[2]);
}

// --- Numbers against the host's.
__global__ void widens(const _Float16* in, float* out) {
  out[blockIdx.x * 256 + threadIdx.x] = in[blockIdx.x * 256 + threadIdx.x];
}
__global__ void narrows(const float* in, _Float16* out) {
  out[blockIdx.x * 256 + threadIdx.x] = static_cast<_Float16>(in[blockIdx.x * 256 + threadIdx.x]);
}
__global__ void computes(const float* a, const float* b, float* out) {
  const uint32_t i = blockIdx.x * 256 + threadIdx.x;
  out[4 * i] = a[i] / b[i];
  out[4 * i + 1] = sqrtf(fabsf(a[i]));
  out[4 * i + 2] = fmaf(a[i], b[i], a[i]);
  out[4 * i + 3] = rintf(a[i]);
}
__global__ void circles(const double* in, double* out) {
  out[2 * threadIdx.x] = sin(in[threadIdx.x]);
  out[2 * threadIdx.x + 1] = in[threadIdx.x] / 3.0;
}

TEST(MachineCode, EveryHalfWidens) {
  std::vector<_Float16> all(65536);
  for (uint32_t i = 0; i < all.size(); ++i) {
    const auto bits = static_cast<uint16_t>(i);
    std::memcpy(&all[i], &bits, sizeof bits);
  }
  Buffer<_Float16> in(all);
  Buffer<float> out(all.size());
  widens<<<256, 256>>>(in.get(), out.get());
  ASSERT_EQ(fault(), "");
  const std::vector<float> got = out.values();
  for (size_t i = 0; i < all.size(); ++i) {
    const auto expected = static_cast<float>(all[i]);
    if (std::isnan(expected))
      EXPECT_TRUE(std::isnan(got[i])) << i;
    else
      EXPECT_EQ(got[i], expected) << i;
  }
}
TEST(MachineCode, FloatsNarrowToTheNearestHalf) {
  std::mt19937 random(1);
  std::vector<float> values(65536);
  for (size_t i = 0; i < values.size(); ++i) {
    // Near every tenth half: itself, halfway to the next one, and a bit to either side of that.
    const auto bits = static_cast<uint16_t>(random());
    _Float16 half;
    std::memcpy(&half, &bits, sizeof bits);
    auto word = static_cast<uint32_t>(0);
    const auto wide = static_cast<float>(half);
    std::memcpy(&word, &wide, sizeof word);
    word += std::vector<uint32_t>{0, 0x1000, 0x0fff, 0x1001}[i % 4];
    std::memcpy(&values[i], &word, sizeof word);
  }
  Buffer<float> in(values);
  Buffer<_Float16> out(values.size());
  narrows<<<256, 256>>>(in.get(), out.get());
  ASSERT_EQ(fault(), "");
  const std::vector<_Float16> got = out.values();
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) continue;
    EXPECT_EQ(static_cast<float>(got[i]), static_cast<float>(static_cast<_Float16>(values[i]))) << values[i];
  }
}
TEST(MachineCode, ArithmeticRoundsAsTheHostDoes) {
  std::mt19937 random(2);
  std::vector<float> a(4096), b(4096);
  for (std::vector<float>* values : {&a, &b}) {
    for (float& value : *values) {
      // Any exponent, denormal numbers among them.
      const uint32_t bits = random() % 0x7f000000u | (random() & 1) << 31;
      std::memcpy(&value, &bits, sizeof bits);
    }
  }
  Buffer<float> in_a(a), in_b(b), out(4 * a.size());
  computes<<<16, 256>>>(in_a.get(), in_b.get(), out.get());
  ASSERT_EQ(fault(), "");
  const std::vector<float> got = out.values();
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(got[4 * i], a[i] / b[i]) << a[i] << " / " << b[i];
    EXPECT_EQ(got[4 * i + 1], std::sqrt(std::fabs(a[i]))) << a[i];
    EXPECT_EQ(got[4 * i + 2], std::fma(a[i], b[i], a[i]));
    EXPECT_EQ(got[4 * i + 3], std::nearbyint(a[i]));
  }
}
TEST(MachineCode, DoublesDivideAndReduceLargeAngles) {
  std::vector<double> values{0.5, 1e5, -3e22, 1.7e300, 6.25, 1e-310, 12345678.9, 2e15};
  values.resize(32, 0.75);
  Buffer<double> in(values), out(64);
  circles<<<1, 32>>>(in.get(), out.get());
  ASSERT_EQ(fault(), "");
  const std::vector<double> got = out.values();
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(got[2 * i], std::sin(values[i]), 1e-15) << values[i];
    EXPECT_EQ(got[2 * i + 1], values[i] / 3.0);
  }
}

// --- Matrix products of whole numbers, whose sums are exact.
typedef float Result __attribute__((ext_vector_type(8)));
#if defined(__GFX12__)
constexpr int kTerms = 8;
#define WMMA(suffix) __builtin_amdgcn_wmma_f32_16x16x16_##suffix##_w32_gfx12
#else
constexpr int kTerms = 16;
#define WMMA(suffix) __builtin_amdgcn_wmma_f32_16x16x16_##suffix##_w32
#endif
typedef _Float16 Halves __attribute__((ext_vector_type(kTerms)));
typedef short Words __attribute__((ext_vector_type(kTerms)));

template <bool bf16>
__global__ void multiplies(const uint16_t* a, const uint16_t* b, float* out) {
#if defined(__HIP_DEVICE_COMPILE__)
  const int lane = static_cast<int>(threadIdx.x), row = lane & 15, half = lane >> 4;
  Words wa, wb;
  for (int k = 0; k < kTerms; ++k) {
    const int at = kTerms == 8 ? half * 8 + k : k;
    wa[k] = static_cast<short>(a[row * 16 + at]);
    wb[k] = static_cast<short>(b[row * 16 + at]);
  }
  Result c = {1, 1, 1, 1, 1, 1, 1, 1};
  if constexpr (bf16)
    c = WMMA(bf16)(wa, wb, c);
  else
    c = WMMA(f16)(__builtin_bit_cast(Halves, wa), __builtin_bit_cast(Halves, wb), c);
  for (int i = 0; i < 8; ++i) out[(kTerms == 8 ? half * 8 + i : 2 * i + half) * 16 + row] = c[i];
#endif
}

class MatrixProducts : public testing::TestWithParam<bool> {};
TEST_P(MatrixProducts, AreExactSums) {
  const bool bf16 = GetParam();
  std::mt19937 random(3);
  std::vector<int> a(256), b(256);
  auto encoded = [&](std::vector<int>& numbers) {
    std::vector<uint16_t> bits(256);
    for (size_t i = 0; i < 256; ++i) {
      numbers[i] = static_cast<int>(random() % 33) - 16;
      const auto value = static_cast<float>(numbers[i]);
      const auto half = static_cast<_Float16>(value);
      uint32_t word;
      std::memcpy(&word, &value, sizeof word);
      if (bf16)
        bits[i] = static_cast<uint16_t>(word >> 16);
      else
        std::memcpy(&bits[i], &half, sizeof half);
    }
    return bits;
  };
  Buffer<uint16_t> in_a(encoded(a)), in_b(encoded(b));
  Buffer<float> out(256);
  if (bf16)
    multiplies<true><<<1, 32>>>(in_a.get(), in_b.get(), out.get());
  else
    multiplies<false><<<1, 32>>>(in_a.get(), in_b.get(), out.get());
  ASSERT_EQ(fault(), "");
  const std::vector<float> got = out.values();
  for (size_t row = 0; row < 16; ++row) {
    for (size_t column = 0; column < 16; ++column) {
      int sum = 1;
      for (size_t k = 0; k < 16; ++k) sum += a[row * 16 + k] * b[column * 16 + k];
      EXPECT_EQ(got[row * 16 + column], static_cast<float>(sum)) << row << ", " << column;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Types, MatrixProducts, testing::Values(false, true),
                         [](const auto& type) { return type.param ? "bf16" : "f16"; });

}  // namespace
