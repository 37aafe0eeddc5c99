#include "base/protobuf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace hearth {
namespace {

using namespace std::string_literals;

// Examples of protobuf.dev/programming-guides/encoding.
TEST(Protobuf, WritesTheExamplesOfTheSpecification) {
  std::string out;
  ProtobufWriter writer(out);
  writer.integer(1, 150).bytes(2, "testing").message(3, [&] { writer.integer(1, 150); });
  writer.integer(4, -2).real(5, 0.5F).real(6, 1.0).length(7, 300);
  EXPECT_EQ(out,
            "\x08\x96\x01"
            "\x12\x07testing"
            "\x1a\x03\x08\x96\x01"
            "\x20\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
            "\x2d\x00\x00\x00\x3f"
            "\x31\x00\x00\x00\x00\x00\x00\xf0\x3f"
            "\x3a\xac\x02"s);
}

TEST(Protobuf, NestedMessagesOfMoreThan127Bytes) {
  std::string out;
  ProtobufWriter writer(out);
  writer.message(1, [&] { writer.message(2, [&] { writer.bytes(3, std::string(200, 'x')); }); });
  EXPECT_EQ(out, "\x0a\xce\x01\x12\xcb\x01\x1a\xc8\x01" + std::string(200, 'x'));
}

TEST(Protobuf, ReadsWhatItWrites) {
  std::string out;
  ProtobufWriter writer(out);
  writer.integer(1, -2).real(2, 0.5F).real(3, 1.0).message(536870911, [&] { writer.bytes(4, "a"); });
  ProtobufReader reader(out, "FILE", "malformed");
  EXPECT_EQ(static_cast<int64_t>(reader.next()->value), -2);
  EXPECT_EQ(reader.next()->as_float(), 0.5F);
  EXPECT_EQ(reader.next()->value, 0x3ff0000000000000U);
  const auto nested = reader.next();
  EXPECT_EQ(nested->number, 536870911U);
  EXPECT_EQ(reader.message(*nested).next()->bytes, "a");
  EXPECT_FALSE(reader.next().has_value());
}

TEST(Protobuf, RefusesMalformedBytesWithTheirOffset) {
  const auto refusal = [](std::string_view bytes, bool nested) {
    ProtobufReader reader(bytes, "FILE", "malformed");
    try {
      while (const auto field = reader.next()) {
        ProtobufReader inner = reader.message(*field);
        while (nested && inner.next()) continue;
      }
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return ""s;
  };
  EXPECT_EQ(refusal("\x08\x01\x08", false), "FILE: byte 3: malformed") << "no value";
  EXPECT_EQ(refusal("\x08\x01\x0a\x05"
                    "abcd",
                    false),
            "FILE: byte 4: malformed")
      << "too few bytes";
  EXPECT_EQ(refusal("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", false), "FILE: byte 11: malformed");
  EXPECT_EQ(refusal("\x08" + std::string(10, '\xff') + "\x01", false), "FILE: byte 11: malformed")
      << "65 bits";
  EXPECT_EQ(refusal("\x0d\x01\x02\x03"s, false), "FILE: byte 1: malformed") << "3 bytes of a fixed32";
  EXPECT_EQ(refusal("\x01\x01\x02\x03"s, false), "FILE: byte 1: malformed") << "field 0";
  EXPECT_EQ(refusal("\x0b", false), "FILE: byte 1: malformed") << "a group";
  EXPECT_EQ(refusal("\x08\x01\x0a\x02\x0a\x05", true), "FILE: byte 6: malformed") << "in a nested message";
}

}  // namespace
}  // namespace hearth
