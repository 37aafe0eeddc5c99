#pragma once
// Protocol Buffers' encoding (protobuf.dev/programming-guides/encoding): a message is a list of fields, a
// field a tag (number << 3 | wire type) and a value, all in little-endian order.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/function_ref.h"

namespace hearth {

/// Appends the fields of a message to a string. Allocates only where the string grows.
class ProtobufWriter {
 public:
  explicit ProtobufWriter(std::string& out) : out_(out) {}

  /// Appends an integer, bool or enum (varint), a float (fixed32) or a double (fixed64).
  ProtobufWriter& integer(uint32_t field, int64_t value);
  ProtobufWriter& real(uint32_t field, float value);
  ProtobufWriter& real(uint32_t field, double value);
  /// Appends a string or an array of bytes.
  ProtobufWriter& bytes(uint32_t field, std::string_view value);
  /// Appends a nested message, whose fields `write_fields` appends with this writer.
  ProtobufWriter& message(uint32_t field, FunctionRef<void()> write_fields);
  /// Appends the tag and length of a string or message; its `num_bytes` bytes must follow in the file.
  ProtobufWriter& length(uint32_t field, int64_t num_bytes);

 private:
  std::string& out_;
};

/// A field of a message, viewing the reader's bytes.
struct ProtobufField {
  uint32_t number = 0;
  uint64_t value = 0;      ///< of a varint, fixed32 or fixed64
  std::string_view bytes;  ///< of a string, array of bytes or nested message

  float as_float() const;
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
  ProtobufReader message(const ProtobufField& field) const;

 private:
  [[noreturn]] void refuse() const;
  std::string_view take(uint64_t num_bytes);
  uint64_t varint();
  uint64_t fixed(int num_bytes);

  const char* begin_;  ///< of the file
  std::string_view rest_, file_, problem_;
};

}  // namespace hearth
