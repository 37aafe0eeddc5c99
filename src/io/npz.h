#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"
#include "base/shape.h"
#include "io/zip.h"

namespace hearth::io {

/// What the head of an array says: numbers in row-major order, little-endian.
struct NpyHead {
  DType dtype = DType::f32;
  Shape shape;
  int64_t num_bytes() const { return shape.num_elements() * dtype_bytes(dtype); }
};

/// A memory-mapped .npz file, as numpy.savez and savez_compressed write them: a zip archive of .npy files
/// (NEP 1, versions 1 to 3), stored or deflated. No pickle is executed: arrays of Python objects are refused,
/// and so are arrays in column-major order.
class NpzFile {
 public:
  /// Reads the directory alone. UserError naming the path where there is none that can be meant.
  explicit NpzFile(const fs::path& path);

  /// Of the arrays, in the order of the directory.
  std::vector<std::string> names() const;
  bool has(std::string_view name) const;
  /// Reads the start of the array. UserError where there is none of that name, or none that can be read.
  NpyHead head(std::string_view name) const;
  /// The array's bytes, with a good checksum. UserError where it takes more than `limit_bytes`, or is
  /// damaged.
  std::vector<std::byte> read(std::string_view name, int64_t limit_bytes) const;
  /// The same as floats. UserError where it takes more than 8 bytes for each of `out`, or is of another
  /// shape.
  void read_floats(std::string_view name, const Shape& shape, std::span<float> out) const;

 private:
  void read_directory();
  const ZipMember& member(std::string_view name) const;
  std::string where(const ZipMember& member) const;
  struct Start;
  Start start_of(const ZipMember& member) const;

  std::string path_;
  MappedFile file_;
  std::vector<ZipMember> members_;  ///< names without .npy
};

}  // namespace hearth::io
