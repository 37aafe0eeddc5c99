#include <algorithm>

#include "expect_fault.h"
#include "shared_data.h"
#include "text/chat.h"
#include "text/inspect.h"
#include "text/tokenizer.h"

namespace hearth::text {
namespace {

constexpr const char* kLlama2 =
    "{% for message in messages %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + "
    "message['content'].strip() + ' [/INST]' }}{% else %}{{ ' '  + message['content'].strip() + ' ' + "
    "eos_token "
    "}}{% endif %}{% endfor %}";

/// Without a template's help the answer may start with a line's end that its prompt would swallow.
const std::vector<std::string> kAnswers = {"Four.",
                                           "\n\nFour  \n",
                                           "4",
                                           "   1 + 1 = 2",
                                           "\u4e2d\u6587 \U0001f600",
                                           "It's 'four', isn't it?\n\n```cpp\nint x;\n```\n"};

Json talk(const std::string& first, const std::string& second) {
  return Json::array(
      {Json{{"role", "user"}, {"content", "What is 2 + 2?"}}, Json{{"role", "assistant"}, {"content", first}},
       Json{{"role", "user"}, {"content", "Sure?"}}, Json{{"role", "assistant"}, {"content", second}}});
}

/// As transformers has it: every token of the whole text that holds a byte of what is marked.
Tokens by_bytes(const MarkedText& marked, const Tokenizer& tokenizer) {
  Tokens tokens;
  tokenizer.encode(marked.text, SpecialTokens::parsed, tokens.ids);
  int64_t end = 0;
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    const int64_t begin =
        std::exchange(end, end + std::ssize(tokenizer.decode(std::span(tokens.ids).subspan(i, 1))));
    tokens.trained.push_back(std::any_of(marked.trained.begin(), marked.trained.end(), [&](const Span& span) {
      return span.first < end && begin < span.last;
    }));
  }
  return tokens;
}

TEST(RealTokenizer, ByteLevelMasksAreTheTokensOfTheAnswers) {
  HEARTH_SHARED_DATA(folder, "tokenizers/qwen");
  const auto tokenizer = open_tokenizer(folder);
  const ChatSetup setup = read_chat_setup(folder);
  const MarkedEncoder encoder(*tokenizer);
  const ChatRenderer qwen(Template(*setup.chat_template, "qwen"),
                          {.bos_token = setup.bos_token, .eos_token = setup.eos_token});
  const ChatRenderer alpaca(Template(*built_in_template("alpaca"), "alpaca"),
                            {.bos_token = "", .eos_token = "<|endoftext|>"});
  for (const ChatRenderer* renderer : {&qwen, &alpaca}) {
    for (const std::string& answer : kAnswers) {
      const MarkedText marked = renderer->render(talk(answer, kAnswers[0]), nullptr);
      const Tokens tokens = encoder.encode(marked);
      EXPECT_EQ(tokenizer->decode(tokens.ids), marked.text);
      EXPECT_EQ(tokens, by_bytes(marked, *tokenizer)) << answer;
    }
  }
}

TEST(RealTokenizer, WholeTextsKeepTheirIds) {
  HEARTH_SHARED_DATA(folder, "tokenizers");
  for (const auto& [path, source] :
       std::vector<std::pair<std::string, std::string>>{{"qwen", *built_in_template("chatml")},
                                                        {"llama2", kLlama2},
                                                        {"mistral_spm/tokenizer.model.v1", kLlama2}}) {
    const auto tokenizer = open_tokenizer(folder / path);
    const ChatRenderer renderer(Template(source, path), {.bos_token = "<s>", .eos_token = "</s>"});
    const MarkedText marked = renderer.render(talk("It is 4.", "Yes."), nullptr);
    const Tokens tokens = MarkedEncoder(*tokenizer).encode(marked);
    std::vector<int32_t> whole;
    tokenizer->encode(marked.text, SpecialTokens::parsed, whole);
    EXPECT_EQ(tokens.ids, whole) << path;
    EXPECT_GT(std::count(tokens.trained.begin(), tokens.trained.end(), 1), 6) << path;
  }
}

TEST(RealTokenizer, Llama2TrainsAnswerAndEos) {
  HEARTH_SHARED_DATA(folder, "tokenizers/llama2");
  const auto tokenizer = open_tokenizer(folder);
  const ChatRenderer renderer(Template(kLlama2, "llama2"), {.bos_token = "<s>", .eos_token = "</s>"});
  const Tokens tokens = MarkedEncoder(*tokenizer).encode(renderer.render(talk("It is 4.", "Yes."), nullptr));
  EXPECT_EQ(std::count(tokens.ids.begin(), tokens.ids.end(), *tokenizer->bos()), 2);
  EXPECT_EQ(tokens.ids.front(), *tokenizer->bos());
  EXPECT_EQ(tokens.ids.back(), *tokenizer->eos());
  EXPECT_EQ(tokens.trained.back(), 1);
  EXPECT_EQ(show_tokens(tokens, *tokenizer, Marking::signs),
            "<s> [INST] What is 2 + 2? [/INST]{+ It is 4. </s>+}<s> [INST] Sure? [/INST]{+ Yes. </s>+}");
}

}  // namespace
}  // namespace hearth::text
