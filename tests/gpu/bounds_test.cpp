// Accesses out of bounds, as AddressSanitizer reports them; elsewhere tests/race finds them.
#include "backend/gpu/rt.h"
#include "base/asan.h"
#include "gpu/gpu.h"

namespace hearth::gpu {
namespace {

__global__ void read_at(const float* in, float* out, int at) {
  RT_SHARED(first, float[64]);
  RT_SHARED(second, float[64]);
  RT_DYNAMIC_SHARED(float, last);
  const float* places[] = {in, first, second, last};
  first[threadIdx.x] = second[threadIdx.x] = last[threadIdx.x] = 1;
  rt::sync_block();
  out[threadIdx.x] = places[at / 1000][at % 1000];
}

class Bounds : public testing::Test {
 protected:
  static void read(int at) {
    Gpu gpu;
    float* out = gpu.room<float>(64);
    rt::launch(read_at, {1, 64, 64 * 4}, gpu.handle(), gpu.put(std::vector<float>(64)), out, at);
    gpu.stream().synchronize();
  }
};

TEST_F(Bounds, AreThoseOfEveryVariable) {
  for (const int at : {0, 63, 1000, 1063, 2063, 3063}) read(at);
}

#ifdef HEARTH_ASAN
TEST_F(Bounds, AreWatchedOnTheGpuAndInABlock) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(read(64), "heap-buffer-overflow");
  for (const int at : {1064, 2064, 3064}) EXPECT_DEATH(read(at), "use-after-poison") << at;
}
#endif

}  // namespace
}  // namespace hearth::gpu
