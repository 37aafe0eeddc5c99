// Tiles on every GPU's way: each path's loads, layout and instruction, which the emulator computes from the
// vendors' guides.
#include <gmock/gmock.h>

#include <numeric>

#include "backend/gpu/rt_tile.h"
#include "gpu/gpu.h"

namespace hearth::gpu {
namespace {

using rt::Side;

constexpr int kTile = rt::kTile;
constexpr int kElements = kTile * kTile;

/// c += a b^T by one warp; b's lines are columns.
template <typename T, int path>
__global__ void multiply(const T* a, const T* b, float* c) {
  rt::Acc<T, path> acc;
  for (int e = 0; e < rt::kLaneElements; ++e) acc.at[e] = c[acc.row(e) * kTile + acc.column(e)];
  rt::multiply_add(acc, rt::load_side<T, Side::left, path>(a, kTile),
                   rt::load_side<T, Side::right, path>(b, kTile));
  for (int e = 0; e < rt::kLaneElements; ++e) c[acc.row(e) * kTile + acc.column(e)] = acc.at[e];
}

/// The largest element of each fixed line.
template <typename T, int path>
__global__ void largest_of_lines(const float* in, float* out) {
  rt::StationaryAcc<T, path> acc;
  rt::PerStationary<T, float, path> most;
  for (float& value : most.at) value = -1e30F;
  for (int e = 0; e < rt::kLaneElements; ++e) acc.at[e] = in[acc.stationary(e) * kTile + acc.streamed(e)];
  for (int e = 0; e < rt::kLaneElements; ++e) most[e] = rt::Max()(most[e], acc.at[e]);
  most.join_lanes(rt::Max());
  for (int e = 0; e < rt::kLaneElements; ++e) out[acc.stationary(e) * kTile + acc.streamed(e)] = most[e];
}

/// in, fixed lines by taken ones, times b^T, whose lines are taken: written in runs.
template <typename T, int path>
__global__ void multiply_again(const float* in, const T* b, T* out) {
  rt::StationaryAcc<T, path> factors, sums;
  for (int e = 0; e < rt::kLaneElements; ++e)
    factors.at[e] = in[factors.stationary(e) * kTile + factors.streamed(e)];
  rt::multiply_add(sums, rt::stationary_of(factors),
                   rt::load_side<T, rt::kStreamedSide<path>, path>(b, kTile));
  rt::for_each_run<T, path>(rt::stationary_of(sums), [&](int line, int term, const auto& run) {
    rt::store(out + line * kTile + term, run);
  });
}

/// The upper half-warp takes its left lines from one row further.
__global__ void multiply_shifted(const rt::bf16* a, const rt::bf16* b, float* c) {
  rt::Acc<rt::bf16, 11> acc;
  rt::multiply_add(acc, rt::load_side<rt::bf16, Side::left, 11>(a + rt::lane() / 16 * kTile, kTile),
                   rt::load_side<rt::bf16, Side::right, 11>(b, kTile));
  c[rt::lane()] = acc.at[0];
}

/// Values that 8 bits of mantissa hold, all different within a line.
template <typename T>
std::vector<T> numbers(int seed) {
  std::vector<T> made(kElements);
  for (int i = 0; i < kElements; ++i)
    made[static_cast<size_t>(i)] =
        rt::from_float<T>(static_cast<float>((i * 7 + seed * (i / kTile)) % 31 - 15));
  return made;
}

template <typename Way>
class Tile : public EmulatorTest {};

template <typename Type, int number>
struct WayOf {
  using T = Type;
  static constexpr int path = number;
};
using Ways = testing::Types<WayOf<rt::bf16, 10>, WayOf<rt::f16, 10>, WayOf<float, 10>, WayOf<rt::bf16, 11>,
                            WayOf<rt::f16, 11>, WayOf<rt::bf16, 12>, WayOf<rt::f16, 12>, WayOf<rt::bf16, 90>,
                            WayOf<rt::f16, 90>>;
TYPED_TEST_SUITE(Tile, Ways);

TYPED_TEST(Tile, IsTheProductOfItsSides) {
  using T = typename TypeParam::T;
  const std::vector<T> a = numbers<T>(3), b = numbers<T>(5);
  std::vector<float> start(kElements);
  std::iota(start.begin(), start.end(), 0.0F);
  this->in_every_order([&] {
    Gpu gpu;
    float* c = gpu.put(start);
    rt::launch(multiply<T, TypeParam::path>, {1, 32}, gpu.handle(), gpu.put(a), gpu.put(b), c);
    gpu.stream().synchronize();
    std::vector<float> expected = start;
    for (int i = 0; i < kElements; ++i) {
      for (int t = 0; t < kTile; ++t)
        expected[static_cast<size_t>(i)] += rt::to_float(a[static_cast<size_t>(i / kTile * kTile + t)]) *
                                            rt::to_float(b[static_cast<size_t>(i % kTile * kTile + t)]);
    }
    EXPECT_EQ(gpu.get(c, kElements), expected) << "whole numbers: exact in any order";
  });
}

TYPED_TEST(Tile, ReducesItsFixedLines) {
  using T = typename TypeParam::T;
  Gpu gpu;
  const std::vector<float> in = numbers<float>(11);
  float* out = gpu.room<float>(kElements);
  rt::launch(largest_of_lines<T, TypeParam::path>, {1, 32}, gpu.handle(), gpu.put(in), out);
  gpu.stream().synchronize();
  const std::vector<float> got = gpu.get(out, kElements);
  for (int i = 0; i < kElements; ++i) {
    const auto line = in.begin() + i / kTile * kTile;
    EXPECT_EQ(got[static_cast<size_t>(i)], *std::max_element(line, line + kTile)) << i;
  }
}

TYPED_TEST(Tile, IsTheFixedSideOfAnother) {
  using T = typename TypeParam::T;
  Gpu gpu;
  const std::vector<float> in = numbers<float>(7);
  const std::vector<T> b = numbers<T>(5);
  T* out = gpu.room<T>(kElements);
  rt::launch(multiply_again<T, TypeParam::path>, {1, 32}, gpu.handle(), gpu.put(in), gpu.put(b), out);
  gpu.stream().synchronize();
  const std::vector<T> got = gpu.get(out, kElements);
  for (size_t i = 0; i < kElements; ++i) {
    float sum = 0;
    for (size_t t = 0; t < kTile; ++t)
      sum += in[i / kTile * kTile + t] * rt::to_float(b[i % kTile * kTile + t]);
    EXPECT_EQ(rt::to_float(got[i]), rt::to_float(rt::from_float<T>(sum))) << i;
  }
}

TEST_F(EmulatorTest, NamesAWrongFragmentRow) {
  in_every_order([] {
    Gpu gpu;
    std::vector<rt::bf16> a = numbers<rt::bf16>(3);
    a.resize(kElements + kTile);
    rt::launch(multiply_shifted, {1, 32}, gpu.handle(), gpu.put(a), gpu.put(a), gpu.room<float>(32));
    try {
      gpu.stream().synchronize();
      ADD_FAILURE() << "nothing failed";
    } catch (const DeviceError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("wrong fragment row"));
    }
  });
}

}  // namespace
}  // namespace hearth::gpu
