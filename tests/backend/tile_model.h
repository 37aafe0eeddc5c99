#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "backend/cpu/simd/simd.h"

namespace hearth::cpu {
namespace {

/// AMX's instructions by the pseudocode of Intel's manual, for processors without them. Sums of even and of
/// odd terms are kept apart over a tile, and subnormal numbers are zeros.
struct Tiles {
  static inline thread_local float tiles[8][kTile][kTile];
  static inline thread_local bool configured = false;
  static void configure() { configured = true; }
  static void release() { configured = false; }
  template <int kNumber>
  static void zero() {
    std::memset(tiles[kNumber], 0, sizeof(tiles[kNumber]));
  }
  template <int kNumber>
  static void load(const float* from, int64_t row) {
    for (int64_t r = 0; r < kTile; ++r)
      std::memcpy(tiles[kNumber][r], from + r * row, sizeof(tiles[kNumber][r]));
  }
  template <int kNumber>
  static void store(float* to, int64_t row) {
    for (int64_t r = 0; r < kTile; ++r)
      std::memcpy(to + r * row, tiles[kNumber][r], sizeof(tiles[kNumber][r]));
  }
  static float normal(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? 0.0F : x; }
  static float term(float pair, int which) {
    const auto bits = std::bit_cast<uint32_t>(pair);
    return normal(std::bit_cast<float>(which == 0 ? bits << 16U : bits & 0xffff0000U));
  }
  template <int kC, int kA, int kB>
  static void add_product() {
    if (!configured) return;
    for (int64_t i = 0; i < kTile; ++i) {
      for (int64_t j = 0; j < kTile; ++j) {
        float sums[2] = {};
        for (int64_t p = 0; p < kTile; ++p) {
          for (int which = 0; which < 2; ++which)
            sums[which] =
                normal(std::fma(term(tiles[kA][i][p], which), term(tiles[kB][p][j], which), sums[which]));
        }
        tiles[kC][i][j] = normal(tiles[kC][i][j] + normal(sums[0] + sums[1]));
      }
    }
  }
};

}  // namespace
}  // namespace hearth::cpu

#include "backend/cpu/simd/tiles.inc"
