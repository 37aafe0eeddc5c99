// Reader of GGUF files. Counts and sizes are compared with the remaining bytes of the file before memory is
// allocated: an element of an array needs at least one byte in the file, a string eight.
#include "io/gguf_file.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/gguf_cache.h"
#include "io/ggml_blocks.h"

namespace hearth::io {
namespace {

using Value = GgufContents::Value;

constexpr std::string_view kMagic = kGgufMagic;
constexpr std::string_view kIncomplete = "; the file is incomplete or damaged, download or copy it again";
constexpr int64_t kDefaultAlignment = 32, kMaxAlignment = 1 << 20;
constexpr uint32_t kMaxAxes = 4;
constexpr size_t kMaxShownBytes = 80;

/// Types of metadata values, with their numbers in the file.
enum ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
  kNumValueTypes
};

/// Decoder of a quantized tensor, whose rows consist of complete blocks.
class BlockDecoder final : public TensorDecoder {
 public:
  explicit BlockDecoder(const GgufFormat& format) : format_(format) {}

  void decode(const TensorView& view, int64_t from, std::span<float> values) const override {
    const int64_t count = std::ssize(values), first = from / format_.block;
    const int64_t end = (from + count + format_.block - 1) / format_.block;
    const std::byte* blocks = view.bytes.data() + first * format_.block_bytes;
    if (from % format_.block == 0 && count % format_.block == 0)
      return dequantize_gguf(format_.type, blocks, values);
    std::vector<float> all(static_cast<size_t>((end - first) * format_.block));
    dequantize_gguf(format_.type, blocks, all);
    std::copy_n(all.begin() + from % format_.block, count, values.begin());
  }

 private:
  const GgufFormat& format_;
};

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, std::string_view where)
      : bytes_(bytes), rest_(bytes), where_(where) {}

  GgufContents parse() {
    check_version();
    const auto num_tensors = number<uint64_t>(), num_keys = number<uint64_t>();
    if (num_keys > rest_.size() / 13 || num_tensors > rest_.size() / 24)
      fail("more tensors or metadata keys than the file has bytes for");
    for (uint64_t i = 0; i < num_keys; ++i) read_key();
    check_complete_model();
    std::vector<Entry> entries;
    for (uint64_t i = 0; i < num_tensors; ++i) entries.push_back(read_entry());
    set_tensor_bytes(entries);
    return std::move(contents_);
  }

 private:
  struct Entry {
    TensorView view;
    int64_t num_bytes = 0;
    uint64_t offset = 0;  ///< from the start of the tensor data
  };

  [[noreturn]] void fail(std::string_view what) const { user_error("{}: {}{}", where_, what, kIncomplete); }

  std::span<const std::byte> take(uint64_t count) {
    if (count > rest_.size()) fail("the header ends too early");
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string string() {
    const auto text = take(number<uint64_t>());
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }

  void check_version() {
    if (!is_gguf(rest_)) user_error("{}: this is not a GGUF file", where_);
    take(kMagic.size());
    const auto version = number<uint32_t>();
    if (version == 2 || version == 3) return;
    if ((version & 0xffff) == 0)
      user_error("{}: the file is big-endian, which is not supported; download the little-endian one",
                 where_);
    user_error("{}: GGUF version {} is not supported (2 and 3 are); convert the original model again", where_,
               version);
  }

  int64_t integer(uint32_t type) {
    switch (type) {
      case kU8:
        return number<uint8_t>();
      case kI8:
        return number<int8_t>();
      case kU16:
        return number<uint16_t>();
      case kI16:
        return number<int16_t>();
      case kU32:
        return number<uint32_t>();
      case kI32:
        return number<int32_t>();
      case kU64:
        return static_cast<int64_t>(std::min<uint64_t>(number<uint64_t>(), INT64_MAX));
      default:
        return number<int64_t>();
    }
  }

  static uint64_t bytes_of(uint32_t type) {
    constexpr uint64_t kBytes[kNumValueTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8};
    return type < kNumValueTypes ? kBytes[type] : 0;
  }

  template <typename T, typename Read>
  std::vector<T> elements(uint64_t count, Read read) {
    std::vector<T> values;
    values.reserve(count);
    for (uint64_t i = 0; i < count; ++i) values.push_back(read());
    return values;
  }

  Value array() {
    const auto type = number<uint32_t>();
    const auto count = number<uint64_t>();
    if (bytes_of(type) == 0) fail(fmt::format("a metadata array has elements of type {}", type));
    if (count > rest_.size() / bytes_of(type)) fail("a metadata array is larger than the file");
    if (type == kString) return elements<std::string>(count, [&] { return string(); });
    if (type == kF32) return elements<double>(count, [&] { return number<float>(); });
    if (type == kF64) return elements<double>(count, [&] { return number<double>(); });
    if (type == kBool) return elements<int64_t>(count, [&] { return number<uint8_t>() != 0 ? 1 : 0; });
    return elements<int64_t>(count, [&] { return integer(type); });
  }

  Value value(uint32_t type) {
    if (type == kArray) return array();
    if (bytes_of(type) == 0) fail(fmt::format("a metadata value has the unknown type {}", type));
    if (type == kString) return string();
    if (type == kBool) return number<uint8_t>() != 0;
    if (type == kF32) return shortest(number<float>());
    if (type == kF64) return number<double>();
    return integer(type);
  }

  void read_key() {
    std::string key = string();
    const auto type = number<uint32_t>();
    Value read = value(type);
    if (!contents_.metadata.emplace(key, std::move(read)).second)
      fail(fmt::format("the metadata key '{}' occurs twice", key.substr(0, kMaxShownBytes)));
  }

  const int64_t* find_integer(std::string_view key) const {
    const auto found = contents_.metadata.find(key);
    return found == contents_.metadata.end() ? nullptr : std::get_if<int64_t>(&found->second);
  }

  void check_complete_model() const {
    const int64_t* parts = find_integer("split.count");
    if (parts == nullptr || *parts <= 1) return;
    user_error("{}: this is one of {} parts of a model; join them: llama-gguf-split --merge FIRST_PART OUT",
               where_, *parts);
  }

  Entry read_entry() {
    Entry entry;
    entry.view.name = string();
    const std::string shown = entry.view.name.substr(0, kMaxShownBytes);
    const auto rank = number<uint32_t>();
    if (rank < 1 || rank > kMaxAxes) fail(fmt::format("tensor '{}' has {} axes", shown, rank));
    std::vector<int64_t> axes(rank);
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      *axis = static_cast<int64_t>(std::min<uint64_t>(number<uint64_t>(), INT64_MAX));
      if (*axis < 1) fail(fmt::format("tensor '{}' has an axis of length 0", shown));
    }
    const auto type = number<uint32_t>();
    entry.offset = number<uint64_t>();
    try {
      entry.view.shape = Shape(axes);
    } catch (const UserError& error) {
      fail(fmt::format("tensor '{}': {}", shown, error.what()));
    }
    set_type(entry, type, shown);
    return entry;
  }

  void set_type(Entry& entry, uint32_t type, const std::string& shown) const {
    const GgufFormat* format = find_gguf_format(type);
    if (format == nullptr) {
      const std::string_view name = unsupported_gguf_type(type);
      user_error(
          "{}: tensor '{}' has the type {}, which is not supported; use a file with F32, F16, BF16, Q8_0, "
          "Q4_0, Q4_1, Q5_0, Q5_1 or Q2_K to Q6_K",
          where_, shown, name.empty() ? std::to_string(type) : std::string(name));
    }
    const Shape& shape = entry.view.shape;
    if (shape.back() % format->block != 0)
      fail(fmt::format("tensor '{}' has rows of {} elements, but {} has blocks of {}", shown, shape.back(),
                       format->name, format->block));
    const int64_t num_blocks = shape.num_elements() / format->block;
    if (num_blocks > std::ssize(bytes_) / format->block_bytes)
      fail(fmt::format("tensor '{}' {} is larger than the file", shown, to_string(shape)));
    entry.num_bytes = num_blocks * format->block_bytes;
    entry.view.dtype = format->type == GgufType::f32   ? DType::f32
                       : format->type == GgufType::f16 ? DType::f16
                                                       : DType::bf16;
    if (format->block > 1) entry.view.decoder = std::make_shared<BlockDecoder>(*format);
  }

  uint64_t alignment() const {
    const int64_t* found = find_integer("general.alignment");
    const int64_t value = found == nullptr ? kDefaultAlignment : *found;
    if (value < 1 || value > kMaxAlignment || !std::has_single_bit(static_cast<uint64_t>(value)))
      fail(fmt::format("general.alignment is {}", value));
    return static_cast<uint64_t>(value);
  }

  /// Sets the bytes of all tensors. The data begins at the next multiple of the alignment.
  void set_tensor_bytes(std::vector<Entry>& entries) {
    const uint64_t align = alignment(), header = bytes_.size() - rest_.size();
    const uint64_t start = std::min<uint64_t>((header + align - 1) / align * align, bytes_.size());
    const auto data = bytes_.subspan(start);
    for (Entry& entry : entries) {
      const auto num_bytes = static_cast<uint64_t>(entry.num_bytes);
      if (entry.offset % align != 0 || entry.offset > data.size() || num_bytes > data.size() - entry.offset)
        fail(fmt::format("tensor '{}' is not aligned or outside the file",
                         entry.view.name.substr(0, kMaxShownBytes)));
      entry.view.bytes = data.subspan(entry.offset, num_bytes);
      contents_.tensors.push_back(std::move(entry.view));
    }
    check_names();
  }

  void check_names() const {
    std::vector<std::string_view> names;
    for (const TensorView& tensor : contents_.tensors) names.push_back(tensor.name);
    std::ranges::sort(names);
    const auto twice = std::ranges::adjacent_find(names);
    if (twice != names.end())
      fail(fmt::format("two tensors are named '{}'", twice->substr(0, kMaxShownBytes)));
  }

  std::span<const std::byte> bytes_, rest_;
  std::string_view where_;
  GgufContents contents_;
};

}  // namespace

double shortest(float value) { return std::strtod(fmt::format("{}", value).c_str(), nullptr); }

bool is_gguf(std::span<const std::byte> bytes) {
  return bytes.size() >= kMagic.size() && std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

GgufContents parse_gguf(std::span<const std::byte> bytes, std::string_view where) {
  return Parser(bytes, where).parse();
}

GgufFile::GgufFile(const fs::path& path)
    : path_(path), file_(path), contents_(parse_gguf(file_.bytes(), path.string())) {}

void GgufFile::refuse_type(std::string_view key) const {
  user_error(
      "{}: the metadata key '{}' has a value of another type than llama.cpp's; convert the model again",
      path_.string(), key);
}

void GgufFile::refuse_missing(std::string_view key) const {
  user_error("{}: the metadata lacks '{}'; convert the model again with llama.cpp's convert_hf_to_gguf.py",
             path_.string(), key);
}

}  // namespace hearth::io
