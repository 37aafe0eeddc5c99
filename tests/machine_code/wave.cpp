#include "wave.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#include "machine.h"

namespace machine_code {
namespace {

std::string register_name(uint16_t operand) {
  return operand >= kVector ? "v" + std::to_string(operand - kVector) : "s" + std::to_string(operand);
}

/// 128..208: whole numbers; 240..248: these floats, as numbers of the operand's width.
uint64_t constant(uint16_t operand, int bits, char kind) {
  if (operand >= 128 && operand <= 192) return operand - 128u;
  if (operand >= 193 && operand <= 208) return static_cast<uint64_t>(-static_cast<int64_t>(operand - 192));
  constexpr double kFloats[] = {0.5, -0.5, 1, -1, 2, -2, 4, -4};
  const double value = operand == 248 ? 0.15915494309189532 : kFloats[operand - 240];
  if (bits == 64) return std::bit_cast<uint64_t>(value);
  if (kind == 'h' || kind == 'p') return operand == 248 ? 0x3118 : Half(value).bits;
  return operand == 248 ? 0x3e22f983 : std::bit_cast<uint32_t>(static_cast<float>(value));
}

/// Where DPP takes a lane's source 0 from (RDNA3 ISA, "DPP"): rows of 16 lanes; -1: from none.
int dpp_source(const Dpp& dpp, int lane) {
  const int row = lane & ~15, at = lane & 15, by = dpp.control & 15;
  if (dpp.eight) return (lane & ~7) + dpp.select[static_cast<size_t>(lane & 7)];
  const auto within = [&](int to) { return to < 0 || to > 15 ? -1 : row + to; };
  if (dpp.control < 0x100) return (lane & ~3) + (dpp.control >> 2 * (lane & 3) & 3);
  switch (dpp.control >> 4) {
    case 0x10:
      return within(at + by);
    case 0x11:
      return within(at - by);
    case 0x12:
      return row + ((at - by) & 15);
    case 0x14:
      return by == 0 ? row + 15 - at : (lane & ~7) + 7 - (lane & 7);
    case 0x15:
      return row + by;
    case 0x16:
      return row + (at ^ by);
    default:
      throw Fault{"DPP with the control " + hex(dpp.control)};
  }
}

/// Lanes that DPP lets write, with source 0 shuffled into the buffer.
uint32_t shuffled(const Wave& wave, const Dpp& dpp, const uint32_t* from, uint32_t* buffer) {
  uint32_t on = wave.exec();
  for (int lane = 0; lane < 32; ++lane) {
    const bool masked =
        dpp.row && ((dpp.row_mask >> (lane >> 4) & 1) == 0 || (dpp.bank_mask >> (lane >> 2 & 3) & 1) == 0);
    const int source = dpp_source(dpp, lane);
    const bool found = source >= 0 && ((wave.exec() >> source & 1) != 0 || dpp.fetch_inactive);
    buffer[lane] = found ? from[source] : 0;
    if (masked || (!found && !dpp.bound_is_zero && dpp.row)) on &= ~(1u << lane);
  }
  return on;
}

void changed_sign(uint32_t* word, char kind, bool wide, bool negative, bool absolute) {
  const uint32_t sign = kind == 'h' ? 0x8000u : 0x80000000u;
  for (int lane = 0; lane < 32; ++lane) {
    uint32_t& high = word[(wide ? 32 : 0) + lane];
    if (absolute) high &= ~sign;
    if (negative) high ^= sign;
  }
}

/// Operands of two halves: which half of the source is the low one, which the high one, and their signs.
void packed(const Instruction& in, int k, uint32_t* word) {
  const bool low_from_high = in.opsel >> k & 1, high_from_high = in.opsel_hi >> k & 1;
  const uint32_t signs = (in.neg >> k & 1 ? 0x8000u : 0) | (in.neg_hi >> k & 1 ? 0x80000000u : 0);
  for (int lane = 0; lane < 32; ++lane) {
    const uint32_t low = word[lane] & 0xffff, high = word[lane] >> 16;
    word[lane] = ((low_from_high ? high : low) | (high_from_high ? high : low) << 16) ^ signs;
  }
}

double modified(double x, const Instruction& in) {
  if (in.omod == 1) x *= 2;
  if (in.omod == 2) x *= 4;
  if (in.omod == 3) x /= 2;
  return in.clamp ? (x > 0 ? std::min(x, 1.0) : 0.0) : x;
}

/// omod and clamp of the lanes that were written.
void modify_result(const Instruction& in, uint32_t* d, uint32_t on) {
  const char kind = in.op->kinds[0];
  if (kind == 'i' || kind == 'p') throw Fault{"clamp of integers"};
  for (int lane = 0; lane < 32; ++lane) {
    if ((on >> lane & 1) == 0) continue;
    if (kind == 'h')
      d[lane] = (d[lane] & 0xffff0000) | Half(modified(float{bits_as<Half>(d[lane])}, in)).bits;
    if (kind == 'f')
      d[lane] = std::bit_cast<uint32_t>(static_cast<float>(modified(std::bit_cast<float>(d[lane]), in)));
    if (kind == 'd') {
      const auto bits = std::bit_cast<uint64_t>(
          modified(std::bit_cast<double>(d[lane] | uint64_t{d[32 + lane]} << 32), in));
      d[lane] = static_cast<uint32_t>(bits);
      d[32 + lane] = static_cast<uint32_t>(bits >> 32);
    }
  }
}

void execute_scalar(Wave& wave, const Instruction& in) {
  const Operation& op = *in.op;
  Scalar x{.scc = wave.scc,
           .exec = wave.exec(),
           .vcc = wave.s[kVcc],
           .m0 = wave.s[kM0],
           .literal = in.literal,
           .simm16 = in.simm16};
  if (in.encoding == Encoding::sopk) {
    const bool compares = std::string_view(op.name).starts_with("S_CMPK");
    x.s0 = compares ? wave.s[in.d] : static_cast<uint64_t>(in.simm16);
  } else {
    x.s0 = scalar_value(wave, in, in.s[0], op.bits[1], op.kinds[1]);
    if (in.s[1] != kNone) x.s1 = scalar_value(wave, in, in.s[1], op.bits[2], op.kinds[2]);
  }
  const bool writes = in.d != kNone && op.bits[0] != 0;
  if (writes) x.d = scalar_value(wave, in, in.d, op.bits[0], 'i');
  reinterpret_cast<void (*)(Scalar&)>(op.run)(x);
  // What an instruction says of EXEC, and then its destination.
  wave.scc = x.scc;
  wave.s[kExec] = x.exec;
  wave.s[kVcc] = x.vcc;
  wave.s[kM0] = x.m0;
  if (writes) write_scalar(wave, in.d, op.bits[0], x.d);
}

struct Buffers {
  alignas(64) uint32_t s[3][64], d[64];
};

/// One vector instruction, or one half of VOPD, of which the sources are read before anything is written.
struct Prepared {
  Lanes x;
  const Operation* op = nullptr;
  uint16_t d = kNone;
};
Prepared prepared(Wave& wave, const Instruction& in, Buffers& buffers) {
  Prepared made{.op = in.op, .d = in.d};
  Lanes& x = made.x;
  x.exec = wave.exec();
  x.literal = in.literal;
  x.carry = static_cast<uint32_t>(scalar_value(wave, in, in.carry, 32, 'i'));
  for (int k = 0; k < 3; ++k) {
    if (in.s[k] == kNone) continue;
    x.wide[k] = in.op->bits[k + 1] == 64;
    x.s[k] = lanes_of(wave, in, k, buffers.s[k]);
  }
  if (in.dpp.row || in.dpp.eight) {
    alignas(64) uint32_t from[64];
    std::memcpy(from, x.s[0], sizeof(uint32_t) * 32);
    x.exec = shuffled(wave, in.dpp, from, buffers.s[0]);
    x.s[0] = buffers.s[0];
  }
  return made;
}

void run_lanes(Wave& wave, const Instruction& in, Prepared& now, Buffers& buffers) {
  Lanes& x = now.x;
  x.wide_d = now.op->bits[0] == 64;
  const bool high_half = now.op->bits[0] == 16 && (in.opsel >> 3 & 1) != 0 && in.encoding != Encoding::vop3p;
  const bool to_scalar = now.d != kNone && now.d < kVector;
  uint32_t* registers = now.d == kNone || to_scalar ? buffers.d : wave.vector(now.d);
  x.d = high_half ? buffers.d : registers;
  if (high_half) {
    for (int lane = 0; lane < 32; ++lane) x.d[lane] = registers[lane] >> 16;
  }
  if (to_scalar) x.exec = 1;  // the scalar forms of transcendental functions
  reinterpret_cast<void (*)(Lanes&)>(now.op->run)(x);
  if (in.omod != 0 || in.clamp) modify_result(in, x.d, x.exec);
  if (high_half) {
    for (int lane = 0; lane < 32; ++lane) {
      if (x.exec >> lane & 1) registers[lane] = (registers[lane] & 0xffff) | x.d[lane] << 16;
    }
  }
  if (to_scalar) write_scalar(wave, now.d, 32, x.d[0]);
  if (now.op->result && in.scalar_d != kNone) write_scalar(wave, in.scalar_d, 32, x.result);
}

void execute_lanes(Wave& wave, const Instruction& in) {
  thread_local Buffers buffers, buffers_y;
  Prepared x = prepared(wave, in, buffers);
  if (in.y == nullptr) return run_lanes(wave, in, x, buffers);
  Instruction half = in;
  half.op = in.y;
  std::copy(std::begin(in.ys), std::end(in.ys), half.s);
  half.d = in.yd;
  half.y = nullptr;
  Prepared y = prepared(wave, half, buffers_y);
  // The first half may write what the second one reads.
  for (int k = 0; k < 3; ++k) {
    if (y.x.s[k] == nullptr) continue;
    if (y.x.s[k] != buffers_y.s[k]) std::memcpy(buffers_y.s[k], y.x.s[k], sizeof(uint32_t) * 32);
    y.x.s[k] = buffers_y.s[k];
  }
  run_lanes(wave, in, x, buffers);
  run_lanes(wave, half, y, buffers_y);
}

/// Of shared memory the passes, two accesses for the instructions with two offsets; of global memory the
/// lines.
void count_access(Wave& wave, const Instruction& in, const Access& x) {
  if (in.encoding == Encoding::scratch) return;
  if (in.encoding != Encoding::ds) {
    return wave.block->count_lines(x.on, x.address, in.access_bytes,
                                   {.read = in.op->loads, .written = in.op->stores});
  }
  const std::string_view name = in.op->name;
  const bool two = name.find("2ADDR") != name.npos;
  const uint64_t step = in.access_bytes * (name.find("STRIDE64") != name.npos ? 64u : 1u);
  for (const uint64_t offset : {two ? in.offset0 * step : x.offset, in.offset1 * step}) {
    uint64_t at[32];
    for (int lane = 0; lane < 32; ++lane) at[lane] = x.address[lane] + offset;
    wave.block->count_passes(x.on, at, in.access_bytes);
    if (!two) return;
  }
}

/// Lanes beyond the buffer's size are off, and what they load is zero.
void locate_buffer(Wave& wave, const Instruction& in, uint32_t scalar_offset, Access& x) {
  const uint32_t* words = wave.s + in.resource;
  const uint64_t begin = words[0] | uint64_t{words[1] & 0xffff} << 32;
  for (int lane = 0; lane < 32; ++lane) {
    const uint64_t own = in.s[0] == kNone ? 0 : wave.vector(in.s[0])[lane];
    const uint64_t at = own + scalar_offset + static_cast<uint64_t>(in.offset);
    x.address[lane] = begin + at;
    if (at + in.access_bytes > words[2]) x.on &= ~(1u << lane);
  }
}

void execute_access(Wave& wave, const Instruction& in) {
  const Operation& op = *in.op;
  thread_local uint32_t result[16 * 32];
  Access x{.on = wave.exec(),
           .data = wave.vector(in.s[1]),
           .result = result,
           .offset0 = in.offset0,
           .offset1 = in.offset1};
  x.context = &wave;
  x.atomic = op.loads && op.stores;
  const bool shared = in.encoding == Encoding::ds;
  if (shared) x.data2 = wave.vector(in.s[2]);
  x.offset = shared ? static_cast<uint32_t>(in.offset) : 0;
  const bool scalar_base = !shared && in.scalar_d < kNull;
  const bool two_words = in.encoding == Encoding::flat || (in.encoding == Encoding::global && !scalar_base);
  const uint64_t base =
      scalar_base ? scalar_value(wave, in, in.scalar_d, in.encoding == Encoding::scratch ? 32 : 64, 'i') : 0;
  for (int lane = 0; lane < 32; ++lane) {
    const uint32_t* at = in.s[0] == kNone ? nullptr : wave.vector(in.s[0]) + lane;
    const uint64_t low = at == nullptr ? 0 : at[0], high = two_words ? uint64_t{at[32]} << 32 : 0;
    x.address[lane] = base + low + high + (shared ? 0 : static_cast<uint64_t>(int64_t{in.offset}));
    if (in.encoding == Encoding::scratch) x.address[lane] &= 0xffffffff;
  }
  if (in.encoding == Encoding::mubuf)
    locate_buffer(wave, in, static_cast<uint32_t>(scalar_value(wave, in, in.scalar_d, 32, 'i')), x);
  x.locate = shared ? locate_shared : in.encoding == Encoding::scratch ? locate_scratch : locate_global;
  if (settings().counts) count_access(wave, in, x);
  const auto words = static_cast<size_t>((op.bits[0] + 31) / 32);
  const bool returns = op.loads && in.returns && words != 0;
  // Loads of 16 bits keep the other half.
  if (returns && in.encoding == Encoding::mubuf && x.on != wave.exec())
    std::memset(wave.vector(in.d), 0, words * 32 * sizeof(uint32_t));
  if (returns) std::memcpy(result, wave.vector(in.d), words * 32 * sizeof(uint32_t));
  reinterpret_cast<void (*)(Access&)>(op.run)(x);
  if (returns) std::memcpy(wave.vector(in.d), result, words * 32 * sizeof(uint32_t));
  const Registers to{.first = in.d, .count = static_cast<uint16_t>(returns ? words : 0), .halves = in.data};
  if (shared)
    wave.issue({.counter = Counter::shared_memory, .to = to});
  else if (returns)
    wave.issue({.counter = Counter::vector_memory, .to = to});
  if (in.encoding == Encoding::flat) wave.issue({.counter = Counter::shared_memory});
}

void execute_scalar_load(Wave& wave, const Instruction& in) {
  const std::string_view name = in.op->name;
  if (!name.starts_with("S_LOAD_")) {
    if (name.find("INV") != name.npos || name.starts_with("S_PREFETCH")) return;
    throw Fault{"no rule for the instruction " + std::string(name)};
  }
  const uint64_t base = scalar_value(wave, in, in.s[0], 64, 'i');
  const uint64_t by = in.s[1] == kNull ? 0 : scalar_value(wave, in, in.s[1], 32, 'i');
  const uint64_t address = base + by + static_cast<uint64_t>(int64_t{in.offset});
  const bool byte = name.ends_with("I8") || name.ends_with("U8"),
             half = name.ends_with("I16") || name.ends_with("U16");
  const auto words = static_cast<uint16_t>(byte || half ? 1 : in.op->bits[0] / 32);
  const uint32_t bytes = byte ? 1 : half ? 2 : words * 4u;
  uint32_t got[16] = {};
  std::memcpy(got, readable(wave, address, bytes), bytes);
  if (name == "S_LOAD_I8") got[0] = static_cast<uint32_t>(static_cast<int8_t>(got[0]));
  if (name == "S_LOAD_I16") got[0] = static_cast<uint32_t>(static_cast<int16_t>(got[0]));
  for (uint16_t k = 0; k < words; ++k) write_scalar(wave, static_cast<uint16_t>(in.d + k), 32, got[k]);
  const bool own = wave.block->generation() >= 12;
  wave.issue({.counter = own ? Counter::scalar_memory : Counter::shared_memory,
              .any_order = true,
              .to = {in.d, words}});
}

}  // namespace

namespace {
uint64_t latency_of(const Load& load) {
  if (load.counter == Counter::vector_memory) return kLoadLatency;
  return load.any_order ? kScalarLatency : kSharedLatency;
}
}  // namespace

void Wave::mark(const Load& load) {
  for (int r = load.to.first; r < load.to.first + load.to.count; ++r) under_way[r] |= load.to.halves;
}

void Wave::issue(Load load) {
  // Loads of one counter arrive in order, those of lanes that were off before among them.
  for (const Load& other : loads) {
    const bool meet =
        other.to.first < load.to.first + load.to.count && load.to.first < other.to.first + other.to.count;
    if (meet && (other.counter != load.counter || load.any_order || other.any_order))
      throw Fault{"loads " + register_name(load.to.first) + " before a wait for another load to it"};
  }
  load.arrives = clock + latency_of(load);
  loads.push_back(load);
  mark(load);
}

void Wave::wait(Counter counter, uint32_t left) {
  uint32_t count = 0;
  bool any_order = false;
  for (const Load& load : loads) {
    count += load.counter == counter;
    any_order = any_order || (load.counter == counter && load.any_order);
  }
  if (count <= left || (any_order && left != 0)) return;
  uint32_t arrived = count - left;
  std::erase_if(loads, [&](const Load& load) {
    if (load.counter != counter || arrived == 0) return false;
    clock = std::max(clock, load.arrives);
    --arrived;
    return true;
  });
  std::ranges::fill(under_way, 0);
  for (const Load& load : loads) mark(load);
}

void Wave::check(const Instruction& in) const {
  for (const Registers& used : in.used) {
    for (uint16_t r = used.first; r < used.first + used.count; ++r) {
      if ((under_way[r] & used.halves) != 0)
        throw Fault{"uses " + register_name(r) + " before a wait for the load to it"};
    }
  }
}

uint64_t scalar_value(const Wave& wave, const Instruction& in, uint16_t operand, int bits, char kind) {
  if (operand < 128) {
    if (operand == kNull) return 0;
    return bits == 64 ? wave.s[operand] | uint64_t{wave.s[operand + 1]} << 32 : wave.s[operand];
  }
  if (operand == kLiteral)
    return bits != 64 ? in.literal : kind == 'd' ? uint64_t{in.literal} << 32 : in.literal;
  if (operand == kScc) return wave.scc;
  if (operand == 235) return uint64_t{kSharedAperture} << 32;
  if (operand == 237) return uint64_t{kScratchAperture} << 32;
  if ((operand <= 208) || (operand >= 240 && operand <= 248)) return constant(operand, bits, kind);
  throw Fault{"the operand " + std::to_string(operand)};
}

void write_scalar(Wave& wave, uint16_t operand, int bits, uint64_t value) {
  if (operand == kNull) return;
  if (operand >= 128) throw Fault{"a destination " + std::to_string(operand)};
  wave.s[operand] = static_cast<uint32_t>(value);
  if (bits == 64) wave.s[operand + 1] = static_cast<uint32_t>(value >> 32);
}

const uint32_t* lanes_of(Wave& wave, const Instruction& in, int k, uint32_t* buffer) {
  const int bits = in.op->bits[k + 1];
  const char kind = in.op->kinds[k + 1];
  const bool wide = bits == 64, pairs = in.encoding == Encoding::vop3p;
  const bool negative = in.neg >> k & 1, absolute = in.abs >> k & 1,
             high = !pairs && bits == 16 && (in.opsel >> k & 1) != 0;
  const bool plain = !negative && !absolute && !high && !pairs;
  if (in.s[k] >= kVector) {
    if (plain) return wave.vector(in.s[k]);
    std::memcpy(buffer, wave.vector(in.s[k]), (wide ? 64 : 32) * sizeof(uint32_t));
  } else {
    const uint64_t value = scalar_value(wave, in, in.s[k], bits, kind);
    std::fill_n(buffer, 32, static_cast<uint32_t>(value));
    if (wide) std::fill_n(buffer + 32, 32, static_cast<uint32_t>(value >> 32));
  }
  if (pairs) {
    packed(in, k, buffer);
    return buffer;
  }
  if (high) {
    for (int lane = 0; lane < 32; ++lane) buffer[lane] >>= 16;
  }
  if (negative || absolute) {
    // A choice between two words takes them for floats.
    if (kind == 'i' && std::string_view(in.name()) != "V_CNDMASK_B32")
      throw Fault{"the sign of an integer operand"};
    changed_sign(buffer, kind, wide, negative, absolute);
  }
  return buffer;
}

void execute(Wave& wave, const Instruction& in) {
  if (!wave.loads.empty()) wave.check(in);
  if (in.by_hand != nullptr) return in.by_hand(wave, in);
  if (in.encoding == Encoding::smem) return execute_scalar_load(wave, in);
  if (in.op->kind == Kind::scalar) return execute_scalar(wave, in);
  if (in.op->kind == Kind::access) return execute_access(wave, in);
  execute_lanes(wave, in);
}

}  // namespace machine_code
