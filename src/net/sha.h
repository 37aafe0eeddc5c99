#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace hearth::net {

/// Incremental SHA-1 (FIPS 180-4), which git uses as the name of a blob.
class Sha1 {
 public:
  void update(std::span<const std::byte> bytes);
  /// Returns the hash as 40 lower-case hexadecimal digits. Call once, after the last update().
  std::string hex();

 private:
  void add_block(const std::byte* block);

  std::array<uint32_t, 5> state_ = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
  std::array<std::byte, 64> buffer_ = {};
  uint64_t num_bytes_ = 0;
};

/// Incremental SHA-256 (FIPS 180-4).
class Sha256 {
 public:
  void update(std::span<const std::byte> bytes);
  /// Returns the hash as 64 lower-case hexadecimal digits. Call once, after the last update().
  std::string hex();

 private:
  void add_block(const std::byte* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> buffer_ = {};
  uint64_t num_bytes_ = 0;
};

}  // namespace hearth::net
