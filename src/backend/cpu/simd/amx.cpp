#if defined(__x86_64__)
#include <cstdint>

#include "backend/cpu/simd/simd.h"

#if defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace hearth::cpu {
namespace {

/// AMX instructions on tile registers 0 to 7, as inline assembly: the compilers' intrinsics do not declare
/// that they access memory, so stores could be reordered across them.
struct Tiles {
  /// Configures all tiles as 16 rows of 64 bytes (Intel's manual, LDTILECFG).
  static void configure() {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {kTile, kTile, kTile, kTile, kTile, kTile, kTile, kTile};
    } const config;
    __asm__ volatile("ldtilecfg %0" ::"m"(config));
  }
  static void release() { __asm__ volatile("tilerelease" ::); }
  template <int kNumber>
  static void zero() {
    __asm__ volatile("tilezero %%tmm%c0" ::"i"(kNumber));
  }
  template <int kNumber>
  static void load(const float* from, int64_t row) {
    __asm__ volatile("tileloadd (%0,%1,4), %%tmm%c2" ::"r"(from), "r"(row), "i"(kNumber) : "memory");
  }
  template <int kNumber>
  static void store(float* to, int64_t row) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,4)" ::"r"(to), "r"(row), "i"(kNumber) : "memory");
  }
  template <int kC, int kA, int kB>
  static void add_product() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
};

}  // namespace
}  // namespace hearth::cpu

#include "backend/cpu/simd/tiles.inc"

namespace hearth::cpu {
namespace {

/// True if AMX tiles can be used. Linux requires a request, since their registers add 8 KiB to each thread's
/// saved state.
bool may_use_tiles() {
#if defined(__linux__)
  constexpr unsigned kLeaf = 7, kBf16 = 1U << 22U, kTiles = 1U << 24U;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(kLeaf, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kBf16) == 0 || (edx & kTiles) == 0) return false;
  constexpr int64_t kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace

SimdKernels with_tiles(SimdKernels kernels) {
  if (may_use_tiles()) {
    kernels.isa = "amx_bf16";
    kernels.gemm_tiles = gemm_tiles;
  }
  return kernels;
}

}  // namespace hearth::cpu
#endif
