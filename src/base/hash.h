#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace hearth {

/// Returns XXH3 of the bytes (xxhash library): fast, not cryptographic; for manifests and cache keys.
uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed = 0);
uint64_t hash64(std::string_view text, uint64_t seed = 0);
/// Formats a hash as 16 lower-case hexadecimal digits.
std::string hex64(uint64_t value);

/// Incremental XXH3: digest() equals hash64 of the concatenated pieces.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void update(std::span<const std::byte> bytes);
  uint64_t digest() const;

 private:
  void* state_;
};

}  // namespace hearth
