// What kernels cost: instructions by class, passes of shared memory, lines of 128 bytes, and how long a wave
// would take alone. bench/gpu_model.py makes cycles of these.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <string_view>

#include "instruction.h"

namespace machine_code {

/// What executes an instruction. A pair of VOPD counts once; transcendental functions and 32-bit integer
/// products take four cycles of a SIMD, double precision sixteen.
enum class Unit { scalar, vector, quarter, wide, matrix, shared, load, store, scalar_load, control };
constexpr int kUnits = 10;
constexpr std::array<const char*, kUnits> kUnitNames = {
    "scalar", "vector", "quarter", "double", "matrix", "shared", "load", "store", "scalar_load", "control"};
Unit unit_of(Encoding encoding, const Operation& op);
/// Of one lane, once: what an instruction's name says (GLOBAL_LOAD_B128: 16).
uint8_t bytes_of_access(std::string_view name);
/// For how many cycles it keeps its SIMD from the next instruction of that unit. WMMA: 8192 operations at
/// 512 (gfx11) and 1024 (gfx12) a cycle and compute unit, which has two SIMDs.
int cycles_of(Unit unit, int generation);

/// Cycles from a load's issue to its arrival: about what RDNA3 shows for a hit in L2, shared memory, and the
/// scalar cache.
constexpr uint64_t kLoadLatency = 500, kSharedLatency = 64, kScalarLatency = 100;

/// Sums over the blocks of a kernel. Where only some ran (Settings::max_blocks), those stand for all.
struct Counters {
  std::array<double, kUnits> executed = {};
  double launches = 0, blocks = 0, waves = 0;
  double wave_cycles = 0;               ///< of all waves, from start to end, each as if it were alone
  double passes = 0, least_passes = 0;  ///< of 32 banks of shared memory, and without any conflict
  double lines = 0, least_lines = 0;    ///< of 128 bytes that vector memory instructions touch, and if packed
  double block_lines = 0;    ///< each counted once in a block for what is read, once for what is written
  double traffic_lines = 0;  ///< the same in a launch, as far as it can be told from blocks that ran
  double lds_bytes = 0;      ///< of a block, the greatest
  double scratch_bytes = 0;  ///< of a lane: registers that spill, arrays
  double vgprs = 0;          ///< of a lane, as the kernel's descriptor says
  bool wgp_mode = false;     ///< a block's waves share both compute units of a WGP

  void add(const Counters& block, double times);
};
/// One line: `counted NAME=VALUE...`.
void print(const Counters& counters, std::FILE* file);

/// Passes that one access of these lanes takes: 32 lanes of up to 4 bytes at a time, 16 of 8, 8 of 16; a bank
/// answers one word a pass, to however many lanes ask for it.
struct Passes {
  int taken = 0, least = 0;
};
Passes passes_of(uint32_t on, const uint64_t* address, uint32_t bytes);
constexpr uint64_t kLineBytes = 128;
/// Lines of 128 bytes that the lanes touch, of which `visit` hears each once, and the fewest that could hold
/// the bytes.
struct Lines {
  int touched = 0, least = 0;
};
Lines lines_of(uint32_t on, const uint64_t* address, uint32_t bytes, std::array<uint64_t, 128>& found);

}  // namespace machine_code
