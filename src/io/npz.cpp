#include "io/npz.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/text.h"

namespace hearth::io {
namespace {

// DEFLATE cannot do better (zlib's technical notes): a directory that promises more is lying.
constexpr int64_t kMostDeflated = 1032;
constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr int64_t kMostHeadBytes = 10'000;
constexpr size_t kEndBytes = 22, kDirectoryBytes = 46, kLocalBytes = 30;
constexpr uint32_t kEndMark = 0x06054b50, kDirectoryMark = 0x02014b50, kLocalMark = 0x04034b50;

template <typename Number>
Number little(std::span<const std::byte> bytes, size_t at) {
  Number value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// Where the record at the end of a zip archive starts, behind which is nothing but its comment.
std::optional<size_t> find_end(std::span<const std::byte> bytes) {
  constexpr size_t kMostComment = 0xFFFF;
  if (bytes.size() < kEndBytes) return std::nullopt;
  const size_t last = bytes.size() - kEndBytes;
  for (size_t comment = 0; comment <= std::min(last, kMostComment); ++comment) {
    const size_t at = last - comment;
    if (little<uint32_t>(bytes, at) == kEndMark && little<uint16_t>(bytes, at + 20) == comment) return at;
  }
  return std::nullopt;
}

/// Inflates a raw stream until `out` is full or the stream ends; the number of bytes, or -1 for a damaged
/// one.
int64_t inflate_start(std::span<const std::byte> packed, std::span<std::byte> out) {
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) internal_error("zlib does not start");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int code = inflate(&stream, Z_SYNC_FLUSH);
  const int64_t done = std::ssize(out) - stream.avail_out;
  inflateEnd(&stream);
  return code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR ? done : -1;
}

/// Reads the head of an array, a literal of a Python dictionary: {'descr': '<f4', 'fortran_order': False,
/// 'shape': (16, 64), }.
class HeadReader {
 public:
  HeadReader(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  NpyHead read() {
    std::optional<DType> dtype;
    std::optional<Shape> shape;
    std::optional<bool> is_fortran;
    expect('{');
    while (!take('}')) {
      const std::string_view key = read_text();
      expect(':');
      if (key == "descr") {
        dtype = read_dtype();
      } else if (key == "fortran_order") {
        is_fortran = read_flag();
      } else if (key == "shape") {
        shape = read_shape();
      } else {
        refuse();
      }
      if (!take(',') && peek() != '}') refuse();
    }
    if (!dtype || !shape || !is_fortran || peek() != '\0') refuse();
    if (*is_fortran && shape->rank() > 1)
      user_error("{}: expected an array in row-major (C) order, got one in Fortran's; save a copy of it",
                 where_);
    return {.dtype = *dtype, .shape = *shape};
  }

 private:
  [[noreturn]] void refuse() const {
    user_error("{}: expected the head of an array of NumPy, but it breaks at byte {} of {}", where_, at_ + 1,
               text_.size());
  }
  char peek() {
    at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size());
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) refuse();
  }

  std::string_view read_text() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') refuse();
    const size_t end = text_.find(quote, at_ + 1);
    if (end == text_.npos) refuse();
    const std::string_view text = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return text;
  }
  bool read_flag() {
    peek();
    for (const std::string_view word : {"True", "False"}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return word == "True";
    }
    refuse();
  }
  Shape read_shape() {
    std::vector<int64_t> axes;
    expect('(');
    while (!take(')')) {
      peek();
      const auto [end, fault] =
          std::from_chars(text_.data() + at_, text_.data() + text_.size(), axes.emplace_back());
      if (fault != std::errc() || axes.back() < 0 || axes.size() > Shape::kMaxRank) refuse();
      at_ = static_cast<size_t>(end - text_.data());
      if (!take(',') && peek() != ')') refuse();
    }
    try {
      return Shape(axes);
    } catch (const UserError& error) {
      user_error("{}: {}", where_, error.what());
    }
  }
  DType read_dtype() {
    struct Known {
      std::string_view name;
      DType dtype;
    };
    constexpr std::array<Known, 10> kKnown{{{"<f8", DType::f64},
                                            {"<f4", DType::f32},
                                            {"<f2", DType::f16},
                                            {"<i8", DType::i64},
                                            {"<i4", DType::i32},
                                            {"<i2", DType::i16},
                                            {"|i1", DType::i8},
                                            {"|u1", DType::u8},
                                            {"|b1", DType::boolean},
                                            {"<b1", DType::boolean}}};
    const char first = peek();
    if (first == '[') user_error("{}: expected an array of numbers, got one of records", where_);
    const std::string_view name = read_text();
    for (const Known& known : kKnown) {
      if (name == known.name) return known.dtype;
    }
    if (name == "|O") user_error("{}: expected an array of numbers, got one of Python objects", where_);
    user_error("{}: expected little-endian floats, signed integers, bytes or booleans, got the dtype '{}'",
               where_, shortened(name, 40));
  }

  std::string_view text_;
  std::string_view where_;
  size_t at_ = 0;
};

}  // namespace

/// Where an array's numbers begin, in what its member inflates to.
struct NpzFile::Start {
  NpyHead head;
  int64_t data = 0;
};

NpzFile::NpzFile(const fs::path& path) : path_(path.string()), file_(path) { read_directory(); }

void NpzFile::read_directory() {
  const std::span<const std::byte> bytes = file_.bytes();
  const auto end = find_end(bytes);
  if (!end)
    user_error("{}: expected an .npz file of NumPy, but it is none, or its end is missing; copy it again",
               path_);
  const uint16_t count = little<uint16_t>(bytes, *end + 10);
  const uint32_t size = little<uint32_t>(bytes, *end + 12), offset = little<uint32_t>(bytes, *end + 16);
  if (count == 0xFFFF || size == 0xFFFFFFFF || offset == 0xFFFFFFFF)
    user_error("{}: expected an .npz file below 4 GiB and 65,535 arrays", path_);
  if (size_t{offset} + size > *end)
    user_error("{}: expected a whole .npz file, but its directory lies outside; copy it again", path_);
  const std::span<const std::byte> directory = bytes.subspan(offset, size);
  for (size_t i = 0, at = 0; i < count; ++i) {
    Member member = read_member(directory, at);
    if (!member.name.ends_with(".npy")) continue;
    member.name.resize(member.name.size() - 4);
    if (has(member.name))
      user_error("{}: expected one array of each name, got two '{}'", path_, shortened(member.name, 60));
    members_.push_back(std::move(member));
  }
}

NpzFile::Member NpzFile::read_member(std::span<const std::byte> directory, size_t& at) const {
  const std::span<const std::byte> bytes = file_.bytes();
  const auto damaged = [&](const char* what) { user_error("{}: expected {}; copy it again", path_, what); };
  const auto entry = directory.subspan(std::min(at, directory.size()));
  if (entry.size() < kDirectoryBytes || little<uint32_t>(entry, 0) != kDirectoryMark)
    damaged("as many arrays as the file's end says");
  const size_t name_bytes = little<uint16_t>(entry, 28);
  const size_t entry_bytes =
      kDirectoryBytes + name_bytes + little<uint16_t>(entry, 30) + little<uint16_t>(entry, 32);
  if (entry_bytes > entry.size()) damaged("a directory whose entries lie inside");
  at += entry_bytes;
  Member member{.name = {reinterpret_cast<const char*>(entry.data()) + kDirectoryBytes, name_bytes},
                .is_deflated = little<uint16_t>(entry, 10) == Z_DEFLATED,
                .crc = little<uint32_t>(entry, 16),
                .size = little<uint32_t>(entry, 24)};
  const auto method = little<uint16_t>(entry, 10);
  if ((method != 0 && method != Z_DEFLATED) || (little<uint16_t>(entry, 8) & 1) != 0)
    user_error("{}: expected arrays that are stored or deflated, and not encrypted", path_);
  const size_t packed = little<uint32_t>(entry, 20), local = little<uint32_t>(entry, 42);
  if (local > bytes.size() || bytes.size() - local < kLocalBytes ||
      little<uint32_t>(bytes, local) != kLocalMark)
    damaged("arrays where the directory says");
  const size_t data =
      local + kLocalBytes + little<uint16_t>(bytes, local + 26) + little<uint16_t>(bytes, local + 28);
  if (data > bytes.size() || bytes.size() - data < packed) damaged("arrays that lie in the file");
  member.packed = bytes.subspan(data, packed);
  const bool is_possible = member.is_deflated ? member.size / kMostDeflated <= std::ssize(member.packed)
                                              : member.size == std::ssize(member.packed);
  if (!is_possible) damaged("arrays of the size that the directory says");
  return member;
}

std::vector<std::string> NpzFile::names() const {
  std::vector<std::string> names;
  for (const Member& member : members_) names.push_back(member.name);
  return names;
}

bool NpzFile::has(std::string_view name) const {
  return std::ranges::any_of(members_, [&](const Member& member) { return member.name == name; });
}

const NpzFile::Member& NpzFile::member(std::string_view name) const {
  const auto found = std::ranges::find(members_, name, &Member::name);
  if (found == members_.end()) user_error("{}: expected an array '{}', found none", path_, name);
  return *found;
}

std::string NpzFile::where(const Member& member) const {
  return fmt::format("{}: the array '{}'", path_, shortened(member.name, 60));
}

NpzFile::Start NpzFile::start_of(const Member& member) const {
  std::array<std::byte, kMostHeadBytes> start{};
  const auto head = std::span(start).first(static_cast<size_t>(std::min(member.size, kMostHeadBytes)));
  int64_t known = std::ssize(head);
  if (member.is_deflated) {
    known = inflate_start(member.packed, head);
  } else {
    std::copy_n(member.packed.begin(), head.size(), head.begin());
  }
  const std::string_view text(reinterpret_cast<const char*>(start.data()),
                              static_cast<size_t>(std::max<int64_t>(known, 0)));
  // Version 1 has 2 bytes for the length of the text, later ones 4.
  const bool is_first = text.size() > 6 && text[6] == 1;
  const size_t prefix = is_first ? 10 : 12;
  if (text.size() < prefix || !text.starts_with(kNpyMagic) || text[6] < 1 || text[6] > 3)
    user_error("{}: expected an array of NumPy of version 1 to 3", where(member));
  const size_t length = is_first ? little<uint16_t>(start, 8) : little<uint32_t>(start, 8);
  if (length > text.size() - prefix)
    user_error("{}: expected a head of at most {} bytes, got {}", where(member), text.size() - prefix,
               length);
  Start found{.head = HeadReader(text.substr(prefix, length), where(member)).read(),
              .data = static_cast<int64_t>(prefix + length)};
  if (found.data + found.head.num_bytes() != member.size)
    user_error("{}: expected {} bytes for {} of {}, got {}", where(member), found.head.num_bytes(),
               to_string(found.head.shape), dtype_name(found.head.dtype), member.size - found.data);
  return found;
}

NpyHead NpzFile::head(std::string_view name) const { return start_of(member(name)).head; }

std::vector<std::byte> NpzFile::read(std::string_view name, int64_t limit_bytes) const {
  const Member& found = member(name);
  const Start start = start_of(found);
  if (start.head.num_bytes() > limit_bytes)
    user_error("{}: expected at most {}, got {}", where(found), human_bytes(limit_bytes),
               human_bytes(start.head.num_bytes()));
  std::vector<std::byte> bytes(static_cast<size_t>(found.size));
  if (!found.is_deflated) std::copy(found.packed.begin(), found.packed.end(), bytes.begin());
  const bool is_whole = !found.is_deflated || inflate_start(found.packed, bytes) == found.size;
  const uLong crc = crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  if (!is_whole || crc != found.crc)
    user_error("{}: expected it whole, but it is damaged; copy the file again", where(found));
  bytes.erase(bytes.begin(), bytes.begin() + start.data);
  return bytes;
}

void NpzFile::read_floats(std::string_view name, const Shape& shape, std::span<float> out) const {
  const NpyHead found = head(name);
  if (found.shape != shape)
    user_error("{}: expected the shape {}, got {}", where(member(name)), to_string(shape),
               to_string(found.shape));
  HEARTH_CHECK(std::ssize(out) == shape.num_elements());
  const std::vector<std::byte> bytes = read(name, std::ssize(out) * 8);
  if (found.dtype == DType::f32) {
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return;
  }
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(load_element(found.dtype, bytes.data(), static_cast<int64_t>(i)));
}

}  // namespace hearth::io
