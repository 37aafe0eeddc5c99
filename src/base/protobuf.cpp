#include "base/protobuf.h"

#include <cstring>

#include "base/error.h"

namespace hearth {

static_assert(std::endian::native == std::endian::little);

ProtobufWriter& ProtobufWriter::varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(value | 0x80);
  out_ += static_cast<char>(value);
  return *this;
}

ProtobufWriter& ProtobufWriter::raw(const void* bytes, size_t num_bytes) {
  out_.append(static_cast<const char*>(bytes), num_bytes);
  return *this;
}

ProtobufWriter& ProtobufWriter::message(uint32_t field, FunctionRef<void()> write_fields) {
  const size_t begin = out_.size();
  write_fields();
  std::string head;  // fits a std::string's local buffer
  ProtobufWriter(head).length(field, static_cast<int64_t>(out_.size() - begin));
  out_.insert(begin, head);
  return *this;
}

std::optional<ProtobufField> ProtobufReader::next() {
  if (rest_.empty()) return std::nullopt;
  const uint64_t tag = varint(), type = tag & 7;
  ProtobufField field{.number = static_cast<uint32_t>(tag >> 3)};
  if (field.number == 0 || tag >> 3 > UINT32_MAX) refuse();
  if (type == ProtobufField::varint) {
    field.value = varint();
  } else if (type == ProtobufField::length) {
    field.bytes = take(varint());
  } else if (type == ProtobufField::fixed32 || type == ProtobufField::fixed64) {
    const std::string_view bytes = take(type == ProtobufField::fixed32 ? 4 : 8);
    std::memcpy(&field.value, bytes.data(), bytes.size());
  } else {
    refuse();
  }
  return field;
}

void ProtobufReader::refuse() const { user_error("{}: byte {}: {}", file_, rest_.data() - begin_, problem_); }

std::string_view ProtobufReader::take(uint64_t num_bytes) {
  if (num_bytes > rest_.size()) refuse();
  const std::string_view taken = rest_.substr(0, num_bytes);
  rest_.remove_prefix(num_bytes);
  return taken;
}

uint64_t ProtobufReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<uint8_t>(take(1)[0]);
    value |= uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return value;
  }
  refuse();
}

}  // namespace hearth
