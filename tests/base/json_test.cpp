#include "base/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "limited_child.h"

namespace hearth {
namespace {

using Json = nlohmann::ordered_json;

std::string fault_of(const std::string& text) {
  std::string fault;
  EXPECT_FALSE(parse_json<Json>(text, &fault)) << text;
  EXPECT_FALSE(parse_json<nlohmann::json>(text)) << text;
  return fault;
}

TEST(Json, ReadsValues) {
  std::string fault;
  const auto value = parse_json<Json>(R"({"b": [1, "]}\"{["], "a": null})", &fault);
  ASSERT_TRUE(value);
  EXPECT_EQ(fault, "");
  EXPECT_EQ(value->dump(), R"({"b":[1,"]}\"{["],"a":null})");
}

TEST(Json, SaysWhereItBreaks) {
  EXPECT_EQ(fault_of(R"({"a": 1,})"), "expected JSON in UTF-8, but it breaks at byte 9 of 9");
  EXPECT_EQ(fault_of(""), "expected JSON in UTF-8, but it breaks at byte 0 of 0");
  EXPECT_EQ(fault_of("\"\xFF\""), "expected JSON in UTF-8, but it breaks at byte 2 of 3");
}

TEST(Json, RefusesNumbersThatNoDoubleHolds) {
  EXPECT_EQ(fault_of("[1e999]"), "expected JSON, but a number in it is out of range");
}

TEST(Json, NestsOnlySoDeep) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(parse_json<Json>(nested(kMaxJsonDepth)));
  EXPECT_EQ(fault_of(nested(kMaxJsonDepth + 1)), "expected JSON nested at most 64 deep");
}

TEST(Json, EndsWhereItsTextEnds) {
  using namespace std::string_literals;
  EXPECT_EQ(fault_of("{}\0{}"s), "expected JSON in UTF-8, but it breaks at byte 3 of 5");
  EXPECT_EQ(fault_of("{}\0"s), "expected JSON in UTF-8, but it breaks at byte 3 of 3");
  EXPECT_EQ(fault_of("\0{}"s), "expected JSON in UTF-8, but it breaks at byte 1 of 3");
  EXPECT_EQ(fault_of("\"\\\0\""s), "expected JSON in UTF-8, but it breaks at byte 4 of 4");
}

TEST(Json, OfEqualKeysTheLastCounts) {
  const char* text = R"({"b": 1, "a": {"c": 1, "c": 2}, "b": 3, "d": 4, "b": 5})";
  EXPECT_EQ(parse_json<Json>(text)->dump(), R"({"b":5,"a":{"c":2},"d":4})");
  EXPECT_EQ(parse_json<nlohmann::json>(text)->dump(), R"({"a":{"c":2},"b":5,"d":4})");
}

TEST(Json, IntegersBeyond64BitsAreReal) {
  EXPECT_EQ(parse_json<Json>("[18446744073709551615, 18446744073709551616, -9223372036854775809]")->dump(),
            "[18446744073709551615,1.8446744073709552e+19,-9.223372036854776e+18]");
}

TEST(Json, DiscardsWhatOnlyItsReaderNeeds) {
  const std::string deep = std::string(kMaxJsonDepth, '[') + std::string(kMaxJsonDepth, ']');
  const auto value =
      parse_json<Json>("{\"x\": " + deep + ", \"y\": 1e999, \"z\": 1}", nullptr, Unreadable::discarded);
  ASSERT_TRUE(value);
  EXPECT_FALSE(is_readable((*value)["x"]));
  EXPECT_FALSE(is_readable((*value)["y"]));
  EXPECT_TRUE(is_readable((*value)["z"]));
}

TEST(Json, TakesMemoryAndTimeByItsSize) {
  std::string keys = "{", nested, zeros = "[0";
  for (int i = 0; i < 200'000; ++i) keys += "\"" + std::to_string(i) + "\": {}, ";
  keys += "\"7\": 1}";
  while (nested.size() < 30'000'000) nested += "{\"a\":";
  while (zeros.size() < 4'000'000) zeros += ",0";
  zeros += "]";
  EXPECT_WITHIN(32 * std::ssize(keys), EXPECT_EQ(parse_json<Json>(keys)->size(), 200'000U));
  EXPECT_WITHIN(32 * std::ssize(keys), EXPECT_EQ(parse_json<nlohmann::json>(keys)->size(), 200'000U));
  EXPECT_WITHIN(32 * std::ssize(zeros), EXPECT_EQ(parse_json<Json>(zeros)->size(), 2'000'000U));
  const std::string lists(30'000'000, '[');
  for (const std::string& text : {nested, lists}) {
    EXPECT_WITHIN(1 << 20, EXPECT_FALSE(parse_json<Json>(text)));
    EXPECT_WITHIN(2 * std::ssize(text), EXPECT_FALSE(parse_json<Json>(text, nullptr, Unreadable::discarded)));
  }
}

TEST(Json, AsksForAnObjectInTheNameOfItsFile) {
  const auto fault = [](const char* text) -> std::string {
    try {
      parse_json_object<Json>(text, "a.json");
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(fault("{}"), "");
  EXPECT_EQ(fault("[1]"), "a.json: expected a JSON object, got array");
  EXPECT_EQ(fault("{"), "a.json: expected JSON in UTF-8, but it breaks at byte 1 of 1");
}

}  // namespace
}  // namespace hearth
