#pragma once

#include <cstdint>
#include <vector>

namespace hearth::text {

/// A merge rule: adjacent tokens `left` and `right` become `merged`. Merges with a lower rank apply first.
struct Merge {
  int32_t left = 0;
  int32_t right = 0;
  int32_t rank = 0;
  int32_t merged = 0;
};

/// Hash table from pairs of token ids to merges, with open addressing, at most half full. If a pair occurs
/// twice, the later merge is kept.
class MergeTable {
 public:
  explicit MergeTable(const std::vector<Merge>& merges);
  /// Returns the merge of a pair; null if the pair does not merge.
  const Merge* find(int32_t left, int32_t right) const {
    for (size_t slot = first_slot(left, right);; slot = (slot + 1) & mask_) {
      const Merge& entry = slots_[slot];
      if (entry.left == left && entry.right == right) return &entry;
      if (entry.left < 0) return nullptr;
    }
  }

 private:
  size_t first_slot(int32_t left, int32_t right) const {
    const uint64_t pair = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
    return static_cast<size_t>((pair * 0x9E3779B97F4A7C15U) >> 32) & mask_;
  }

  std::vector<Merge> slots_;
  size_t mask_;
};

}  // namespace hearth::text
