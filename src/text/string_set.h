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

/// A set of strings that finds which of its members a text starts with.
class StringSet {
 public:
  /// A member that a text starts with: its index passed to add(), and its size in bytes.
  struct Found {
    size_t index;
    size_t bytes;
  };
  /// Adds a string. `index` is reported when it is found. If a string is added twice, the first index is
  /// kept. Call finish() after the last add() and before searching.
  void add(std::string_view text, size_t index);
  void finish();
  bool empty() const { return texts_.empty(); }
  /// Calls found(index, bytes) for each member that `text` starts with, shortest first. `text` must be
  /// nonempty.
  void for_each_prefix(std::string_view text, FunctionRef<void(size_t index, size_t bytes)> found) const;
  /// Returns the longest member that `text` starts with and for which allowed(index) is true.
  std::optional<Found> longest_prefix(std::string_view text, FunctionRef<bool(size_t index)> allowed) const;
  /// True if a member starts with `byte`.
  bool may_start(char byte) const {
    return begin_[static_cast<uint8_t>(byte)] < begin_[static_cast<uint8_t>(byte) + 1U];
  }

 private:
  std::vector<std::pair<std::string, size_t>> texts_;
  /// Index in texts_ of the first string that starts with each byte; the last entry is the number of strings.
  std::array<size_t, 257> begin_{};
};

}  // namespace hearth::text
