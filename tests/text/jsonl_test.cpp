#include "text/jsonl.h"

#include <fstream>

#include "base/json.h"
#include "expect_fault.h"
#include "temporary_folder.h"

namespace hearth::text {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

class Jsonl : public testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& contents) {
    std::ofstream(folder_.path() / name, std::ios::binary) << contents;
    return folder_.path() / name;
  }
  /// "LINE:VALUE" of the field x of every record.
  std::vector<std::string> read(const DataFile& file) {
    std::vector<std::string> found;
    file.for_each(
        [&](const Entry& entry) {
          found.push_back(fmt::format("{}:{}", entry.line, parse_record(entry.text)["x"].dump()));
        },
        faults_);
    return found;
  }
  std::vector<std::string> pieces(const DataFile& file) {
    std::vector<std::string> found;
    file.for_each([&](const Entry& entry) { found.push_back(fmt::format("{}:{}", entry.line, entry.text)); },
                  faults_);
    return found;
  }

  TemporaryFolder folder_;
  Faults faults_;
};

TEST_F(Jsonl, ReadsLinesAndCollectsBadOnes) {
  const DataFile file(
      write("a.jsonl", "\xEF\xBB\xBF{\"x\": 1}\r\n\n{\"x\": 2\n[3]\n{\"x\": \"\xff\"}\n{\"x\": 5}"));
  EXPECT_EQ(file.kind(), DataFile::Kind::lines);
  EXPECT_THAT(read(file), ElementsAre("1:1", "6:5"));
  EXPECT_THAT(faults_.sentences(),
              ElementsAre(EndsWith("a.jsonl:3: expected JSON in UTF-8, but it breaks at byte 7 of 7"),
                          EndsWith("a.jsonl:4: expected a JSON object, got array"),
                          HasSubstr("a.jsonl:5: expected JSON in UTF-8, but it breaks")));
  EXPECT_EQ(faults_.total(), 3);
  EXPECT_EQ(faults_.counts().at("broken JSON"), 2);
}

TEST_F(Jsonl, ReadsAnArray) {
  const DataFile file(
      write("a.json", "[\n {\"x\": \"],}\\\"[\"},\n\n {\"x\": [1,\n2]}, 7,\n{\"x\": 3}\n]\n"));
  EXPECT_EQ(file.kind(), DataFile::Kind::array);
  EXPECT_THAT(read(file), ElementsAre("2:\"],}\\\"[\"", "4:[1,2]", "6:3"));
  EXPECT_THAT(faults_.sentences(), ElementsAre(EndsWith("a.json:5: expected a JSON object, got number")));
}

TEST_F(Jsonl, AnArrayThatBreaksOffKeepsWhatCameBefore) {
  const DataFile open(write("a.json", "[{\"x\": 1},\n{\"x\": 2"));
  EXPECT_THAT(read(open), ElementsAre("1:1"));
  EXPECT_THAT(faults_.sentences(),
              ElementsAre(EndsWith("a.json:2: the record is not terminated before the end of the file")));
  const DataFile unclosed(write("b.json", "[{\"x\": 1}"));
  EXPECT_THAT(read(unclosed), ElementsAre("1:1"));
  EXPECT_THAT(faults_.sentences().back(),
              EndsWith("b.json:1: expected ']' at the end of the array, got the end of the file"));
}

TEST_F(Jsonl, NamesLineOneMillion) {
  std::string text;
  for (int i = 1; i < 1'000'000; ++i) text += "{}\n";
  const DataFile file(write("a.jsonl", text + "{\"x\"\n{}\n"));
  int64_t records = 0;
  const auto visit = [&](const Entry& entry) {
    if (entry.text != "{}") parse_record(entry.text);
    ++records;
  };
  file.for_each(visit, faults_);
  EXPECT_EQ(records, 1'000'000);
  EXPECT_THAT(faults_.sentences(),
              ElementsAre(EndsWith("a.jsonl:1000000: expected JSON in UTF-8, but it breaks at byte 4 of 4")));
}

TEST_F(Jsonl, FaultsAreBounded) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "{\n";
  const DataFile file(write("a.jsonl", text));
  EXPECT_TRUE(read(file).empty());
  EXPECT_EQ(faults_.total(), 5000);
  EXPECT_EQ(faults_.sentences().size(), Faults::kMaxSentences);
  Faults one;
  one.add("f", 1, "long", "a" + std::string(100'000, '\xc3') + "b");
  EXPECT_LT(one.sentences()[0].size(), 500);
  std::string accents = "a";
  for (int i = 0; i < 1000; ++i) accents += "\u00e9";
  one.add("f", 2, "long", accents);
  EXPECT_THAT(one.sentences()[1], EndsWith("\u00e9..."));
}

TEST(JsonReader, ReadsWhatPythonReads) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"( {"b": [1, -2, 2.5e-3, true, null], "a": {}} )", R"({"b":[1,-2,0.0025,true,null],"a":{}})"},
      {R"("\u00e9\ud83d\ude00\n\/\")"
       "\u00e9\"",
       "\"\u00e9\U0001f600\\n/\\\"\u00e9\""},
      {R"({"a": 1, "b": 2, "a": 3})", R"({"a":3,"b":2})"},
      {"18446744073709551615", "18446744073709551615"},
      {"-9223372036854775808", "-9223372036854775808"},
      {"1e-999", "0.0"},
      {R"([[], [[]], 0, -0.0, ""])", R"([[],[[]],0,-0.0,""])"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(parse_json(text).dump(), expected) << text;
}

TEST(JsonReader, RefusesWhatIsNoJson) {
  using namespace std::string_literals;
  for (const std::string& text : {""s,
                                  "{"s,
                                  "[1,]"s,
                                  "{\"a\":1,}"s,
                                  "{a:1}"s,
                                  "01"s,
                                  "1."s,
                                  ".5"s,
                                  "+1"s,
                                  "1e"s,
                                  "NaN"s,
                                  "'a'"s,
                                  "tru"s,
                                  "\"\\x\""s,
                                  "\"\\ud800\""s,
                                  "\"\\ud800\\u0041\""s,
                                  "\"\\u12g4\""s,
                                  "\"a\nb\""s,
                                  "\"\xff\""s,
                                  "\"a"s,
                                  "\"\\"s,
                                  "1 2"s,
                                  "{}\0x"s,
                                  "{}\0"s,
                                  "[1 2]"s,
                                  "{\"a\" 1}"s,
                                  "]"s,
                                  "-"s,
                                  "\"\\u00"s}) {
    EXPECT_THAT(fault_of([&] { parse_json(text); }), HasSubstr("expected JSON in UTF-8, but it breaks"))
        << text;
  }
  const std::string deep(100, '[');
  for (const char* end : {"", "{]", "{\"a\"}", "1 2", "{\"a\":}", "]]]]}", "tru"})
    EXPECT_THAT(fault_of([&] { parse_json(deep + end); }), HasSubstr("it breaks")) << end;
}

TEST(JsonReader, WhatCannotBeReadMustNotBe) {
  const std::string inner = R"({"a": [1, {"b": "]}"}, []], "c": {}}, "q")";
  const std::vector<std::string> values = {std::string(100'000, '[') + std::string(100'000, ']'),
                                           std::string(80, '[') + inner + std::string(80, ']'),
                                           "1e999",
                                           "-1e999",
                                           "18446744073709551616",
                                           "-9223372036854775809",
                                           "[[{\"k\": 1e400}]]"};
  for (const std::string& value : values) {
    const Json record = parse_record("{\"x\": " + value + ", \"y\": 1}");
    EXPECT_FALSE(is_readable(record["x"])) << value.substr(0, 40);
    EXPECT_EQ(record["y"], 1);
  }
  EXPECT_TRUE(is_readable(parse_record("{\"x\": \"" + std::string(1000, '[') + "\"}")));
  EXPECT_TRUE(is_readable(parse_json(std::string(64, '[') + std::string(64, ']'))));
}

TEST(JsonReader, ManyKeysTakeLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += fmt::format("\"{}\":0,", i);
  EXPECT_EQ(parse_record(text + "\"7\":1}").size(), 200'000);
}

TEST_F(Jsonl, TextComesInUnits) {
  const std::string text = "one\ntwo\n\n \nthree\n";
  EXPECT_THAT(pieces(DataFile(write("a.txt", text))), ElementsAre("1:" + text));
  EXPECT_THAT(pieces(DataFile(write("a.txt", text), TextUnit::line)),
              ElementsAre("1:one", "2:two", "5:three"));
  EXPECT_THAT(pieces(DataFile(write("a.txt", text), TextUnit::paragraph)),
              ElementsAre("1:one\ntwo", "5:three"));
}

TEST_F(Jsonl, LongTextComesInPiecesThatAreTheText) {
  std::string text;
  for (int i = 0; text.size() < 5 * DataFile::kPieceBytes / 2; ++i) text += fmt::format("line {}\n\n", i);
  const DataFile file(write("a.txt", text));
  std::string joined;
  std::vector<bool> continues;
  const auto visit = [&](const Entry& entry) {
    EXPECT_EQ(entry.line, std::count(joined.begin(), joined.end(), '\n') + 1);
    EXPECT_TRUE(entry.text.starts_with("line"));
    joined += entry.text;
    continues.push_back(entry.continues);
  };
  file.for_each(visit, faults_);
  EXPECT_TRUE(joined == text);
  EXPECT_THAT(continues, ElementsAre(true, true, false));
}

TEST_F(Jsonl, RefusesWhatIsNoData) {
  EXPECT_THAT(fault_of([&] { DataFile(write("a.jsonl", " \n")); }), HasSubstr("the file is empty"));
  EXPECT_THAT(fault_of([&] { DataFile(folder_.path() / "b.jsonl"); }), HasSubstr("cannot open"));
}

}  // namespace
}  // namespace hearth::text
