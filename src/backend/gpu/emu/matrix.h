#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/gpu/emu/grid.h"

/// Matrix instructions of GPUs, emulated on the registers of a warp: every lane gets the contents that the
/// GPU would leave in its registers. All lanes of the warp must call a function together. Products are added
/// in f32 one after another; a GPU may use another order. The register layouts are written from the vendors'
/// guides and not shared with rt_tile.h, so that tests detect errors there.
namespace hearth::emu {

/// Format of 16-bit numbers: bf16 or f16.
struct Numbers {
  bool are_f16;
};

/// A register of every lane of the warp; valid until the second warp operation after show().
struct LaneRegister {
  const std::byte* slots;
};
/// Makes a lane's register readable by the other lanes; all lanes must call together.
LaneRegister show(uint32_t value, Site site = {__builtin_FILE(), __builtin_LINE()});
/// Returns the register of lane `from` of the same half-warp (DPP row_share).
uint32_t row_share(LaneRegister shown, int from);
/// Returns c + the dot product of two pairs of f16 (v_dot2c_f32_f16).
float dot2(uint32_t a, uint32_t b, float c);

/// The instruction v_wmma_f32_16x16x16 with 32 lanes: c[8] += a * b. generation 11 (RDNA3): a and b are 8
/// words, and both half-warps must hold the same words, otherwise Fault. generation 12 (RDNA4): a and b are 4
/// words.
template <int generation>
void wmma(Numbers numbers, float* c, const uint32_t* a, const uint32_t* b,
          Site site = {__builtin_FILE(), __builtin_LINE()});
/// The instruction mma.sync.m16n8k16: c[4] += a (4 words) * b (2 words).
void mma_m16n8k16(Numbers numbers, float* c, const uint32_t* a, uint32_t b0, uint32_t b1,
                  Site site = {__builtin_FILE(), __builtin_LINE()});

/// Aborts if source files of the program call this with different values of RT_TILE; otherwise returns true.
/// Inline functions of rt_tile.h depend on RT_TILE, and the linker keeps only one copy of each.
bool expect_one_tile(int tile) noexcept;

}  // namespace hearth::emu
