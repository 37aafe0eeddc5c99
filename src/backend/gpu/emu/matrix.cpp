#include "backend/gpu/emu/matrix.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "backend/gpu/emu/checker.h"
#include "base/dtype.h"

namespace hearth::emu {
namespace {

/// Operand registers of a warp's lanes. Each lane has `words` words of the left operand, followed by the
/// words of the right operand.
struct Registers {
  const std::byte* slots;
  int words;

  uint32_t word(int lane, int index) const {
    uint32_t value;
    std::memcpy(&value, slots + static_cast<size_t>(lane) * kSlotBytes + static_cast<size_t>(index) * 4, 4);
    return value;
  }
  /// Returns the 16-bit number at `index` in the lane's left or right operand.
  float number(Numbers numbers, int lane, bool right, int index) const {
    const uint32_t pair = word(lane, (right ? words : 0) + index / 2);
    const auto bits = static_cast<uint16_t>(index % 2 == 0 ? pair : pair >> 16);
    return numbers.are_f16 ? to_f32(f16{bits}) : to_f32(bf16{bits});
  }
};

Registers give(const uint32_t* a, int num_a, const uint32_t* b, int num_b, Site site) {
  uint32_t words[16];
  std::memcpy(words, a, static_cast<size_t>(num_a) * 4);
  std::memcpy(words + num_a, b, static_cast<size_t>(num_b) * 4);
  return {post(words, static_cast<size_t>(num_a + num_b) * 4, site), num_a};
}

void expect_same_halves(const Registers& held) {
  for (int index = 0; index < 2 * held.words; ++index) {
    const int from = lane() % 16;
    if (held.word(from, index) == held.word(from + 16, index)) continue;
    // A std::string would leak, because no destructor runs on this stack after the fault.
    char text[128];
    std::snprintf(
        text, sizeof text,
        "wrong fragment row: lanes %d and %d hold different lines of the %s side, v_wmma takes both", from,
        from + 16, index < held.words ? "left" : "right");
    fail(text);
  }
}

}  // namespace

LaneRegister show(uint32_t value, Site site) { return {post(&value, sizeof value, site)}; }
uint32_t row_share(LaneRegister shown, int from) {
  return Registers{shown.slots, 1}.word(lane() / 16 * 16 + from, 0);
}

float dot2(uint32_t a, uint32_t b, float c) {
  const auto low = [](uint32_t pair) { return to_f32(f16{static_cast<uint16_t>(pair)}); };
  return c + low(a) * low(b) + low(a >> 16) * low(b >> 16);
}

template <>
void wmma<11>(Numbers numbers, float* c, const uint32_t* a, const uint32_t* b, Site site) {
  const Registers held = give(a, 8, b, 8, site);
  expect_same_halves(held);
  for (int e = 0; e < 8; ++e) {
    const int row = 2 * e + lane() / 16;
    for (int t = 0; t < 16; ++t)
      c[e] += held.number(numbers, row, false, t) * held.number(numbers, lane() % 16, true, t);
  }
}

template <>
void wmma<12>(Numbers numbers, float* c, const uint32_t* a, const uint32_t* b, Site site) {
  const Registers held = give(a, 4, b, 4, site);
  for (int e = 0; e < 8; ++e) {
    const int row = e + 8 * (lane() / 16);
    for (int t = 0; t < 16; ++t) {
      const int half = 16 * (t / 8);
      c[e] += held.number(numbers, half + row, false, t % 8) *
              held.number(numbers, half + lane() % 16, true, t % 8);
    }
  }
}

void mma_m16n8k16(Numbers numbers, float* c, const uint32_t* a, uint32_t b0, uint32_t b1, Site site) {
  const uint32_t b[2] = {b0, b1};
  const Registers held = give(a, 4, b, 2, site);
  for (int e = 0; e < 4; ++e) {
    const int row = lane() / 4 + 8 * (e / 2), column = lane() % 4 * 2 + e % 2;
    for (int t = 0; t < 16; ++t) {
      // Layout of a, for group g = lane / 4: word 0 has row g, word 1 row g + 8, both for terms 0 to 7; words
      // 2 and 3 have the same rows for terms 8 to 15. Term t of b is in word t / 8.
      const int a_lane = row % 8 * 4 + t % 8 / 2, a_word = row / 8 + t / 8 * 2;
      const int b_lane = column * 4 + t % 8 / 2;
      c[e] += held.number(numbers, a_lane, false, 2 * a_word + t % 2) *
              held.number(numbers, b_lane, true, 2 * (t / 8) + t % 2);
    }
  }
}

bool expect_one_tile(int tile) noexcept {
  static const int first = tile;
  if (tile == first) return true;
  std::fprintf(stderr, "kernels of RT_TILE %d and %d are in one program; compile all with the same\n", first,
               tile);
  std::abort();
}

}  // namespace hearth::emu
