#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace hearth::data {

/// An IDX header (yann.lecun.com/exdb/mnist): element type u8 and the axis lengths. UserError when the bytes
/// do not hold what it promises.
struct IdxArray {
  std::vector<int64_t> axes;
  std::span<const std::byte> data;
};
IdxArray parse_idx(std::span<const std::byte> bytes, std::string_view name);

/// Inflates a .gz of an IDX file. Allocates what the header promises, once it is known that the file can hold
/// it; UserError for damage.
std::vector<std::byte> inflate_idx(std::span<const std::byte> bytes, std::string_view name);

}  // namespace hearth::data
