// Instructions that the pseudocode does not define alone: control flow, waits, what crosses lanes, matrix
// products.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <string_view>

#include "machine.h"
#include "wave.h"

namespace machine_code {
namespace {

uint64_t source(const Wave& wave, const Instruction& in, int k) {
  return scalar_value(wave, in, in.s[k], in.op->bits[k + 1], in.op->kinds[k + 1]);
}
/// Words of lanes of a source, in a buffer of its own.
struct Words {
  uint32_t word[64];
  Words(Wave& wave, const Instruction& in, int k) {
    alignas(64) uint32_t buffer[64];
    const bool wide = in.op->bits[k + 1] == 64;
    std::memcpy(word, lanes_of(wave, in, k, buffer), (wide ? 64 : 32) * sizeof(uint32_t));
  }
  double f64(int lane) const { return std::bit_cast<double>(word[lane] | uint64_t{word[32 + lane]} << 32); }
  float f32(int lane) const { return std::bit_cast<float>(word[lane]); }
};

// --- Control flow.
void none(Wave&, const Instruction&) {}
void branch(Wave& wave, const Instruction& in) { wave.pc += static_cast<uint64_t>(int64_t{in.simm16} * 4); }
void branch_if(Wave& wave, const Instruction& in, bool taken) {
  if (taken) branch(wave, in);
}
void end(Wave& wave, const Instruction&) { wave.done = true; }
void signal_barrier(Wave& wave, const Instruction&) {
  const auto is_open = [](const Load& load) {
    return load.counter == Counter::shared_memory && !load.any_order && !load.stays;
  };
  if (std::ranges::any_of(wave.loads, is_open))
    throw Fault{"reaches a barrier before a wait for its accesses to shared memory"};
}
void barrier(Wave& wave, const Instruction& in) {
  signal_barrier(wave, in);
  wave.at_barrier = true;
}
void set_pc(Wave& wave, const Instruction& in) { wave.pc = source(wave, in, 0); }
void get_pc(Wave& wave, const Instruction& in) { write_scalar(wave, in.d, 64, wave.pc); }
void swap_pc(Wave& wave, const Instruction& in) {
  const uint64_t to = source(wave, in, 0);
  write_scalar(wave, in.d, 64, wave.pc);
  wave.pc = to;
}
void call(Wave& wave, const Instruction& in) {
  write_scalar(wave, in.d, 64, wave.pc);
  branch(wave, in);
}

// --- Waits: expcnt in bits 2:0, lgkmcnt in 9:4, vmcnt in 15:10 of gfx11's; gfx12 has an instruction for each
// counter.
void wait_all(Wave& wave, const Instruction& in) {
  const auto left = static_cast<uint16_t>(in.simm16);
  wave.wait(Counter::vector_memory, left >> 10 & 63);
  wave.wait(Counter::shared_memory, left >> 4 & 63);
}
template <Counter counter>
void wait_one(Wave& wave, const Instruction& in) {
  wave.wait(counter, static_cast<uint16_t>(in.simm16) & 63);
}
void wait_both(Wave& wave, const Instruction& in) {
  wave.wait(Counter::vector_memory, static_cast<uint16_t>(in.simm16) >> 8 & 63);
  wave.wait(Counter::shared_memory, static_cast<uint16_t>(in.simm16) & 63);
}
void wait_idle(Wave& wave, const Instruction&) {
  for (const Counter counter : {Counter::vector_memory, Counter::shared_memory, Counter::scalar_memory})
    wave.wait(counter, 0);
}

// --- Across lanes.
void read_first_lane(Wave& wave, const Instruction& in) {
  const int lane = wave.exec() == 0 ? 0 : std::countr_zero(wave.exec());
  write_scalar(wave, in.d, 32, Words(wave, in, 0).word[lane]);
}
void read_lane(Wave& wave, const Instruction& in) {
  write_scalar(wave, in.d, 32, Words(wave, in, 0).word[source(wave, in, 1) & 31]);
}
void write_lane(Wave& wave, const Instruction& in) {
  wave.vector(in.d)[source(wave, in, 1) & 31] = static_cast<uint32_t>(source(wave, in, 0));
}
/// Selectors of 4 bits for the 16 lanes of a row; X16 reads the other row. opsel 0: lanes that are off give
/// their values too.
template <int other>
void permute_row(Wave& wave, const Instruction& in) {
  const Words from(wave, in, 0);
  const uint64_t select = (source(wave, in, 1) & 0xffffffff) | source(wave, in, 2) << 32;
  uint32_t* d = wave.vector(in.d);
  for (int lane = 0; lane < 32; ++lane) {
    const int at = ((lane & 16) ^ other) + static_cast<int>(select >> 4 * (lane & 15) & 15);
    if ((wave.exec() >> lane & 1) == 0) continue;
    if ((wave.exec() >> at & 1) != 0 || (in.opsel & 1) != 0)
      d[lane] = from.word[at];
    else if (in.opsel & 2)
      d[lane] = 0;
  }
}
/// A lane takes from (bpermute) or gives to (permute) the lane at a quarter of its address.
template <bool gives>
void permute(Wave& wave, const Instruction& in) {
  uint32_t got[32] = {};
  const uint32_t* address = wave.vector(in.s[0]);
  const uint32_t* data = wave.vector(in.s[1]);
  for (int lane = 0; lane < 32; ++lane) {
    const uint32_t other = (address[lane] + static_cast<uint32_t>(in.offset)) / 4 % 32;
    const int from = gives ? lane : static_cast<int>(other), to = gives ? static_cast<int>(other) : lane;
    if (wave.exec() >> from & 1) got[to] = data[from];
  }
  for (int lane = 0; lane < 32; ++lane) {
    if (wave.exec() >> lane & 1) wave.vector(in.d)[lane] = got[lane];
  }
  wave.issue({.counter = Counter::shared_memory, .stays = true, .to = {in.d, 1}});
}
/// Modes of the offset: 1xxx xxxx: quads; otherwise masks and, or, xor of the lane's number.
void swizzle(Wave& wave, const Instruction& in) {
  const auto mode = static_cast<uint32_t>(in.offset);
  if (mode >> 15 && mode >= 0xe000) throw Fault{"DS_SWIZZLE_B32 with the offset " + hex(mode)};
  uint32_t got[32] = {};
  for (int lane = 0; lane < 32; ++lane) {
    const int quad = (lane & ~3) + static_cast<int>(mode >> 2 * (lane & 3) & 3);
    const int masked = ((lane & static_cast<int>(mode & 31)) | static_cast<int>(mode >> 5 & 31)) ^
                       static_cast<int>(mode >> 10 & 31);
    const int from = mode >> 15 ? quad : masked;
    if (wave.exec() >> from & 1) got[lane] = wave.vector(in.s[0])[from];
  }
  for (int lane = 0; lane < 32; ++lane) {
    if (wave.exec() >> lane & 1) wave.vector(in.d)[lane] = got[lane];
  }
  wave.issue({.counter = Counter::shared_memory, .stays = true, .to = {in.d, 1}});
}

// --- Arithmetic.
/// Bytes of {S0, S1} by four selectors; 8..11: the sign of a byte, 12: 0, above: 0xff.
void permute_bytes(Wave& wave, const Instruction& in) {
  const Words a(wave, in, 0), b(wave, in, 1), select(wave, in, 2);
  for (int lane = 0; lane < 32; ++lane) {
    if ((wave.exec() >> lane & 1) == 0) continue;
    const uint64_t bytes = uint64_t{a.word[lane]} << 32 | b.word[lane];
    uint32_t d = 0;
    for (int k = 0; k < 4; ++k) {
      const uint32_t by = select.word[lane] >> 8 * k & 255;
      uint32_t byte = by == 12 ? 0 : 255;
      if (by < 8)
        byte = bytes >> 8 * by & 255;
      else if (by < 12)
        byte = bytes >> (16 * (by - 8) + 15) & 1 ? 255 : 0;
      d |= byte << 8 * k;
    }
    wave.vector(in.d)[lane] = d;
  }
}

/// Sources of f32, or of either half as f16, by opsel and opsel_hi; neg_hi is the absolute value.
float mixed(const Wave& wave, const Instruction& in, int k, int lane) {
  const auto word = static_cast<uint32_t>(in.s[k] >= kVector ? wave.v[(in.s[k] - kVector) * 32 + lane]
                                                             : scalar_value(wave, in, in.s[k], 32, 'f'));
  const bool half = in.opsel_hi >> k & 1, high = in.opsel >> k & 1;
  float x = half ? float{std::bit_cast<Half>(static_cast<uint16_t>(high ? word >> 16 : word))}
                 : std::bit_cast<float>(word);
  if (in.neg_hi >> k & 1) x = std::fabs(x);
  return in.neg >> k & 1 ? -x : x;
}
enum class Mix { f32, low, high };
template <Mix to>
void fma_mix(Wave& wave, const Instruction& in) {
  for (int lane = 0; lane < 32; ++lane) {
    if ((wave.exec() >> lane & 1) == 0) continue;
    float sum = std::fma(mixed(wave, in, 0, lane), mixed(wave, in, 1, lane), mixed(wave, in, 2, lane));
    if (in.clamp) sum = std::clamp(sum, 0.0f, 1.0f);
    uint32_t& d = wave.vector(in.d)[lane];
    if (to == Mix::f32) d = std::bit_cast<uint32_t>(sum);
    if (to == Mix::low) d = (d & 0xffff0000) | Half(sum).bits;
    if (to == Mix::high) d = (d & 0xffff) | uint32_t{Half(sum).bits} << 16;
  }
}

/// The first step of a division: scales what would leave the range on the way. The ISA's pseudocode, but for
/// a divisor whose inverse and quotient are denormal: it is scaled down, not up, because 2^64 of it is
/// infinite.
template <typename T>
T scaled(T s0, T s1, T s2, bool& vcc) {
  constexpr bool wide = sizeof(T) == 8;
  constexpr int kFar = wide ? 768 : 96, kBy = wide ? 128 : 64, kTiny = wide ? 53 : 23;
  const T quotient = s2 / s1, inverse = T{1} / s1;
  if (s2 == 0 || s1 == 0) return std::numeric_limits<T>::quiet_NaN();
  if (exponent(s2) - exponent(s1) >= kFar) {
    vcc = true;
    return s0 == s1 ? std::ldexp(s0, kBy) : s0;
  }
  if (is_denormal(s1)) return std::ldexp(s0, kBy);
  if (is_denormal(inverse) && is_denormal(quotient)) {
    vcc = true;
    return s0 == s1 ? std::ldexp(s0, -kBy) : s0;
  }
  if (is_denormal(inverse)) return std::ldexp(s0, -kBy);
  if (is_denormal(quotient)) {
    vcc = true;
    return s0 == s2 ? std::ldexp(s0, kBy) : s0;
  }
  return exponent(s2) <= kTiny ? std::ldexp(s0, kBy) : s0;
}
template <typename T>
void div_scale(Wave& wave, const Instruction& in) {
  const Words a(wave, in, 0), b(wave, in, 1), c(wave, in, 2);
  uint32_t mask = 0;
  for (int lane = 0; lane < 32; ++lane) {
    if ((wave.exec() >> lane & 1) == 0) continue;
    bool vcc = false;
    if constexpr (sizeof(T) == 8) {
      const auto d = std::bit_cast<uint64_t>(scaled(a.f64(lane), b.f64(lane), c.f64(lane), vcc));
      wave.vector(in.d)[lane] = static_cast<uint32_t>(d);
      wave.vector(in.d)[32 + lane] = static_cast<uint32_t>(d >> 32);
    } else {
      wave.vector(in.d)[lane] = std::bit_cast<uint32_t>(scaled(a.f32(lane), b.f32(lane), c.f32(lane), vcc));
    }
    mask |= uint32_t{vcc} << lane;
  }
  write_scalar(wave, in.scalar_d, 32, mask);
}

/// The last step but one: where VCC says that something was scaled, the quotient is scaled back, down if it
/// is small, and rounded once.
template <typename T>
T scaled_back(T a, T b, T c, bool vcc) {
  if (!vcc) return std::fma(a, b, c);
  constexpr int kBy = sizeof(T) == 8 ? 128 : 64, kBias = sizeof(T) == 8 ? 1023 : 127;
  using Wide = std::conditional_t<sizeof(T) == 8, long double, double>;
  return static_cast<T>(std::ldexp(std::fma(Wide{a}, Wide{b}, Wide{c}), exponent(c) > kBias ? kBy : -kBy));
}
template <typename T>
void div_fmas(Wave& wave, const Instruction& in) {
  const Words a(wave, in, 0), b(wave, in, 1), c(wave, in, 2);
  for (int lane = 0; lane < 32; ++lane) {
    if ((wave.exec() >> lane & 1) == 0) continue;
    const bool vcc = wave.s[kVcc] >> lane & 1;
    if constexpr (sizeof(T) == 8) {
      const auto d = std::bit_cast<uint64_t>(scaled_back(a.f64(lane), b.f64(lane), c.f64(lane), vcc));
      wave.vector(in.d)[lane] = static_cast<uint32_t>(d);
      wave.vector(in.d)[32 + lane] = static_cast<uint32_t>(d >> 32);
    } else {
      wave.vector(in.d)[lane] =
          std::bit_cast<uint32_t>(scaled_back(a.f32(lane), b.f32(lane), c.f32(lane), vcc));
    }
  }
}

/// 53 bits of 2 / pi from where the argument's exponent and S1 say.
constexpr uint64_t kTwoOverPi[] = {
    0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561, 0xb7246e3a424dd2e0,
    0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4,
    0x9c845f8bbdf9283b, 0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
    0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b0000};
uint64_t bits_of_two_over_pi(int first) {
  uint64_t found = 0;
  for (int bit = first; bit < first + 53; ++bit) {
    const bool within = bit < 1201;
    found = found << 1 | (within ? kTwoOverPi[bit / 64] >> (63 - bit % 64) & 1 : 0);
  }
  return found;
}
void trig_preop(Wave& wave, const Instruction& in) {
  const Words a(wave, in, 0), b(wave, in, 1);
  for (int lane = 0; lane < 32; ++lane) {
    if ((wave.exec() >> lane & 1) == 0) continue;
    const int e = exponent(a.f64(lane));
    const int shift = static_cast<int>(b.word[lane] & 31) * 53 + std::max(0, e - 1077);
    const int scale = -53 - shift + (e >= 1968 ? 128 : 0);
    const auto d =
        std::bit_cast<uint64_t>(std::ldexp(static_cast<double>(bits_of_two_over_pi(shift)), scale));
    wave.vector(in.d)[lane] = static_cast<uint32_t>(d);
    wave.vector(in.d)[32 + lane] = static_cast<uint32_t>(d >> 32);
  }
}

// --- Matrix products: D = A B + C of 16 x 16, a row of A and a column of B in a lane.
// gfx11: lanes 0 to 15 hold all 16 terms of their row, and lanes 16 to 31 must hold the same again; result i
// of a lane is row 2 i + lane / 16. gfx12: a lane holds 8 terms, lane / 16 says which; result i is row i + 8
// (lane / 16).
struct Layout {
  bool newer;
  int lane_of(int row, int k) const { return newer ? row + (k >> 3) * 16 : row; }
  int term_of(int k) const { return newer ? k & 7 : k; }
  int result_lane(int row, int column) const { return column + (newer ? row >> 3 : row & 1) * 16; }
  int result_of(int row) const { return newer ? row & 7 : row >> 1; }
};
float term(uint32_t word, int k, bool bf16) {
  const uint32_t bits = k & 1 ? word >> 16 : word & 0xffff;
  return bf16 ? std::bit_cast<float>(bits << 16) : float{std::bit_cast<Half>(static_cast<uint16_t>(bits))};
}
template <bool bf16>
void wmma(Wave& wave, const Instruction& in) {
  const Layout layout{wave.block->generation() >= 12};
  if (in.s[0] < kVector || in.s[1] < kVector || in.neg != 0 || in.neg_hi != 0 || in.opsel != 0)
    throw Fault{"WMMA with signs or constants"};
  if (wave.exec() != 0xffffffff) throw Fault{"WMMA with lanes that are off"};
  float a[16][16], b[16][16], d[16][16];
  for (int k = 0; k < 16; ++k) {
    for (int row = 0; row < 16; ++row) {
      const int lane = layout.lane_of(row, k), at = layout.term_of(k);
      const uint32_t* of_a = wave.vector(in.s[0]) + at / 2 * 32;
      const uint32_t* of_b = wave.vector(in.s[1]) + at / 2 * 32;
      const bool repeats = of_a[lane] == of_a[(lane + 16) % 32] && of_b[lane] == of_b[(lane + 16) % 32];
      if (!layout.newer && !repeats) throw Fault{"WMMA whose lanes 16 to 31 do not repeat lanes 0 to 15"};
      a[row][k] = term(of_a[lane], at, bf16);
      b[row][k] = term(of_b[lane], at, bf16);
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 16; ++column) {
      const int at = layout.result_of(row) * 32 + layout.result_lane(row, column);
      float sum = in.s[2] >= kVector
                      ? std::bit_cast<float>(wave.vector(in.s[2])[at])
                      : std::bit_cast<float>(static_cast<uint32_t>(scalar_value(wave, in, in.s[2], 32, 'f')));
      for (int k = 0; k < 16; ++k) sum = std::fma(a[row][k], b[column][k], sum);
      d[row][column] = sum;
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 16; ++column) {
      wave.vector(in.d)[layout.result_of(row) * 32 + layout.result_lane(row, column)] =
          std::bit_cast<uint32_t>(d[row][column]);
    }
  }
}

/// Never destroyed: reports at exit ask it.
const std::map<std::string_view, ByHand>& all() {
  static const auto* table = new std::map<std::string_view, ByHand>{
      {"S_BRANCH", branch},
      {"S_CBRANCH_SCC0", [](Wave& w, const Instruction& in) { branch_if(w, in, w.scc == 0); }},
      {"S_CBRANCH_SCC1", [](Wave& w, const Instruction& in) { branch_if(w, in, w.scc != 0); }},
      {"S_CBRANCH_VCCZ", [](Wave& w, const Instruction& in) { branch_if(w, in, w.s[kVcc] == 0); }},
      {"S_CBRANCH_VCCNZ", [](Wave& w, const Instruction& in) { branch_if(w, in, w.s[kVcc] != 0); }},
      {"S_CBRANCH_EXECZ", [](Wave& w, const Instruction& in) { branch_if(w, in, w.exec() == 0); }},
      {"S_CBRANCH_EXECNZ", [](Wave& w, const Instruction& in) { branch_if(w, in, w.exec() != 0); }},
      {"S_ENDPGM", end},
      {"S_BARRIER", barrier},
      {"S_BARRIER_WAIT", barrier},
      {"S_BARRIER_SIGNAL", signal_barrier},
      {"S_SETPC_B64", set_pc},
      {"S_GETPC_B64", get_pc},
      {"S_SWAPPC_B64", swap_pc},
      {"S_CALL_B64", call},
      {"S_WAITCNT", wait_all},
      {"S_WAITCNT_VMCNT", wait_one<Counter::vector_memory>},
      {"S_WAITCNT_LGKMCNT", wait_one<Counter::shared_memory>},
      {"S_WAITCNT_VSCNT", none},
      {"S_WAITCNT_EXPCNT", none},
      {"S_WAITCNT_DEPCTR", none},
      {"S_WAIT_LOADCNT", wait_one<Counter::vector_memory>},
      {"S_WAIT_DSCNT", wait_one<Counter::shared_memory>},
      {"S_WAIT_KMCNT", wait_one<Counter::scalar_memory>},
      {"S_WAIT_STORECNT", none},
      {"S_WAIT_ALU", none},
      {"S_WAIT_SAMPLECNT", none},
      {"S_WAIT_BVHCNT", none},
      {"S_WAIT_EXPCNT", none},
      {"S_WAIT_EVENT", none},
      {"S_WAIT_LOADCNT_DSCNT", wait_both},
      {"S_WAIT_STORECNT_DSCNT", wait_one<Counter::shared_memory>},
      {"S_WAIT_IDLE", wait_idle},
      {"S_NOP", none},
      {"S_SLEEP", none},
      {"S_SETPRIO", none},
      {"S_CLAUSE", none},
      {"S_DELAY_ALU", none},
      {"S_SENDMSG", none},
      {"S_SET_INST_PREFETCH_DISTANCE", none},
      {"S_ICACHE_INV", none},
      {"GLOBAL_INV", none},
      {"GLOBAL_WB", none},
      {"GLOBAL_WBINV", none},
      {"BUFFER_GL0_INV", none},
      {"BUFFER_GL1_INV", none},
      {"V_NOP", none},
      {"V_READFIRSTLANE_B32", read_first_lane},
      {"V_READLANE_B32", read_lane},
      {"V_WRITELANE_B32", write_lane},
      {"V_PERMLANE16_B32", permute_row<0>},
      {"V_PERMLANEX16_B32", permute_row<16>},
      {"DS_BPERMUTE_B32", permute<false>},
      {"DS_PERMUTE_B32", permute<true>},
      {"DS_SWIZZLE_B32", swizzle},
      {"V_PERM_B32", permute_bytes},
      {"V_FMA_MIX_F32", fma_mix<Mix::f32>},
      {"V_FMA_MIXLO_F16", fma_mix<Mix::low>},
      {"V_FMA_MIXHI_F16", fma_mix<Mix::high>},
      {"V_DIV_SCALE_F32", div_scale<float>},
      {"V_DIV_SCALE_F64", div_scale<double>},
      {"V_DIV_FMAS_F32", div_fmas<float>},
      {"V_DIV_FMAS_F64", div_fmas<double>},
      {"V_TRIG_PREOP_F64", trig_preop},
      {"V_WMMA_F32_16X16X16_F16", wmma<false>},
      {"V_WMMA_F32_16X16X16_BF16", wmma<true>},
  };
  return *table;
}

}  // namespace

ByHand hand_written(const char* name) {
  const auto at = all().find(name);
  return at == all().end() ? nullptr : at->second;
}

}  // namespace machine_code
