// One instruction of gfx11 or gfx12, taken apart (AMD's RDNA3 and RDNA4 ISA documents, "Microcode Formats").
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "counters.h"
#include "instruction.h"

namespace machine_code {

// Operands are numbered as the ISA numbers the sources of vector instructions: 0..105 scalar registers, 256..
// vector registers.
constexpr uint16_t kVcc = 106, kNull = 124, kM0 = 125, kExec = 126, kScc = 253, kLiteral = 255, kVector = 256,
                   kNone = 0xffff;

/// Registers, or a half of one.
struct Registers {
  enum Halves : uint8_t { low = 1, high = 2, both = 3 };
  uint16_t first = 0, count = 0;
  Halves halves = both;
};

struct Wave;
struct Instruction;
/// An instruction written by hand: executes it but for moving to the next one.
using ByHand = void (*)(Wave&, const Instruction&);

struct Dpp {
  bool row = false, eight = false;  ///< DPP16, DPP8; neither: none
  uint16_t control = 0;
  std::array<uint8_t, 8> select = {};
  uint8_t row_mask = 15, bank_mask = 15;
  bool bound_is_zero = false, fetch_inactive = false;
};

struct Instruction {
  Encoding encoding = Encoding::sopp;
  const Operation* op = nullptr;
  ByHand by_hand = nullptr;
  int bytes = 4;
  uint16_t d = kNone, s[3] = {kNone, kNone, kNone};
  uint16_t scalar_d = kNone;  ///< where a mask of lanes goes; the scalar address of a memory instruction
  uint16_t resource = 0;      ///< of a buffer: the first of its four registers
  uint16_t carry = kVcc;      ///< where a mask of lanes comes from
  // The second half of VOPD.
  const Operation* y = nullptr;
  uint16_t yd = kNone, ys[3] = {kNone, kNone, kNone};
  uint32_t literal = 0;
  int32_t offset = 0;
  uint8_t offset0 = 0, offset1 = 0;
  int16_t simm16 = 0;
  uint8_t neg = 0, abs = 0, neg_hi = 0, opsel = 0, opsel_hi = 0, omod = 0;
  bool clamp = false, returns = true;
  Dpp dpp;
  Unit unit = Unit::control;
  uint8_t cycles = 1, access_bytes = 4;
  Registers::Halves data = Registers::both;  ///< what memory instructions load or store of a register
  std::vector<Registers>
      used;  ///< no load to them may be under way; but what is loaded to, which Wave::issue looks at

  const char* name() const { return op->name; }
};

/// Throws Fault, with the name or the words, on what the tables do not know.
Instruction decode(int generation, const uint32_t* code);
/// By name, without _E32 and _E64; none: what has no hand-written form.
ByHand hand_written(const char* name);

}  // namespace machine_code
