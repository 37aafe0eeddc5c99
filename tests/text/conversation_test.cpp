#include "text/conversation.h"

#include <fmt/format.h>

#include "expect_fault.h"
#include "text/jsonl.h"

namespace hearth::text {
namespace {

using testing::HasSubstr;

Record read(const char* json, const FormatOptions& options = {}) {
  return read_record(Json::parse(json), options);
}

std::string said(const Json& messages) {
  std::string text;
  for (const Json& message : messages) {
    text += message["role"].get<std::string>() + ":" + message["content"].get<std::string>() + "|";
  }
  return text;
}

TEST(Conversation, ReadsEveryFormat) {
  struct Case {
    const char* json;
    RecordFormat format;
    const char* said;
  };
  const std::vector<Case> cases = {
      {R"({"instruction": "i", "input": "", "output": "o"})", RecordFormat::alpaca, "user:i|assistant:o|"},
      {R"({"instruction": "i", "input": "x", "response": "o", "system": "s", "history": [["a", "b"]]})",
       RecordFormat::alpaca, "system:s|user:a|assistant:b|user:i\nx|assistant:o|"},
      {R"({"prompt": "p", "completion": "c"})", RecordFormat::prompt_completion, "user:p|assistant:c|"},
      {R"({"question": "p", "answer": "c"})", RecordFormat::prompt_completion, "user:p|assistant:c|"},
      {R"({"conversations": [{"from": "human", "value": "h"}, {"from": "gpt", "value": "g"}], "system": "s"})",
       RecordFormat::sharegpt, "system:s|user:h|assistant:g|"},
      {R"({"messages": [{"role": "user", "content": "h"}, {"role": "assistant", "content": [{"type": "text", "text": "a"},
           {"type": "text", "value": "b"}]}]})",
       RecordFormat::openai, "user:h|assistant:ab|"},
  };
  for (const Case& one : cases) {
    const Record record = read(one.json);
    EXPECT_EQ(record.format, one.format) << one.json;
    EXPECT_EQ(said(record.messages), one.said) << one.json;
  }
  EXPECT_EQ(read(R"({"text": "t"})").text, "t");
  EXPECT_EQ(said(read(R"({"ask": "p", "answer": "c"})", {.fields = {{"prompt", "ask"}}}).messages),
            "user:p|assistant:c|");
}

TEST(Conversation, ReadsPreferences) {
  for (const char* json : {
           R"({"prompt": "p", "chosen": "c", "rejected": "r"})",
           R"({"conversations": [{"from": "human", "value": "p"}], "chosen": {"from": "gpt", "value": "c"},
               "rejected": {"from": "gpt", "value": "r"}})",
           R"({"chosen": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "c"}],
               "rejected": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "r"}]})",
           R"({"prompt": [{"role": "user", "content": "p"}], "chosen": "c",
               "rejected": [{"role": "assistant", "content": "r"}]})",
       }) {
    const Record record = read(json);
    EXPECT_EQ(record.format, RecordFormat::preference) << json;
    EXPECT_EQ(said(record.messages) + said(record.chosen) + said(record.rejected),
              "user:p|assistant:c|assistant:r|")
        << json;
  }
  const Record equal = read(R"({"prompt": "p", "chosen": "c", "rejected": "c"})");
  EXPECT_EQ(said(equal.messages) + said(equal.chosen) + said(equal.rejected),
            "user:p|assistant:c|assistant:c|");
}

TEST(Conversation, ToolCallsBecomeWhatTemplatesKnow) {
  const Record record = read(R"({"conversations": [{"from": "human", "value": "h"},
    {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"a\": 1}}"}, {"from": "observation", "value": "2"},
    {"from": "gpt", "value": "done"}], "tools": "[{\"name\": \"f\"}]"})");
  EXPECT_EQ(said(record.messages), "user:h|assistant:|tool:2|assistant:done|");
  EXPECT_EQ(record.messages[1]["tool_calls"][0]["function"]["arguments"]["a"], 1);
  EXPECT_EQ(record.tools[0]["name"], "f");
}

TEST(Conversation, FunctionCallsMayComeInListsAndInAFieldOfTheirOwn) {
  for (
      const char* turn : {
          R"({"from": "function_call", "value": "[{\"name\": \"f\"}, {\"name\": \"g\", \"arguments\": {}}]"})",
          R"({"from": "gpt", "value": [{"type": "tool_call", "value": "{\"name\": \"f\"}"},
               {"type": "tool_call", "value": "{\"name\": \"g\"}"}]})",
          R"({"role": "assistant", "content": null, "function_call": [{"name": "f"}, {"name": "g"}]})",
      }) {
    const Record record =
        read(fmt::format(R"({{"messages": [{{"role": "user", "content": "h"}}, {}]}})", turn).c_str());
    ASSERT_EQ(record.messages[1]["tool_calls"].size(), 2) << turn;
    EXPECT_EQ(record.messages[1]["tool_calls"][0]["function"]["name"], "f") << turn;
    EXPECT_EQ(record.messages[1]["tool_calls"][1]["function"]["name"], "g") << turn;
    EXPECT_EQ(record.messages[1]["content"], "") << turn;
  }
}

TEST(Conversation, KeepsWhatTemplatesMayKnow) {
  const Record record = read(
      R"({"messages": [{"role": "user", "content": "h", "tool_plan": "p"}, {"role": "assistant", "content": "a", "refusal": null}]})");
  EXPECT_EQ(record.messages[0]["tool_plan"], "p");
  EXPECT_FALSE(record.messages[1].contains("refusal"));
}

TEST(Conversation, ReasoningHasTheNamesThatTemplatesRead) {
  // As transformers 5 fills them.
  for (const char* field : {"reasoning_content", "thinking", "reasoning"}) {
    const Record record = read(
        fmt::format(
            R"({{"messages": [{{"role": "user", "content": "h"}}, {{"role": "assistant", "{}": "r", "content": "a"}}]}})",
            field)
            .c_str());
    EXPECT_EQ(record.messages[1]["reasoning_content"], "r") << field;
    EXPECT_EQ(record.messages[1]["thinking"], "r") << field;
    EXPECT_FALSE(record.messages[0].contains("thinking")) << field;
  }
  const Record both = read(
      R"({"messages": [{"role": "user", "content": "h"}, {"role": "assistant", "thinking": "t", "reasoning_content": "r", "content": "a"}]})");
  EXPECT_EQ(both.messages[1]["thinking"], "t");
  EXPECT_EQ(both.messages[1]["reasoning_content"], "r");
}

TEST(Conversation, WeightZeroIsNotTrained) {
  const Record record = read(
      R"({"messages": [{"role": "user", "content": "h"}, {"role": "assistant", "content": "a", "weight": 0},
    {"role": "assistant", "content": "b"}]})");
  EXPECT_FALSE(is_trained(record.messages[0]));
  EXPECT_FALSE(is_trained(record.messages[1]));
  EXPECT_TRUE(is_trained(record.messages[2]));
}

TEST(Conversation, WhatIsNotReadMayBeAnything) {
  const std::string deep = std::string(100, '[') + std::string(100, ']');
  for (const std::string& value : {deep, std::string("1e999"), std::string("99999999999999999999")}) {
    const Record record =
        read_record(parse_record(fmt::format(
                        R"({{"meta": {0}, "messages": [{{"role": "user", "content": "h", "meta": {0}}},
        {{"role": "assistant", "content": "a"}}]}})",
                        value)),
                    {});
    EXPECT_EQ(said(record.messages), "user:h|assistant:a|");
    EXPECT_FALSE(record.messages[0].contains("meta"));
    for (const char* read :
         {R"({{"prompt": "p", "completion": "c", "tools": [{}]}})",
          R"({{"messages": [{{"role": "assistant", "content": "", "tool_calls": [{{"a": {}}}]}}]}})"}) {
      EXPECT_THAT(fault_of([&] { read_record(parse_record(fmt::format(fmt::runtime(read), value)), {}); }),
                  HasSubstr("without numbers beyond 64 bits and nested at most 64 deep"))
          << read;
    }
  }
}

TEST(Conversation, SaysWhyANumberCannotBeRead) {
  EXPECT_THAT(fault_of([&] { read_record(parse_record(R"({"text": 1e999})"), {}); }),
              HasSubstr("got a number too large or a value nested too deep"));
}

TEST(Conversation, ManyFieldsAreNamedInPart) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += fmt::format("\"field{}\":0,", i);
  const std::string fault = fault_of([&] { read_record(parse_record("{" + text + "\"z\":0}"), {}); });
  EXPECT_THAT(fault, HasSubstr("field0, field1, "));
  EXPECT_LE(fault.size(), 500);
  const Record record = read_record(
      parse_record("{\"messages\": [{\"role\": \"assistant\", " + text + "\"content\": \"a\"}]}"), {});
  EXPECT_EQ(record.messages[0].size(), 20'002);
}

TEST(Conversation, RefusesInOneSentence) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"a": 1, "b": 2})", "match no known format"},
      {R"({"prompt": "p", "completion": " \n"})", "turn 2 (assistant) is empty"},
      {R"({"messages": [{"role": "user", "content": "h"}, {"role": "assistant", "content": ""}]})",
       "turn 2 (assistant) is empty"},
      {R"({"messages": [{"role": "user", "content": "h"}]})", "no turn of the assistant to train on"},
      {R"({"messages": [{"role": "user"}, {"role": "assistant", "content": "a"}]})",
       "expected a content in turn 1, got the fields role"},
      {R"({"messages": [{"role": "narrator", "content": "h"}]})",
       "expected a known role in turn 1 (system, user, assistant, tool), got 'narrator'"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url", "value": "x"}]}]})",
       "expected text in turn 1, got a part of type 'image_url'"},
      {R"({"messages": "x"})", "expected a list of messages, got string"},
      {R"({"messages": [1]})", "expected an object as turn 1, got number"},
      {R"({"instruction": "i", "output": 3})", "expected a string as 'output', got number"},
      {R"({"text": null})", "match no known format"},
      {R"({"prompt": "p", "completion": "c", "images": ["a.png"]})",
       "expected text, got 'images' in the record"},
      {R"({"messages": [{"role": "user", "content": "h", "image": "x"}, {"role": "assistant", "content": "a"}]})",
       "expected text, got 'image' in turn 1"},
      {R"({"prompt": "p", "completion": "c", "label": false})", "labeled as bad by 'label': false"},
      {R"({"messages": [{"role": "user", "content": "h"}, {"role": "assistant", "content": "a"}], "kto_tag": false})",
       "labeled as bad by 'kto_tag': false"},
      {R"({"conversations": [{"from": "human", "value": "h"}, {"from": "function_call", "value": "[1]"}]})",
       "turn 2 has a malformed function call"},
      {R"({"messages": [{"role": "user", "content": "h"}, {"role": "assistant", "content": "", "tool_calls": []}]})",
       "turn 2 (assistant) is empty"},
      {R"({"messages": [{"role": "user", "content": "h"}, {"role": "assistant", "content": "", "tool_calls": [1]}]})",
       "expected a list of objects as 'tool_calls'"},
  };
  for (const auto& one : cases)
    EXPECT_THAT(fault_of([&] { read(one.first); }), HasSubstr(one.second)) << one.first;
  EXPECT_THAT(fault_of([] {
                check_format_options({.fields = {{"promt", "x"}}});
              }),
              HasSubstr("did you mean 'prompt'"));
}

}  // namespace
}  // namespace hearth::text
