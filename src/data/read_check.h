#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"

namespace hearth::data {

/// Result of reading every item of a set once.
struct ReadCheck {
  std::vector<int64_t> readable;  ///< indices of the readable items, ascending
  /// Error of each unreadable item as "FILE: reason", in the order of their indices.
  std::vector<std::string> faults;
};

/// Calls read(index) for each of `count` items on `num_threads` threads. If read() throws a UserError, the
/// item is unreadable.
ReadCheck check_reading(int64_t count, int num_threads, FunctionRef<void(int64_t)> read);

/// Describes the items that data.bad_records=skip skips: their number and the first errors. `what`: plural of
/// the items, such as "images". Empty if all are readable; throws a UserError if none is.
std::string describe_skipped(const ReadCheck& check, std::string_view what);

}  // namespace hearth::data
