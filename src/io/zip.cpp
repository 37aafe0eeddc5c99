#include "io/zip.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"

namespace hearth::io {
namespace {

// Max compression ratio of DEFLATE (zlib's technical notes).
constexpr uint64_t kMaxDeflateRatio = 1032;
constexpr size_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20, kDirectoryBytes = 46, kLocalBytes = 30;
constexpr uint32_t kEndMark = 0x06054b50, kEnd64Mark = 0x06064b50, kLocatorMark = 0x07064b50;
constexpr uint32_t kDirectoryMark = 0x02014b50, kLocalMark = 0x04034b50;
constexpr uint16_t kExtra64 = 1;

template <typename Number>
Number number_at(std::span<const std::byte> bytes, size_t at) {
  Number value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// Returns the offset of the end-of-central-directory record.
std::optional<size_t> find_end(std::span<const std::byte> bytes) {
  constexpr size_t kMaxComment = 0xFFFF;
  if (bytes.size() < kEndBytes) return std::nullopt;
  const size_t last = bytes.size() - kEndBytes;
  for (size_t comment = 0; comment <= std::min(last, kMaxComment); ++comment) {
    const size_t at = last - comment;
    if (number_at<uint32_t>(bytes, at) == kEndMark && number_at<uint16_t>(bytes, at + 20) == comment)
      return at;
  }
  return std::nullopt;
}

/// Reader of the central directory of a zip archive.
class DirectoryReader {
 public:
  DirectoryReader(std::span<const std::byte> bytes, std::string_view where, const ZipWords& words)
      : bytes_(bytes), where_(where), words_(words) {}

  std::vector<ZipMember> read() {
    find_directory();
    std::vector<ZipMember> members;
    for (uint64_t i = 0; i < count_; ++i) members.push_back(read_member());
    return members;
  }

 private:
  [[noreturn]] void damaged(std::string_view what) const {
    user_error("{}: the zip archive is damaged: {}; download or copy it again", where_, what);
  }

  void find_directory() {
    const auto end = find_end(bytes_);
    if (!end)
      user_error("{}: this is not {}, or its end is missing; download or copy it again", where_, words_.file);
    uint64_t size = number_at<uint32_t>(bytes_, *end + 12), offset = number_at<uint32_t>(bytes_, *end + 16);
    uint64_t limit = *end;
    count_ = number_at<uint16_t>(bytes_, *end + 10);
    if (count_ == 0xFFFF || size == 0xFFFFFFFF || offset == 0xFFFFFFFF) {
      limit = find_end64(*end);
      count_ = number_at<uint64_t>(bytes_, limit + 32);
      size = number_at<uint64_t>(bytes_, limit + 40);
      offset = number_at<uint64_t>(bytes_, limit + 48);
    }
    if (offset > limit || size > limit - offset) damaged("its directory is outside the file");
    rest_ = bytes_.subspan(offset, size);
  }

  /// Returns the offset of the zip64 end-of-central-directory record.
  uint64_t find_end64(size_t end) const {
    const auto fail = [&] { damaged("its 64-bit directory is missing"); };
    if (end < kLocatorBytes || number_at<uint32_t>(bytes_, end - kLocatorBytes) != kLocatorMark) fail();
    const auto at = number_at<uint64_t>(bytes_, end - kLocatorBytes + 8);
    const uint64_t last = end - kLocatorBytes;
    if (last < kEnd64Bytes || at > last - kEnd64Bytes || number_at<uint32_t>(bytes_, at) != kEnd64Mark)
      fail();
    return at;
  }

  ZipMember read_member() {
    if (rest_.size() < kDirectoryBytes || number_at<uint32_t>(rest_, 0) != kDirectoryMark)
      damaged(fmt::format("its directory lists fewer than {} {}", count_, words_.members));
    const size_t name_bytes = number_at<uint16_t>(rest_, 28), extra_bytes = number_at<uint16_t>(rest_, 30);
    const size_t entry_bytes = kDirectoryBytes + name_bytes + extra_bytes + number_at<uint16_t>(rest_, 32);
    if (entry_bytes > rest_.size()) damaged("an entry of its directory is cut off");
    const auto entry = rest_.first(entry_bytes);
    rest_ = rest_.subspan(entry_bytes);
    const auto method = number_at<uint16_t>(entry, 10);
    if ((method != 0 && method != Z_DEFLATED) || (number_at<uint16_t>(entry, 8) & 1) != 0)
      user_error(
          "{}: its {} are encrypted or compressed by another method than DEFLATE; save them without that",
          where_, words_.members);
    uint64_t size = number_at<uint32_t>(entry, 24), packed = number_at<uint32_t>(entry, 20),
             local = number_at<uint32_t>(entry, 42);
    auto wide = wide_numbers(entry.subspan(kDirectoryBytes + name_bytes, extra_bytes));
    for (uint64_t* number : {&size, &packed, &local}) {
      if (*number != 0xFFFFFFFF || wide.size() < sizeof *number) continue;
      *number = number_at<uint64_t>(wide, 0);
      wide = wide.subspan(sizeof *number);
    }
    ZipMember member{.name = {reinterpret_cast<const char*>(entry.data()) + kDirectoryBytes, name_bytes},
                     .is_deflated = method == Z_DEFLATED,
                     .crc = number_at<uint32_t>(entry, 16)};
    member.packed = packed_bytes(local, packed);
    const bool is_possible = member.is_deflated ? size / kMaxDeflateRatio <= packed : size == packed;
    if (!is_possible) damaged("its directory lists a wrong size");
    member.size = static_cast<int64_t>(size);
    return member;
  }

  /// Returns the zip64 extra field (64-bit sizes and offset) from an entry's extra fields; empty if there is
  /// none.
  static std::span<const std::byte> wide_numbers(std::span<const std::byte> extra) {
    constexpr size_t kHead = 4;
    while (extra.size() >= kHead) {
      const size_t size = number_at<uint16_t>(extra, 2);
      if (size > extra.size() - kHead) break;
      if (number_at<uint16_t>(extra, 0) == kExtra64) return extra.subspan(kHead, size);
      extra = extra.subspan(kHead + size);
    }
    return {};
  }

  std::span<const std::byte> packed_bytes(uint64_t local, uint64_t packed) const {
    if (local > bytes_.size() || bytes_.size() - local < kLocalBytes ||
        number_at<uint32_t>(bytes_, local) != kLocalMark)
      damaged("its directory lists a wrong offset");
    const uint64_t data = local + kLocalBytes + number_at<uint16_t>(bytes_, local + 26) +
                          number_at<uint16_t>(bytes_, local + 28);
    if (data > bytes_.size() || bytes_.size() - data < packed) damaged("a member ends outside the file");
    return bytes_.subspan(data, packed);
  }

  std::span<const std::byte> bytes_, rest_;
  std::string_view where_;
  const ZipWords& words_;
  uint64_t count_ = 0;
};

}  // namespace

std::vector<ZipMember> read_zip_directory(std::span<const std::byte> bytes, std::string_view where,
                                          const ZipWords& words) {
  return DirectoryReader(bytes, where, words).read();
}

int64_t unpack_start(const ZipMember& member, std::span<std::byte> out) {
  if (!member.is_deflated) {
    std::copy_n(member.packed.begin(), out.size(), out.begin());
    return std::ssize(out);
  }
  constexpr size_t kMaxPiece = size_t{1} << 30;
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) internal_error("zlib does not start");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(member.packed.data()));
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  size_t num_read = 0, num_written = 0;
  int code = Z_OK;
  while (code == Z_OK && num_written < out.size()) {
    const size_t in = std::min(kMaxPiece, member.packed.size() - num_read);
    const size_t room = std::min(kMaxPiece, out.size() - num_written);
    stream.avail_in = static_cast<uInt>(in);
    stream.avail_out = static_cast<uInt>(room);
    code = inflate(&stream, Z_SYNC_FLUSH);
    num_read += in - stream.avail_in;
    num_written += room - stream.avail_out;
  }
  inflateEnd(&stream);
  return code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR ? static_cast<int64_t>(num_written) : -1;
}

bool unpack(const ZipMember& member, std::span<std::byte> out) {
  HEARTH_CHECK(std::ssize(out) == member.size);
  return unpack_start(member, out) == member.size &&
         crc32_z(0, reinterpret_cast<const Bytef*>(out.data()), out.size()) == member.crc;
}

bool is_zip(std::span<const std::byte> bytes) {
  return bytes.size() >= sizeof kLocalMark && number_at<uint32_t>(bytes, 0) == kLocalMark;
}

}  // namespace hearth::io
