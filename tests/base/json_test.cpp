#include "base/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

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
