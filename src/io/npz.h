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

/// Header of an array: dtype and shape. The data are in row-major order, little-endian.
struct NpyHead {
  DType dtype = DType::f32;
  Shape shape;
  int64_t num_bytes() const { return shape.num_elements() * dtype_bytes(dtype); }
};

/// A memory-mapped .npz file, as written by numpy.savez and savez_compressed: a zip archive of .npy files
/// (NEP 1, format versions 1 to 3), uncompressed or deflated. No pickle is executed: arrays of Python objects
/// are rejected. Arrays in column-major order are rejected too.
class NpzFile {
 public:
  /// Opens a file and reads only the directory of the zip archive. Throws a UserError naming the path if the
  /// file is damaged or not a zip archive.
  explicit NpzFile(const fs::path& path);

  /// Returns the names of the arrays in the order of the directory.
  std::vector<std::string> names() const;
  bool has(std::string_view name) const;
  /// Reads the header of an array. Throws a UserError if there is no array of that name or it is not
  /// readable.
  NpyHead head(std::string_view name) const;
  /// Returns the bytes of an array after verifying its checksum. Throws a UserError if it has more than
  /// `limit_bytes` or is damaged.
  std::vector<std::byte> read(std::string_view name, int64_t limit_bytes) const;
  /// Reads an array of any numeric dtype as floats. Throws a UserError if its shape differs from `shape` or
  /// it is damaged.
  void read_floats(std::string_view name, const Shape& shape, std::span<float> out) const;

 private:
  void read_directory();
  const ZipMember& member(std::string_view name) const;
  std::string where(const ZipMember& member) const;
  struct Start;
  Start start_of(const ZipMember& member) const;

  std::string path_;
  MappedFile file_;
  std::vector<ZipMember> members_;  ///< names without the suffix .npy
};

}  // namespace hearth::io
