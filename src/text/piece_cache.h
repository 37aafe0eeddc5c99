#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/hash.h"

namespace hearth::text {

/// Cache from short pieces of text to their token ids. Direct-mapped, 2 MiB: a new piece replaces the one in
/// its slot.
class PieceCache {
 public:
  /// True if a piece is short enough to be cached.
  static bool fits(std::string_view piece) { return !piece.empty() && piece.size() <= kMaxBytes; }

  /// Appends the ids of a piece for which fits() is true. Returns false if the piece is not cached.
  bool append(std::string_view piece, std::vector<int32_t>& ids) {
    const Entry& entry = entry_of(piece);
    if (std::string_view(entry.text.data(), entry.num_bytes) != piece) return false;
    ids.insert(ids.end(), entry.ids.begin(), entry.ids.begin() + entry.num_ids);
    return true;
  }
  /// Caches a piece for which fits() is true, unless it has more than kMaxIds ids.
  void store(std::string_view piece, std::span<const int32_t> ids) {
    if (ids.size() > kMaxIds) return;
    Entry& entry = entry_of(piece);
    entry.num_bytes = static_cast<uint8_t>(piece.size());
    entry.num_ids = static_cast<uint8_t>(ids.size());
    std::memcpy(entry.text.data(), piece.data(), piece.size());
    std::copy(ids.begin(), ids.end(), entry.ids.begin());
  }

 private:
  static constexpr size_t kMaxBytes = 30;
  static constexpr size_t kMaxIds = 8;
  static constexpr size_t kNumEntries = 1 << 15;
  struct Entry {
    std::array<int32_t, kMaxIds> ids{};
    uint8_t num_bytes = 0;
    uint8_t num_ids = 0;
    std::array<char, kMaxBytes> text{};
  };
  static_assert(sizeof(Entry) == 64);

  Entry& entry_of(std::string_view piece) { return entries_[hash64(piece) % kNumEntries]; }

  std::vector<Entry> entries_ = std::vector<Entry>(kNumEntries);
};

}  // namespace hearth::text
