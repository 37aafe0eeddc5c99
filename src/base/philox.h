#pragma once

#include <array>
#include <cstdint>

#if defined(__CUDACC__) || defined(__HIPCC__)
#define HEARTH_PHILOX __host__ __device__
#else
#define HEARTH_PHILOX
#endif

namespace hearth {

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), a counter-based
/// random number generator that also runs on GPUs. Replaces a counter of four words by four random words.
HEARTH_PHILOX inline void philox4x32_in_place(uint64_t key, uint32_t* words) {
  auto key0 = static_cast<uint32_t>(key);
  auto key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * words[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * words[2];
    words[0] = static_cast<uint32_t>(product1 >> 32) ^ words[1] ^ key0;
    words[1] = static_cast<uint32_t>(product1);
    words[2] = static_cast<uint32_t>(product0 >> 32) ^ words[3] ^ key1;
    words[3] = static_cast<uint32_t>(product0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

/// Returns four random words for a 64-bit key and a 128-bit counter.
inline std::array<uint32_t, 4> philox4x32(uint64_t key, std::array<uint32_t, 4> counter) {
  philox4x32_in_place(key, counter.data());
  return counter;
}

/// Maps a random word to [0, 1), with 24 bits of precision.
inline float unit_float(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24F; }

/// A sequence of random numbers, which depends only on the triple (key, stream, index): for example one per
/// sample or per tensor.
class PhiloxSequence {
 public:
  PhiloxSequence(uint64_t key, uint64_t index, uint32_t stream = 0)
      : key_(key), counter_{0, static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), stream} {}

  /// Returns the next random word.
  uint32_t next();
  float uniform() { return unit_float(next()); }
  float uniform(float low, float high) { return low + (high - low) * uniform(); }
  /// Returns a uniform integer in [0, bound); the bias is at most 2^-32.
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>((uint64_t{next()} * bound) >> 32); }
  /// Returns a standard normal number (Box-Muller).
  float normal();

 private:
  uint64_t key_;
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 4> words_{};
  int used_ = 4;
};

/// Returns element `index` of a random permutation of [0, count) without storing the permutation: a Feistel
/// network with cycle walking, keyed by `key`. Equal arguments give equal results.
uint64_t permuted_index(uint64_t key, uint64_t count, uint64_t index);

}  // namespace hearth
