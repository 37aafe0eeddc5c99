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
constexpr int64_t kQ8Bytes = 2 + kQ8Block;
constexpr uint32_t kArray = 9;

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
    number(kArray);
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

void quantize_block(const float* values, std::byte* out) {
  float largest = 0;
  for (int64_t i = 0; i < kQ8Block; ++i) largest = std::max(largest, std::abs(values[i]));
  const float scale = largest / 127;
  // If the scale is so small that its inverse overflows to infinity, all quantized values are 0. The scale
  // stored as f16 is 0 then too.
  float inverse = scale == 0 ? 0 : 1 / scale;
  if (!std::isfinite(inverse)) inverse = 0;
  const f16 stored = to_f16(scale);
  std::memcpy(out, &stored, sizeof stored);
  for (int64_t i = 0; i < kQ8Block; ++i)
    out[2 + i] = static_cast<std::byte>(static_cast<int8_t>(std::round(values[i] * inverse)));
}

}  // namespace

int64_t gguf_row_bytes(GgufType type, int64_t columns) {
  if (type == GgufType::f32) return columns * 4;
  if (type != GgufType::q8_0) return columns * 2;
  HEARTH_CHECK(columns % kQ8Block == 0);
  return columns / kQ8Block * kQ8Bytes;
}

void quantize_q8_0(std::span<const float> values, std::byte* out) {
  HEARTH_CHECK(std::ssize(values) % kQ8Block == 0);
  for (int64_t i = 0; i < std::ssize(values) / kQ8Block; ++i)
    quantize_block(values.data() + i * kQ8Block, out + i * kQ8Bytes);
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
