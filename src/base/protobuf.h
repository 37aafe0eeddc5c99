#pragma once
// Encoder and decoder for the format of Protocol Buffers (protobuf.dev/programming-guides/encoding). A
// message is a list of fields. A field is a tag (number << 3 | wire type) followed by a value. Numbers are
// little-endian.

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/function_ref.h"

namespace hearth {

/// A field of a message. `bytes` points into the memory that the reader was created for.
struct ProtobufField {
  enum WireType : uint8_t { varint = 0, fixed64 = 1, length = 2, fixed32 = 5 };
  uint32_t number = 0;
  uint64_t value = 0;      ///< value of a varint, fixed32 or fixed64
  std::string_view bytes;  ///< contents of a string, array of bytes or nested message

  float as_float() const { return std::bit_cast<float>(static_cast<uint32_t>(value)); }
};

/// Appends the fields of a message to a string. Allocates memory only when that string grows.
class ProtobufWriter {
 public:
  explicit ProtobufWriter(std::string& out) : out_(out) {}

  /// Appends an integer, bool or enum.
  ProtobufWriter& integer(uint32_t field, int64_t value) {
    return tag(field, ProtobufField::varint).varint(static_cast<uint64_t>(value));
  }
  ProtobufWriter& real(uint32_t field, float value) {
    return tag(field, ProtobufField::fixed32).raw(&value, sizeof(value));
  }
  ProtobufWriter& real(uint32_t field, double value) {
    return tag(field, ProtobufField::fixed64).raw(&value, sizeof(value));
  }
  /// Appends a string or an array of bytes.
  ProtobufWriter& bytes(uint32_t field, std::string_view value) {
    return length(field, std::ssize(value)).raw(value.data(), value.size());
  }
  /// Appends a nested message. `write_fields` must append the fields of the nested message with this writer.
  ProtobufWriter& message(uint32_t field, FunctionRef<void()> write_fields);
  /// Appends only the tag and the length of a string or message; the caller writes its `num_bytes` bytes to
  /// the file afterwards.
  ProtobufWriter& length(uint32_t field, int64_t num_bytes) {
    return tag(field, ProtobufField::length).varint(static_cast<uint64_t>(num_bytes));
  }

 private:
  ProtobufWriter& tag(uint64_t field, ProtobufField::WireType type) { return varint(field << 3 | type); }
  ProtobufWriter& varint(uint64_t value);
  ProtobufWriter& raw(const void* bytes, size_t num_bytes);

  std::string& out_;
};

/// Reads the fields of a message in order.
class ProtobufReader {
 public:
  /// `file` and `problem` are used in messages: malformed or incomplete bytes are a UserError "FILE: byte
  /// OFFSET: PROBLEM".
  ProtobufReader(std::string_view bytes, std::string_view file, std::string_view problem)
      : begin_(bytes.data()), rest_(bytes), file_(file), problem_(problem) {}

  /// Reads the next field; nullopt at the end of the message.
  std::optional<ProtobufField> next();
  /// Returns a reader of a nested message, which reports offsets in the same file.
  ProtobufReader message(const ProtobufField& field) const {
    ProtobufReader nested = *this;
    nested.rest_ = field.bytes;
    return nested;
  }

 private:
  [[noreturn]] void refuse() const;
  std::string_view take(uint64_t num_bytes);
  uint64_t varint();

  const char* begin_;  ///< first byte of the file, to compute offsets in messages
  std::string_view rest_, file_, problem_;
};

}  // namespace hearth
