#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace hearth::data {

/// Contents of an IDX file (yann.lecun.com/exdb/mnist): u8 elements and axis lengths.
struct IdxArray {
  std::vector<int64_t> axes;
  std::span<const std::byte> data;
};
/// Parses an IDX file. Throws a UserError with `name` if the element type is not u8 or the data is shorter
/// than the header says. `data` points into `bytes`.
IdxArray parse_idx(std::span<const std::byte> bytes, std::string_view name);

/// Decompresses a gzipped IDX file. Before allocating memory, checks that the file is large enough for the
/// size in its header. Throws a UserError for damaged data.
std::vector<std::byte> inflate_idx(std::span<const std::byte> bytes, std::string_view name);

}  // namespace hearth::data
