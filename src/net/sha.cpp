#include "net/sha.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace hearth::net {
namespace {

constexpr size_t kBlockBytes = 64;

/// Fractional bits of the cube roots of the first 64 primes (FIPS 180-4, section 4.2.2).
constexpr std::array<uint32_t, 64> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t big_endian(const std::byte* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, 4);
  return __builtin_bswap32(value);
}

/// Passes complete blocks to `add` and keeps the rest in `buffer`.
template <typename Add>
void split(std::span<const std::byte> bytes, std::array<std::byte, kBlockBytes>& buffer, uint64_t& num_bytes,
           Add add) {
  size_t used = num_bytes % kBlockBytes;
  num_bytes += bytes.size();
  while (!bytes.empty()) {
    if (used == 0 && bytes.size() >= kBlockBytes) {
      add(bytes.data());
      bytes = bytes.subspan(kBlockBytes);
      continue;
    }
    const size_t num = std::min(bytes.size(), kBlockBytes - used);
    std::memcpy(&buffer[used], bytes.data(), num);
    bytes = bytes.subspan(num);
    used = (used + num) % kBlockBytes;
    if (used == 0) add(buffer.data());
  }
}

/// Appends the padding, which ends with the number of bits, and formats the state.
template <typename Hash, typename State>
std::string finish(Hash& hash, const State& state, uint64_t num_bytes) {
  std::array<std::byte, kBlockBytes + 8> padding = {std::byte{0x80}};
  const size_t num_zeros = (kBlockBytes * 2 - 9 - num_bytes % kBlockBytes) % kBlockBytes;
  const uint64_t num_bits = __builtin_bswap64(num_bytes * 8);
  std::memcpy(&padding[1 + num_zeros], &num_bits, 8);
  hash.update(std::span(padding).first(num_zeros + 9));
  std::string text;
  for (const uint32_t word : state) text += fmt::format("{:08x}", word);
  return text;
}

}  // namespace

void Sha1::add_block(const std::byte* block) {
  std::array<uint32_t, 80> w;
  for (size_t i = 0; i < 16; ++i) w[i] = big_endian(block + 4 * i);
  for (size_t i = 16; i < 80; ++i) w[i] = std::rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
  auto [a, b, c, d, e] = state_;
  constexpr std::array<uint32_t, 4> kConstants = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
  for (size_t i = 0; i < 80; ++i) {
    const uint32_t f = i < 20              ? (b & c) | (~b & d)
                       : i >= 40 && i < 60 ? (b & c) | (b & d) | (c & d)
                                           : b ^ c ^ d;
    const uint32_t next = std::rotl(a, 5) + f + e + kConstants[i / 20] + w[i];
    e = d, d = c, c = std::rotl(b, 30), b = a, a = next;
  }
  const std::array<uint32_t, 5> sums = {a, b, c, d, e};
  for (size_t i = 0; i < 5; ++i) state_[i] += sums[i];
}

void Sha1::update(std::span<const std::byte> bytes) {
  split(bytes, buffer_, num_bytes_, [this](const std::byte* block) { add_block(block); });
}

std::string Sha1::hex() { return finish(*this, state_, num_bytes_); }

void Sha256::add_block(const std::byte* block) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) w[i] = big_endian(block + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRounds[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<uint32_t, 8> sums = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += sums[i];
}

void Sha256::update(std::span<const std::byte> bytes) {
  split(bytes, buffer_, num_bytes_, [this](const std::byte* block) { add_block(block); });
}

std::string Sha256::hex() { return finish(*this, state_, num_bytes_); }

}  // namespace hearth::net
