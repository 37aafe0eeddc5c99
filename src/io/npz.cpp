#include "io/npz.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/text.h"

namespace hearth::io {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr int64_t kMaxHeadBytes = 10'000;
constexpr ZipWords kWords{.file = "an .npz file of NumPy", .members = "arrays"};

template <typename Number>
Number little(std::span<const std::byte> bytes, size_t at) {
  Number value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// Parser of the header of a .npy array, a Python dictionary literal: {'descr': '<f4', 'fortran_order':
/// False, 'shape': (16, 64), }.
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
      user_error("{}: the array is in column-major (Fortran) order; save numpy.ascontiguousarray of it",
                 where_);
    return {.dtype = *dtype, .shape = *shape};
  }

 private:
  [[noreturn]] void refuse() const {
    user_error("{}: the header of the NumPy array is damaged at byte {} of {}; save the array again", where_,
               at_ + 1, text_.size());
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
    constexpr auto kKnown = std::to_array<Known>({{"<f8", DType::f64},
                                                  {"<f4", DType::f32},
                                                  {"<f2", DType::f16},
                                                  {"<i8", DType::i64},
                                                  {"<i4", DType::i32},
                                                  {"<i2", DType::i16},
                                                  {"|i1", DType::i8},
                                                  {"|u1", DType::u8},
                                                  {"|b1", DType::boolean},
                                                  {"<b1", DType::boolean}});
    const char first = peek();
    if (first == '[')
      user_error("{}: the array has records instead of numbers; save one field of it", where_);
    const std::string_view name = read_text();
    for (const Known& known : kKnown) {
      if (name == known.name) return known.dtype;
    }
    if (name == "|O")
      user_error("{}: the array has Python objects instead of numbers; save it with a numeric dtype", where_);
    user_error(
        "{}: the dtype '{}' is not supported; save little-endian floats, signed integers, bytes or booleans",
        where_, shortened(name, 40));
  }

  std::string_view text_;
  std::string_view where_;
  size_t at_ = 0;
};

}  // namespace

/// Header of an array and the offset of its data in the decompressed member.
struct NpzFile::Start {
  NpyHead head;
  int64_t data = 0;
};

NpzFile::NpzFile(const fs::path& path) : path_(path.string()), file_(path) { read_directory(); }

void NpzFile::read_directory() {
  for (ZipMember& member : read_zip_directory(file_.bytes(), path_, kWords)) {
    if (!member.name.ends_with(".npy")) continue;
    member.name.resize(member.name.size() - 4);
    if (has(member.name))
      user_error("{}: it has two arrays named '{}'; save it again with one", path_,
                 shortened(member.name, 60));
    members_.push_back(std::move(member));
  }
}

std::vector<std::string> NpzFile::names() const {
  std::vector<std::string> names;
  for (const ZipMember& member : members_) names.push_back(member.name);
  return names;
}

bool NpzFile::has(std::string_view name) const {
  return std::ranges::any_of(members_, [&](const ZipMember& member) { return member.name == name; });
}

const ZipMember& NpzFile::member(std::string_view name) const {
  const auto found = std::ranges::find(members_, name, &ZipMember::name);
  if (found == members_.end()) user_error("{}: it has no array '{}'; save it under that name", path_, name);
  return *found;
}

std::string NpzFile::where(const ZipMember& member) const {
  return fmt::format("{}: the array '{}'", path_, shortened(member.name, 60));
}

NpzFile::Start NpzFile::start_of(const ZipMember& member) const {
  std::array<std::byte, kMaxHeadBytes> start{};
  const auto head = std::span(start).first(static_cast<size_t>(std::min(member.size, kMaxHeadBytes)));
  const int64_t known = unpack_start(member, head);
  const std::string_view text(reinterpret_cast<const char*>(start.data()),
                              static_cast<size_t>(std::max<int64_t>(known, 0)));
  // Version 1 stores the header length in 2 bytes, later versions in 4.
  const bool is_first = text.size() > 6 && text[6] == 1;
  const size_t prefix = is_first ? 10 : 12;
  if (text.size() < prefix || !text.starts_with(kNpyMagic) || text[6] < 1 || text[6] > 3)
    user_error("{}: this is not a NumPy array of format version 1 to 3; save it by numpy.savez",
               where(member));
  const size_t length = is_first ? little<uint16_t>(start, 8) : little<uint32_t>(start, 8);
  if (length > text.size() - prefix)
    user_error("{}: the array's header has {} bytes, at most {} are possible; copy the file again",
               where(member), length, text.size() - prefix);
  Start found{.head = HeadReader(text.substr(prefix, length), where(member)).read(),
              .data = static_cast<int64_t>(prefix + length)};
  if (found.data + found.head.num_bytes() != member.size)
    user_error("{}: {} of {} needs {} bytes, but the file has {}; copy the file again", where(member),
               to_string(found.head.shape), dtype_name(found.head.dtype), found.head.num_bytes(),
               member.size - found.data);
  return found;
}

NpyHead NpzFile::head(std::string_view name) const { return start_of(member(name)).head; }

std::vector<std::byte> NpzFile::read(std::string_view name, int64_t limit_bytes) const {
  const ZipMember& found = member(name);
  const Start start = start_of(found);
  if (start.head.num_bytes() > limit_bytes)
    user_error("{}: the array has {}, more than {}; save a smaller one", where(found),
               human_bytes(start.head.num_bytes()), human_bytes(limit_bytes));
  std::vector<std::byte> bytes(static_cast<size_t>(found.size));
  if (!unpack(found, bytes)) user_error("{}: the array is damaged; copy the file again", where(found));
  bytes.erase(bytes.begin(), bytes.begin() + start.data);
  return bytes;
}

void NpzFile::read_floats(std::string_view name, const Shape& shape, std::span<float> out) const {
  const NpyHead found = head(name);
  if (found.shape != shape)
    user_error("{}: the array's shape is {}, but {} is needed", where(member(name)), to_string(found.shape),
               to_string(shape));
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
