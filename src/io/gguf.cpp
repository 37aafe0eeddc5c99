#include "io/gguf.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/dtype.h"
#include "base/error.h"

namespace hearth::io {
namespace {

constexpr uint32_t kVersion = 3;
constexpr int64_t kAlignment = 32;
constexpr uint32_t kArrayType = 9;

template <typename T>
constexpr uint32_t type_number() {
  if constexpr (std::is_same_v<T, uint32_t>) return 4;
  if constexpr (std::is_same_v<T, int32_t>) return 5;
  if constexpr (std::is_same_v<T, float>) return 6;
  if constexpr (std::is_same_v<T, bool>) return 7;
  if constexpr (std::is_same_v<T, std::string>) return 8;
}

/// Builder of the part of a GGUF file before the tensor data: version, metadata, and descriptions of the
/// tensors.
class Header {
 public:
  template <typename T>
  void number(T value) {
    std::array<char, sizeof(T)> bytes;
    std::memcpy(bytes.data(), &value, sizeof(T));
    text_.append(bytes.data(), bytes.size());
  }
  void put(const std::string& text) {
    number<uint64_t>(text.size());
    text_ += text;
  }
  void put(bool value) { number<uint8_t>(value ? 1 : 0); }
  template <typename T>
  void put(T value) {
    number(value);
  }

  template <typename T>
  void value(const T& value) {
    number(type_number<T>());
    put(value);
  }
  template <typename T>
  void value(const std::vector<T>& values) {
    number(kArrayType);
    number(type_number<T>());
    number<uint64_t>(values.size());
    for (const T& value : values) put(value);
  }
  void raw(std::string_view text) { text_ += text; }
  void pad() { text_.resize((text_.size() + kAlignment - 1) / kAlignment * kAlignment, '\0'); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

int64_t padding_behind(int64_t num_bytes) { return (kAlignment - num_bytes % kAlignment) % kAlignment; }

void put_tensor(Header& header, const GgufTensor& tensor, int64_t offset) {
  header.put(tensor.name);
  header.number<uint32_t>(static_cast<uint32_t>(tensor.shape.rank()));
  for (int axis = tensor.shape.rank(); axis > 0; --axis)
    header.number(static_cast<uint64_t>(tensor.shape[axis - 1]));
  header.number(static_cast<uint32_t>(tensor.type));
  header.number(static_cast<uint64_t>(offset));
}

Header header_of(const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors) {
  Header header;
  header.raw("GGUF");
  header.number(kVersion);
  header.number<uint64_t>(tensors.size());
  header.number<uint64_t>(metadata.size());
  for (const auto& [key, value] : metadata) {
    header.put(key);
    std::visit([&](const auto& held) { header.value(held); }, value);
  }
  int64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    put_tensor(header, tensor, offset);
    offset += tensor.num_bytes() + padding_behind(tensor.num_bytes());
  }
  header.pad();
  return header;
}

/// Returns the size in bytes of the codes of a block.
int64_t code_bytes(BlockFormat format) {
  return format == BlockFormat::q4_0 ? kBlockElements / 2 : kBlockElements;
}

void quantize_block(BlockFormat format, const float* values, std::byte* out) {
  const float scale = block_scale(format, extreme_of(values)), inverse = inverse_of_scale(scale);
  const f16 stored = to_f16(scale);
  std::memcpy(out, &stored, sizeof stored);
  out += sizeof stored;
  const auto code = [&](int64_t i) { return static_cast<int>(block_code(format, values[i], inverse)); };
  for (int64_t i = 0; i < code_bytes(format); ++i) {
    const bool packed = format == BlockFormat::q4_0;
    out[i] = static_cast<std::byte>(packed ? code(i) + 8 + 16 * (code(i + kBlockElements / 2) + 8) : code(i));
  }
}

}  // namespace

BlockFormat block_format(GgufType type) {
  if (type == GgufType::q4_0) return BlockFormat::q4_0;
  return type == GgufType::q8_0 ? BlockFormat::q8_0 : BlockFormat::none;
}

int64_t gguf_row_bytes(GgufType type, int64_t columns) {
  const GgufFormat& format = *find_gguf_format(static_cast<uint32_t>(type));
  HEARTH_CHECK(columns % format.block == 0);
  return columns / format.block * format.block_bytes;
}

void quantize_blocks(BlockFormat format, std::span<const float> values, std::byte* out) {
  HEARTH_CHECK(std::ssize(values) % kBlockElements == 0);
  const int64_t bytes = int64_t{sizeof(f16)} + code_bytes(format);
  for (int64_t i = 0; i < std::ssize(values) / kBlockElements; ++i)
    quantize_block(format, values.data() + i * kBlockElements, out + i * bytes);
}

int64_t GgufTensor::num_bytes() const {
  const int64_t columns = shape.back();
  return shape.num_elements() / columns * gguf_row_bytes(type, columns);
}

void write_gguf(const fs::path& path, const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors,
                FunctionRef<std::span<const std::byte>(size_t)> bytes_of) {
  FileWriter writer(path);
  writer.write(header_of(metadata, tensors).text());
  constexpr std::array<std::byte, kAlignment> kZeros{};
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::span<const std::byte> bytes = bytes_of(i);
    HEARTH_CHECK(std::ssize(bytes) == tensors[i].num_bytes());
    writer.write(bytes);
    writer.write(std::span(kZeros).first(static_cast<size_t>(padding_behind(std::ssize(bytes)))));
  }
  writer.sync_and_close();
}

}  // namespace hearth::io
