#include "text/chat.h"

#include <fstream>

#include "expect_fault.h"
#include "limited_child.h"
#include "shared_data.h"
#include "temporary_folder.h"
#include "toy_tokenizer.h"

namespace hearth::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kLlama2 =
    "{% for message in messages %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + "
    "message['content'].strip() + "
    "' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + message['content'].strip() + ' ' + "
    "eos_token }}{% endif "
    "%}{% endfor %}";

Json talk(const std::vector<std::string>& turns) {
  Json messages = Json::array();
  for (size_t i = 0; i < turns.size(); ++i) {
    messages.push_back(Json{{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", turns[i]}});
  }
  return messages;
}

ChatRenderer renderer(const std::string& source) {
  return {Template(source, "t"), {.bos_token = "<s>", .eos_token = "</s>"}};
}

/// What is trained, each span in brackets.
std::string trained(const MarkedText& marked) {
  std::string text;
  for (const Span& span : marked.trained) {
    text += "[" +
            marked.text.substr(static_cast<size_t>(span.first), static_cast<size_t>(span.last - span.first)) +
            "]";
  }
  return text;
}

TEST(ChatMask, ConversationsWhoseTurnsTakeTooLongToFindAreRefused) {
  const std::vector<std::string> turns(20'000, "hello");
  const auto render = [&](const std::string& source) {
    return renderer(source).render(talk(turns), nullptr);
  };
  const std::string chatml = *built_in_template("chatml");
  EXPECT_WITHIN(int64_t{1} << 30,
                { EXPECT_THAT(fault_of([&] { render(chatml); }), HasSubstr("10000 turns to train on")); });
  const std::string marks =
      "{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
      "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}";
  EXPECT_EQ(render(marks).trained.size(), 10'000U);
}

TEST(ChatMask, CoversContentAndEndOfTurn) {
  const auto chatml = renderer(*built_in_template("chatml"));
  EXPECT_EQ(trained(chatml.render(talk({"hi", "hello", "bye", "so long\n"}), nullptr)),
            "[hello<|im_end|>][so long\n<|im_end|>]");
  EXPECT_EQ(trained(renderer(kLlama2).render(talk({"hi", " hello\n", "bye", "so"}), nullptr)),
            "[ hello </s>][ so </s>]");
  const MarkedText plain = renderer(*built_in_template("plain")).render(talk({"2 + 2 =", " 4"}), nullptr);
  EXPECT_EQ(plain.text, "<s>2 + 2 = 4</s>");
  EXPECT_EQ(trained(plain), "[ 4</s>]");
  const MarkedText alpaca = renderer(*built_in_template("alpaca")).render(talk({"add", "5"}), nullptr);
  EXPECT_EQ(alpaca.text,
            "<s>Below is an instruction that describes a task. Write a response that appropriately completes "
            "the request.\n\n"
            "### Instruction:\nadd\n\n### Response:\n5</s>\n\n");
  EXPECT_EQ(trained(alpaca), "[5</s>]");
}

TEST(ChatMask, FollowsTemplatesThatChangeWhatWasSaid) {
  // As Qwen3: the thoughts of earlier turns go, the last turn gets some if it has none.
  const auto thinking = renderer(
      "{% for m in messages %}{% set content = m.content %}{% if '</think>' in content %}{% set content = "
      "content.split('</think>')[-1].lstrip('\\n') %}{% endif %}{% if m.role == 'assistant' and loop.last "
      "%}{{ "
      "'<assistant>\\n<think>' + (m.content.split('</think>')[0] if '</think>' in m.content else '') + "
      "'</think>' + content + "
      "'<end>\\n' }}{% else %}{{ '<' + m.role + '>\\n' + content + '<end>\\n' }}{% endif %}{% endfor %}{% if "
      "add_generation_prompt %}{{ '<assistant>\\n' }}{% endif %}");
  const MarkedText marked = thinking.render(talk({"q", "x</think>one", "r", "two"}), nullptr);
  EXPECT_EQ(marked.text,
            "<user>\nq<end>\n<assistant>\none<end>\n<user>\nr<end>\n<assistant>\n<think></think>two<end>\n");
  EXPECT_EQ(trained(marked), "[one<end>][<think></think>two<end>]");
}

/// As Phi-3: what follows a turn starts like what follows the last one.
constexpr const char* kPhi =
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}{% if "
    "add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ '<|endoftext|>' }}{% endif %}";

TEST(ChatMask, TurnsEndBeforeTheSpecialTokenOfTheNext) {
  const ChatRenderer phi(Template(kPhi, "t"),
                         {.special_tokens = {"<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"}});
  EXPECT_EQ(trained(phi.render(talk({"q", "a", "r", "b"}), nullptr)), "[a<|end|>][b<|end|>\n<|endoftext|>]");
}

TEST(ChatMask, TurnsStartAlikeWhereverTheSystemMessageStands) {
  // As Mistral 0.3, which puts it into the last turn.
  const auto last = renderer(
      "{% set system = messages[0].content %}{% for m in messages %}{% if m.role == 'user' %}[INST]{% if "
      "loop.index0 + "
      "2 >= messages|length %}{{ system }};{% endif %}{{ m.content }}[/INST]{% elif m.role == 'assistant' %} "
      "{{ m.content "
      "}}</s>{% endif %}{% endfor %}");
  Json messages = talk({"q", "a", "r", "b"});
  messages.insert(messages.begin(), Json{{"role", "system"}, {"content", "s"}});
  const MarkedText marked = last.render(messages, nullptr);
  EXPECT_EQ(marked.text, "[INST]q[/INST] a</s>[INST]s;r[/INST] b</s>");
  EXPECT_EQ(trained(marked), "[ a</s>][ b</s>]");
}

TEST(ChatMask, AnEndMarkMayBeAnotherForTheLastTurn) {
  // As gpt-oss.
  const ChatRenderer returns(Template("{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content "
                                      "}}{% if loop.last and m.role == "
                                      "'assistant' and not add_generation_prompt %}<|return|>{% else "
                                      "%}<|end|>{% endif %}{% endfor %}{% if "
                                      "add_generation_prompt %}<|start|>assistant{% endif %}",
                                      "t"),
                             {.special_tokens = {"<|start|>", "<|message|>", "<|end|>", "<|return|>"}});
  EXPECT_EQ(trained(returns.render(talk({"q", "a", "r", "b"}), nullptr)),
            "[<|message|>a<|end|>][<|message|>b<|return|>]");
}

TEST(ChatMask, ATurnStartsWithTheThoughtThatThePromptOpens) {
  // As DeepSeek, Qwen 3.5 and Nemotron: the prompt opens a block that earlier turns, or all, have lost.
  for (const std::string kept : {"", "<think></think>"}) {
    const auto thinking =
        renderer("{% for m in messages %}{{ '<' + m.role + '>' + (" + ("'" + kept + "'") +
                 " if m.role == 'assistant' and loop.last else '') + m.content + '<end>' }}{% "
                 "endfor %}{% if add_generation_prompt %}{{ '<assistant><think>\n' }}{% endif %}");
    EXPECT_EQ(trained(thinking.render(talk({"q <think>", "a", "r", "b"}), nullptr)),
              "[a<end>][" + kept + "b<end>]");
  }
}

TEST(ChatMask, WhatThePromptForAnAnswerEndsWithIsNotTrained) {
  // As Qwen3 without thinking: the prompt has an empty block, and so has the last answer.
  const std::string block = "<think>\n\n</think>\n\n";
  const std::string source = "{% for m in messages %}{{ '<' + m.role + '>' + ('" + block +
                             "' if m.role == 'assistant' and loop.last else '') + m.content + '<end>' }}{% "
                             "endfor %}{% if add_generation_prompt %}{{ '<assistant>" +
                             block + "' }}{% endif %}";
  const Json messages = talk({"q", "a", "r", "b"});
  EXPECT_EQ(trained(renderer(source).render(messages, nullptr)), "[a<end>][b<end>]");
  const ChatRenderer with_block(Template(source, "t"), {.train_on_generation_prompt = true});
  EXPECT_EQ(trained(with_block.render(messages, nullptr)), "[a<end>][" + block + "b<end>]");
  // As DeepSeek-R1: the prompt opens a block that the answer closes.
  const ChatRenderer opens = renderer(
      "{% for m in messages %}{{ '<' + m.role + '>' + m.content + '<end>' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<assistant><think>\n' }}{% endif %}");
  EXPECT_EQ(trained(opens.render(talk({"q", "<think>\nx</think>a"}), nullptr)), "[x</think>a<end>]");
}

TEST(ChatMask, ReasoningThatIsNotPrintedIsNoted) {
  Json messages = talk({"q", "a"});
  messages[1]["reasoning_content"] = " because ";
  const std::string says = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
  EXPECT_TRUE(renderer(says).render(messages, nullptr).loses_reasoning);
  const std::string prints =
      "{% for m in messages %}{{ m.role }}: {{ m.reasoning_content|trim }}{{ m.content }}\n{% endfor %}";
  EXPECT_FALSE(renderer(prints).render(messages, nullptr).loses_reasoning);
  EXPECT_FALSE(renderer(says).render(talk({"q", "a"}), nullptr).loses_reasoning);
}

TEST(ChatMask, ChatmlPrintsToolCalls) {
  Json messages = talk({"q", "", "r", "b"});
  messages[1]["tool_calls"] =
      Json::parse(R"([{"function": {"name": "f", "arguments": {"a": 1}}}, {"name": "g"}])");
  messages[3]["tool_calls"] = Json::parse(R"([{"name": "h"}])");
  EXPECT_EQ(
      trained(renderer(*built_in_template("chatml")).render(messages, nullptr)),
      "[<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>\n{\"name\": "
      "\"g\"}\n</tool_call><|im_end|>][b\n<tool_call>\n{\"name\": \"h\"}\n</tool_call><|im_end|>]");
}

TEST(ChatMask, RefusesToolCallsThatAreNotPrinted) {
  const Json tools = Json::parse(R"([{"function": {"name": "add"}}])");
  Json messages = talk({"q", ""});
  messages[1]["tool_calls"] = Json::parse(R"([{"function": {"name": "add", "arguments": {"a": 1}}}])");
  const auto render = [&](const std::string& prints) {
    const auto calls = renderer(
        "{{ tools|tojson }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls %}" +
        prints + "{% endfor %}<end>{% endfor %}");
    return trained(calls.render(messages, tools));
  };
  EXPECT_EQ(render("{{ c.function.name }}{{ c.function.arguments }}"), "[<assistant>add{'a': 1}<end>]");
  for (const char* prints : {"", "{{ c.name }}{{ c.function.arguments }}", "{{ c.function.name }}"})
    EXPECT_THAT(fault_of([&] { render(prints); }),
                HasSubstr("does not print name and arguments of the tool calls in turn 2"))
        << prints;
}

TEST(ChatMask, FindsTurnsWithoutAPromptForGeneration) {
  const auto upper = renderer("{% for m in messages %}{{ m.role|upper }}: {{ m.content|trim }};{% endfor %}");
  EXPECT_EQ(trained(upper.render(talk({"q", " a ", "r", "b"}), nullptr)), "[ASSISTANT: a;][ASSISTANT: b;]");
}

TEST(ChatMask, PrefersGenerationBlocks) {
  const auto marks = renderer(
      "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}.{% "
      "endgeneration %}{% "
      "else %}{{ m.content }}{% endif %}\n{% endfor %}");
  Json messages = talk({"q", "a", "r", "b"});
  EXPECT_EQ(trained(marks.render(messages, nullptr)), "[a.][b.]");
  messages[1]["weight"] = 0;
  EXPECT_EQ(trained(marks.render(messages, nullptr)), "[b.]");
}

TEST(ChatMask, LeavesOutWhatIsNotTrained) {
  const auto chatml = renderer(*built_in_template("chatml"));
  Json messages = talk({"q", "a", "r", "b"});
  EXPECT_EQ(trained(chatml.render(messages, nullptr, 2)), "[b<|im_end|>]");
  messages[3]["weight"] = 0;
  EXPECT_EQ(trained(chatml.render(messages, nullptr)), "[a<|im_end|>]");
}

TEST(ChatMask, CountsTurnsWithoutEndMark) {
  EXPECT_EQ(renderer(*built_in_template("chatml")).render(talk({"q", "a"}), nullptr).num_open_turns, 0);
  EXPECT_EQ(renderer("{% for m in messages %}{{ m.content }}\n{% endfor %}")
                .render(talk({"q", "a"}), nullptr)
                .num_open_turns,
            1);
}

TEST(ChatMask, RefusesWhatItCannotTell) {
  const auto lengths =
      renderer("{{ messages|length }}{% for m in messages %}{{ m.content|length }}{% endfor %}");
  EXPECT_THAT(fault_of([&] {
                lengths.render(talk({"q", "a", "r", "b"}), nullptr);
              }),
              HasSubstr("cannot locate the assistant's turn 2 in the rendered conversation"));
  const auto raises = renderer("\n{{ raise_exception('no system') }}");
  EXPECT_EQ(fault_of([&] {
              raises.render(talk({"q", "a"}), nullptr);
            }),
            "t:2: the template refuses: no system");
}

/// Ids as text, trained tokens in brackets.
std::string shown(const Tokens& tokens, const Tokenizer& tokenizer) {
  std::string text;
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    const std::string token = tokenizer.decode(std::span(tokens.ids).subspan(i, 1));
    text += tokens.trained[i] != 0 ? "[" + token + "]" : token + "|";
  }
  return text;
}

TEST(MarkedEncoder, MarksTheTokensOfASpan) {
  const ToyTokenizer tokenizer({"hello", "you:"}, {"<end>"});
  const MarkedEncoder encoder(tokenizer);
  EXPECT_EQ(shown(encoder.encode({.text = "you:hello<end>\n", .trained = {{4, 14}}}), tokenizer),
            "you:|[hello][<end>]\n|");
  EXPECT_EQ(shown(encoder.encode({.text = "ab", .trained = {{0, 1}, {1, 2}}}), tokenizer), "[a][b]");
  EXPECT_EQ(shown(encoder.encode({.text = "ab"}), tokenizer), "a|b|");
}

TEST(MarkedEncoder, ATokenThatReachesAcrossAMarkIsTrained) {
  const ToyTokenizer tokenizer({"\n\n", "a\n", "bc"});
  const MarkedEncoder encoder(tokenizer);
  EXPECT_EQ(shown(encoder.encode({.text = "x\n\nbca\n", .trained = {{2, 6}}}), tokenizer),
            "x|[\n\n][bc][a\n]");
}

TEST(MarkedEncoder, KnowsTheBlankThatSentencePieceAdds) {
  const ToyTokenizer tokenizer({" hello", " you:", "bye", "[/INST]"}, {"</s>"}, ToyTokenizer::Start::blank);
  const MarkedEncoder encoder(tokenizer);
  EXPECT_EQ(shown(encoder.encode({.text = "you: hello</s>bye", .trained = {{4, 14}}}), tokenizer),
            " you:|[ hello][</s>]bye|");
  EXPECT_EQ(shown(encoder.encode({.text = "you: hello", .trained = {{5, 10}}}), tokenizer), " you:|[ hello]");
}

TEST(MarkedEncoder, ATokenThatTakesTheSpaceAtATemplatesMarkIsTrained) {
  // As a special token of Phi-3, which takes the white space to its right.
  struct Strips : ToyTokenizer {
    Strips() : ToyTokenizer({}, {"<a>"}) {}
    void encode(std::string_view text, SpecialTokens special, std::vector<int32_t>& ids) const override {
      const size_t at = text.find("<a>");
      const size_t end =
          at == text.npos ? text.size() : std::min(text.find_first_not_of(" \n", at + 3), text.size());
      ToyTokenizer::encode(text.substr(0, at == text.npos ? end : at + 3), special, ids);
      ToyTokenizer::encode(text.substr(end), special, ids);
    }
  };
  const Strips tokenizer;
  const MarkedEncoder encoder(tokenizer);
  for (const bool by_template : {true, false}) {
    const std::string eaten = by_template ? "x|[<a>][y]" : "x|<a>|[y]";
    EXPECT_EQ(shown(encoder.encode({.text = "x<a>\n y", .trained = {{5, 7}}, .by_template = by_template}),
                    tokenizer),
              eaten);
    EXPECT_EQ(shown(encoder.encode({.text = "x<a>\n y", .trained = {{6, 7}}, .by_template = by_template}),
                    tokenizer),
              "x|<a>|[y]");
  }
}

TEST(MarkedEncoder, IdsAreThoseOfTheWholeTextWhereverTheMarksLie) {
  for (const auto start : {ToyTokenizer::Start::as_is, ToyTokenizer::Start::blank}) {
    const ToyTokenizer tokenizer({" hello", "lo", "he", "\n\n", "o\n", " \n", "<|", "us"},
                                 {"<|end|>", "<|user|>"}, start);
    const std::string text = " hello<|end|>\n\n<|user|>he\no\n \nhello <|end|><|user|>lolo\n\n";
    std::vector<int32_t> whole;
    tokenizer.encode(text, SpecialTokens::parsed, whole);
    const MarkedEncoder encoder(tokenizer);
    const size_t shift = start == ToyTokenizer::Start::blank ? 1 : 0;
    for (size_t a = 0; a < text.size(); ++a) {
      for (size_t b = a + 1; b < text.size(); b += 3) {
        const Span last{static_cast<int64_t>(b), std::ssize(text)};
        const Tokens tokens =
            encoder.encode({.text = text, .trained = {{static_cast<int64_t>(a), last.first}, last}});
        ASSERT_EQ(tokens.ids, whole);
        for (size_t i = 0, at = 0; i < whole.size(); ++i) {
          at += tokenizer.decode(std::span(whole).subspan(i, 1)).size();
          ASSERT_EQ(tokens.trained[i] != 0, a == 0 || at > a + shift) << text.substr(a) << " at token " << i;
        }
      }
    }
  }
}

TEST(AddEnds, NeverDoubles) {
  Tokens tokens{.ids = {1, 5, 6}, .trained = {0, 0, 1}};
  add_ends(tokens, 1, 2);
  EXPECT_EQ(tokens, (Tokens{.ids = {1, 5, 6, 2}, .trained = {0, 0, 1, 1}}));
  add_ends(tokens, 1, 2);
  EXPECT_EQ(tokens.ids, (std::vector<int32_t>{1, 5, 6, 2}));
  Tokens bare{.ids = {5}, .trained = {1}};
  add_ends(bare, 1, std::nullopt);
  EXPECT_EQ(bare, (Tokens{.ids = {1, 5}, .trained = {0, 1}}));
}

TEST(ChatOptions, VariablesAreWhatJsonSaysElseStrings) {
  ChatOptions options;
  for (const char* text : {"a=false", "b=1", "c=low", "d=\"1\"", "e=", "f=[1, 2]", "g=x=y", "h=1e999"})
    add_variable(options, text);
  EXPECT_EQ(options.variables.dump(),
            R"({"a":false,"b":1,"c":"low","d":"1","e":"","f":[1,2],"g":"x=y","h":"1e999"})");
  EXPECT_EQ(second_of_day("1970-01-02"), 86'400);
  for (const char* day :
       {"", "2023-02-29", "2023-1-1", "2023-01-01x", "23-01-0001", "-023-01-01", "2023/01/01"})
    EXPECT_FALSE(second_of_day(day)) << day;
}

TEST(ChatSetup, ReadsTokenizerConfigAndPrefersTheFileOfItsOwn) {
  const TemporaryFolder folder;
  EXPECT_FALSE(read_chat_setup(folder.path()).chat_template);
  std::ofstream(folder.path() / "tokenizer_config.json")
      << R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": [{"name": "tool_use", "template": "t"},
             {"name": "default", "template": "d"}]})";
  const ChatSetup setup = read_chat_setup(folder.path());
  EXPECT_EQ(setup.bos_token, "<s>");
  EXPECT_EQ(setup.eos_token, "</s>");
  EXPECT_EQ(setup.chat_template, "d");
  std::ofstream(folder.path() / "chat_template.jinja") << "own";
  EXPECT_EQ(read_chat_setup(folder.path()).chat_template, "own");
  std::ofstream(folder.path() / "tokenizer_config.json") << "{";
  EXPECT_THAT(fault_of([&] { read_chat_setup(folder.path()); }),
              HasSubstr("tokenizer_config.json: this is not a JSON object"));
}

TEST(ChatMask, QwenTemplates) {
  HEARTH_SHARED_DATA(folder, "tokenizers/qwen");
  for (const char* file : {"qwen2.5_tokenizer_config.json", "qwen3_tokenizer_config.json"}) {
    const Json config = Json::parse(read_file(folder / file));
    const auto qwen = renderer(config["chat_template"].get<std::string>());
    const MarkedText marked =
        qwen.render(talk({"q", "<think>\nx\n</think>\n\none", "r", "<think>\ny\n</think>\n\ntwo"}), nullptr);
    const bool strips = std::string(file).starts_with("qwen3");
    EXPECT_EQ(trained(marked),
              strips ? "[one<|im_end|>][<think>\ny\n</think>\n\ntwo<|im_end|>]"
                     : "[<think>\nx\n</think>\n\none<|im_end|>][<think>\ny\n</think>\n\ntwo<|im_end|>]");
  }
}

}  // namespace
}  // namespace hearth::text
