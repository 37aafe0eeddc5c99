#include "base/protobuf.h"

#include <bit>

#include "base/error.h"

namespace hearth {
namespace {

enum WireType : uint8_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void append_tag(std::string& out, uint32_t field, WireType type) {
  append_varint(out, uint64_t{field} << 3 | type);
}

void append_fixed(std::string& out, uint64_t bits, int num_bytes) {
  for (int i = 0; i < num_bytes; ++i) out += static_cast<char>(bits >> (8 * i));
}

}  // namespace

ProtobufWriter& ProtobufWriter::integer(uint32_t field, int64_t value) {
  append_tag(out_, field, kVarint);
  append_varint(out_, static_cast<uint64_t>(value));
  return *this;
}

ProtobufWriter& ProtobufWriter::real(uint32_t field, float value) {
  append_tag(out_, field, kFixed32);
  append_fixed(out_, std::bit_cast<uint32_t>(value), 4);
  return *this;
}

ProtobufWriter& ProtobufWriter::real(uint32_t field, double value) {
  append_tag(out_, field, kFixed64);
  append_fixed(out_, std::bit_cast<uint64_t>(value), 8);
  return *this;
}

ProtobufWriter& ProtobufWriter::length(uint32_t field, int64_t num_bytes) {
  append_tag(out_, field, kLength);
  append_varint(out_, static_cast<uint64_t>(num_bytes));
  return *this;
}

ProtobufWriter& ProtobufWriter::bytes(uint32_t field, std::string_view value) {
  length(field, std::ssize(value));
  out_ += value;
  return *this;
}

ProtobufWriter& ProtobufWriter::message(uint32_t field, FunctionRef<void()> write_fields) {
  append_tag(out_, field, kLength);
  const size_t begin = out_.size();
  write_fields();
  // Fits a std::string's local buffer.
  std::string num_bytes;
  append_varint(num_bytes, out_.size() - begin);
  out_.insert(begin, num_bytes);
  return *this;
}

float ProtobufField::as_float() const { return std::bit_cast<float>(static_cast<uint32_t>(value)); }

std::optional<ProtobufField> ProtobufReader::next() {
  if (rest_.empty()) return std::nullopt;
  const uint64_t tag = varint();
  ProtobufField field{.number = static_cast<uint32_t>(tag >> 3)};
  if (field.number == 0 || tag >> 3 > UINT32_MAX) refuse();
  switch (tag & 7) {
    case kVarint:
      field.value = varint();
      break;
    case kFixed64:
      field.value = fixed(8);
      break;
    case kLength:
      field.bytes = take(varint());
      break;
    case kFixed32:
      field.value = fixed(4);
      break;
    default:
      refuse();
  }
  return field;
}

ProtobufReader ProtobufReader::message(const ProtobufField& field) const {
  ProtobufReader nested = *this;
  nested.rest_ = field.bytes;
  return nested;
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

uint64_t ProtobufReader::fixed(int num_bytes) {
  uint64_t value = 0;
  const std::string_view bytes = take(static_cast<uint64_t>(num_bytes));
  for (int i = 0; i < num_bytes; ++i)
    value |= uint64_t{static_cast<uint8_t>(bytes[static_cast<size_t>(i)])} << (8 * i);
  return value;
}

}  // namespace hearth
