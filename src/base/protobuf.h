#pragma once
// Protocol Buffers' encoding (protobuf.dev/programming-guides/encoding): a message is a list of fields, a
// field a tag (number << 3 | wire type) and a value, all in little-endian order.

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/function_ref.h"

namespace hearth {

/// A field of a message, viewing the reader's bytes.
struct ProtobufField {
  enum WireType : uint8_t { varint = 0, fixed64 = 1, length = 2, fixed32 = 5 };
  uint32_t number = 0;
  uint64_t value = 0;      ///< of a varint, fixed32 or fixed64
  std::string_view bytes;  ///< of a string, array of bytes or nested message

  float as_float() const { return std::bit_cast<float>(static_cast<uint32_t>(value)); }
};

/// Appends the fields of a message to a string. Allocates only where the string grows.
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
  /// Appends a nested message, whose fields `write_fields` appends with this writer.
  ProtobufWriter& message(uint32_t field, FunctionRef<void()> write_fields);
  /// Appends the tag and length of a string or message; its `num_bytes` bytes must follow in the file.
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
  /// Malformed or incomplete bytes are a UserError "FILE: byte OFFSET: PROBLEM".
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

  const char* begin_;  ///< of the file
  std::string_view rest_, file_, problem_;
};

}  // namespace hearth
