#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/function_ref.h"

namespace hearth::text {

/// Some strings, and which of them a text starts with.
class StringSet {
 public:
  struct Found {
    size_t index;
    size_t bytes;
  };
  /// `index` is what add was given; of equal strings the first counts.
  void add(std::string_view text, size_t index);
  void finish();
  bool empty() const { return texts_.empty(); }
  /// Calls found(index, bytes) for each string that `text`, which is not empty, starts with, the shortest
  /// first.
  void for_each_prefix(std::string_view text, FunctionRef<void(size_t index, size_t bytes)> found) const;
  /// The longest of them among those that `allowed` accepts.
  std::optional<Found> longest_prefix(std::string_view text, FunctionRef<bool(size_t index)> allowed) const;
  bool may_start(char byte) const {
    return begin_[static_cast<uint8_t>(byte)] < begin_[static_cast<uint8_t>(byte) + 1U];
  }

 private:
  std::vector<std::pair<std::string, size_t>> texts_;
  /// Where the strings with each first byte begin.
  std::array<size_t, 257> begin_{};
};

}  // namespace hearth::text
