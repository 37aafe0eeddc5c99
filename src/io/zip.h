#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::io {

/// A file inside a zip archive.
struct ZipMember {
  std::string name;
  bool is_deflated = false;
  uint32_t crc = 0;  ///< CRC-32 of the uncompressed bytes
  /// Size in bytes after decompression; equal to packed.size() if the member is stored uncompressed.
  int64_t size = 0;
  std::span<const std::byte> packed;
};

/// Words for error messages: `file`, the expected file type ("an .npz file of NumPy"), and `members`, the
/// kind of its members ("arrays").
struct ZipWords {
  std::string_view file, members;
};

/// Reads the central directory of a zip archive (PKWARE's APPNOTE, including zip64) without decompressing.
/// `packed` of each member points into `bytes`. Throws a UserError starting with `where` for damage,
/// encryption, a compression method other than DEFLATE, and sizes that DEFLATE cannot reach.
std::vector<ZipMember> read_zip_directory(std::span<const std::byte> bytes, std::string_view where,
                                          const ZipWords& words);

/// Decompresses the start of a member into `out`, which has at most member.size bytes. Returns the number of
/// bytes written, or -1 if the stream is damaged.
int64_t unpack_start(const ZipMember& member, std::span<std::byte> out);
/// Decompresses a member into `out`, which has member.size bytes. Returns false if length or checksum is
/// wrong.
bool unpack(const ZipMember& member, std::span<std::byte> out);
/// True if `bytes` start with the signature of a zip archive.
bool is_zip(std::span<const std::byte> bytes);

}  // namespace hearth::io
