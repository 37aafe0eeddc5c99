#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/gpu/emu/grid.h"

/// Matrix instructions of GPUs, on the registers of each lane of a warp: every lane gets the contents that
/// the GPU would leave in its registers. All lanes must call together. Products are summed in f32, term after
/// term; a GPU's order may differ. The layouts are written from the vendors' guides, independently of
/// rt_tile.h.
namespace hearth::emu {

/// Format of 16-bit numbers: bf16 or f16.
struct Numbers {
  bool are_f16;
};

/// A register of every lane, valid until the warp's second next operation.
struct LaneRegister {
  const std::byte* slots;
};
/// Makes a lane's register readable by the other lanes; all lanes must call together.
LaneRegister show(uint32_t value, Site site = {__builtin_FILE(), __builtin_LINE()});
/// Returns the register of lane `from` of the same half-warp (DPP row_share).
uint32_t row_share(LaneRegister shown, int from);
/// Returns c + the dot product of two pairs of f16 (v_dot2c_f32_f16).
float dot2(uint32_t a, uint32_t b, float c);

/// v_wmma_f32_16x16x16 of wave32: c[8] += a * b. generation 11 (RDNA3): a and b are 8 words, and both
/// half-warps must hold the same, otherwise Fault; generation 12 (RDNA4): 4 words.
template <int generation>
void wmma(Numbers numbers, float* c, const uint32_t* a, const uint32_t* b,
          Site site = {__builtin_FILE(), __builtin_LINE()});
/// mma.sync.m16n8k16: c[4] += a (4 words) * b (2 words).
void mma_m16n8k16(Numbers numbers, float* c, const uint32_t* a, uint32_t b0, uint32_t b1,
                  Site site = {__builtin_FILE(), __builtin_LINE()});

/// Aborts unless every source file of the program calls this with the same RT_TILE; returns true. The linker
/// keeps one copy of an inline function, and the copy is right for one layout.
bool expect_one_tile(int tile) noexcept;

}  // namespace hearth::emu
