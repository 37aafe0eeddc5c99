// The state of a wave of 32 lanes, and what executes its instructions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "code_object.h"
#include "decode.h"

namespace machine_code {

class Block;

/// Which loads a wait waits for. gfx11 has no counter of its own for scalar loads: they count with shared
/// memory.
enum class Counter { vector_memory, shared_memory, scalar_memory };

/// A load under way: its registers may not be touched before a wait.
struct Load {
  Counter counter = Counter::vector_memory;
  bool any_order = false;  ///< scalar loads: only a wait for all says that this one has arrived
  bool stays = false;      ///< within the wave: shuffles, which count as shared memory and touch none
  Registers to;
  uint64_t arrives = 0;  ///< in cycles of its wave
};

struct Wave {
  alignas(64) uint32_t v[256 * 32];
  uint32_t s[128];
  uint32_t scc = 0;
  uint64_t pc = 0;
  uint64_t clock = 0;  ///< cycles since its start, as if no other wave were there
  int number = 0;
  bool done = false, at_barrier = false;
  std::vector<std::byte> scratch;  ///< of all lanes, one after the other
  std::vector<Load> loads;
  uint8_t under_way[kVector + 256] = {};  ///< halves of each register that loads go to, numbered as operands
  Block* block = nullptr;

  uint32_t exec() const { return s[kExec]; }
  uint32_t* vector(uint16_t operand) { return v + (operand - kVector) * 32; }

  void issue(Load load);
  /// At most `left` loads of that counter are under way from here on.
  void wait(Counter counter, uint32_t left);
  /// Throws Fault when a register of the instruction is still being loaded.
  void check(const Instruction& in) const;

 private:
  void mark(const Load& load);
};

// The high words of generic addresses of shared and scratch memory, which kernels read from operands 235 and
// 237.
constexpr uint32_t kSharedAperture = 0x10000, kScratchAperture = 0x20000;

/// The value of a scalar operand: register, constant or literal; floats of 64 bits as `kind` 'd' says.
uint64_t scalar_value(const Wave& wave, const Instruction& in, uint16_t operand, int bits, char kind);
void write_scalar(Wave& wave, uint16_t operand, int bits, uint64_t value);
/// The source of a vector instruction as words of lanes, with modifiers; `buffer` has 64 words for what is
/// not in registers so.
const uint32_t* lanes_of(Wave& wave, const Instruction& in, int k, uint32_t* buffer);

/// Executes one instruction, whose pc has been passed.
void execute(Wave& wave, const Instruction& in);

}  // namespace machine_code
