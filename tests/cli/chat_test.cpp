#include "cli/program.h"
#include "tiny_language_model.h"

namespace hearth {
namespace {

using testing::HasSubstr;
using testing::Not;

/// A new tiny model from the recipe for pretraining, and conversations.
class Chat : public Program {
 protected:
  Chat() {
    write_tiny_model(at("model"));
    std::string chats, text;
    for (int i = 0; i < 30; ++i) {
      chats += chat_line("question " + std::to_string(i), "answer " + std::to_string(i));
      text += "a line of text " + std::to_string(i) + "\n";
    }
    put("chat.jsonl", chats);
    put("text.txt", text);
  }

  /// Folders of caches and runs, short rows and few steps.
  static std::string small(const std::string& line) {
    return "export XDG_CACHE_HOME=$PWD/cache; hearth " + line +
           " data.context=64 train.batch=2 train.log_every=1 schedule.warmup_steps=0 threads=1";
  }
  static std::string on_chat(const std::string& more = "") {
    return small("train llama-full model=base data=chat.jsonl train.epochs=1 train.accumulate=2 " + more);
  }
  static std::string pretrain() {
    return small(
        "train pretrain-llama --out base model.config=model/config.json data=text.txt train.steps=2");
  }
  void refused_and_clean(const std::string& line, const std::vector<std::string>& parts) const {
    refused(line, parts);
    EXPECT_FALSE(has("runs")) << line;
    EXPECT_FALSE(has("cache/hearth") && !fs::is_empty(at("cache/hearth"))) << line;
  }
};

TEST_F(Chat, FromANewModelToAFineTunedOne) {
  works(pretrain());
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    EXPECT_TRUE(has(std::string("base/") + name)) << name;
  EXPECT_EQ(get("base/tokenizer.json"), get("model/tokenizer.json"));
  const std::string out = works(on_chat("data.template=chatml"));
  EXPECT_THAT(out, HasSubstr("28 samples in "));
  EXPECT_THAT(out, HasSubstr("tokens trained; 2 rows held out"));
  EXPECT_THAT(get("runs/llama-full/chat_template.jinja"), HasSubstr("<|im_start|>"));
  EXPECT_FALSE(fs::is_empty(at("cache/hearth")));
  EXPECT_THAT(get("runs/llama-full/report.html"), Not(HasSubstr("Confusion matrix")));
  EXPECT_THAT(works("export XDG_CACHE_HOME=$PWD/cache; hearth eval runs/llama-full"),
              HasSubstr("perplexity"));
}

TEST_F(Chat, AnotherFolderForTokens) {
  works(pretrain() + " data.cache=mine");
  EXPECT_FALSE(has("cache/hearth"));
  EXPECT_FALSE(fs::is_empty(at("mine")));
  refused(
      "unset HOME XDG_CACHE_HOME; hearth train pretrain-llama model.config=model/config.json data=text.txt",
      {"data.cache=DIR"});
}

TEST_F(Chat, ValidateShowsWhatTheLossCounts) {
  const std::string line =
      small("validate pretrain-llama model.config=model/config.json model.tokenizer=model data=chat.jsonl");
  const std::string out = works(line);
  EXPECT_THAT(out, HasSubstr("chat.jsonl:3 (openai, "));
  EXPECT_THAT(out, Not(HasSubstr("chat.jsonl:4 ")));
  EXPECT_THAT(out, HasSubstr("<|im_start|>assistant\n{+answer 2<|im_end|>+}"));
  EXPECT_THAT(out, HasSubstr("30 samples (30 openai)"));
  EXPECT_THAT(out, HasSubstr("33..64      |####"));
  EXPECT_THAT(out, HasSubstr("no bad records"));
  EXPECT_THAT(out, HasSubstr("the recipe is well-formed"));
  EXPECT_FALSE(has("runs"));
}

TEST_F(Chat, ATerminalDimsWhatTheLossDoesNotCount) {
  if (std::system("command -v script >/dev/null") != 0) GTEST_SKIP() << "SKIPPED: there is no script(1)";
  const auto shown = [&](const std::string& before) {
    return shell(fmt::format("script -qec '{}{} validate llama-full model=model data=chat.jsonl "
                             "data.cache=cache' /dev/null </dev/null",
                             before, kProgram))
        .out;
  };
  EXPECT_THAT(shown("unset NO_COLOR; "), HasSubstr("\x1b[0manswer 2<|im_end|>\x1b[2m"));
  EXPECT_THAT(shown("NO_COLOR=1 "), HasSubstr("{+answer 2<|im_end|>+}"));
}

TEST_F(Chat, ValidateNamesBadLines) {
  put("chat.jsonl", chat_line("a", "b") + "{\"messages\": [}\n" + chat_line("a", "") + "[]\n");
  const Result result = shell(small("validate llama-full model=model data=chat.jsonl"));
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.out,
              HasSubstr("chat.jsonl:2: expected JSON in UTF-8, but it breaks at byte 15 of 15\n"));
  EXPECT_THAT(result.out, HasSubstr("chat.jsonl:3: turn 2 (assistant) is empty\n"));
  EXPECT_THAT(result.out, HasSubstr("chat.jsonl:4: expected a JSON object, got array\n"));
  EXPECT_EQ(result.err, "hearth: 3 invalid records in chat.jsonl; fix them, or set data.bad_records=skip\n");
}

TEST_F(Chat, BadRecordsMayBeSkippedAndAreCounted) {
  works(pretrain());
  put("chat.jsonl", get("chat.jsonl") + "{\"messages\": [}\n" + chat_line("a", "") + "[]\n");
  refused(on_chat(), {"chat.jsonl:31: expected JSON", "and 2 more bad records"});
  // From the data, then from the tokens that were kept.
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(works(on_chat("data.bad_records=skip --out skips" + std::to_string(i))),
                testing::AllOf(HasSubstr("28 samples in "), HasSubstr(", 3 bad records left out), ")));
    EXPECT_THAT(get(fmt::format("skips{}/report.html", i)), HasSubstr("training samples"));
  }
  EXPECT_THAT(works(small("validate llama-full model=base data=chat.jsonl data.bad_records=skip")),
              testing::AllOf(HasSubstr("3 bad records: "), HasSubstr(", 3 bad records left out), "),
                             HasSubstr("the recipe is well-formed; 3 bad records are skipped\n")));
  refused(on_chat(), {"chat.jsonl:31: expected JSON"});
}

TEST_F(Chat, ARunKeepsTheDateAndTheVariablesOfItsTemplate) {
  works(pretrain());
  put("base/chat_template.jinja",
      "{{ strftime_now('%d %b %Y') }}{{ filler }}\n{% for m in messages %}<|im_start|>{{ m.role }}\n{{ "
      "m.content "
      "}}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  const std::string variables = "data.variables=[filler=0123456789] ";
  EXPECT_THAT(
      works(small("validate llama-full model=base data=chat.jsonl data.date=2024-02-29 " + variables)),
      HasSubstr("29 Feb 20240123456789\n<|im_start|>user"));
  works(on_chat(variables + "--out a data.date=2024-02-29"));
  EXPECT_THAT(get("a/config.yaml"),
              testing::AllOf(HasSubstr("date: \"2024-02-29\""), HasSubstr("filler=0123456789")));
  works(on_chat("--out b"));
  EXPECT_THAT(get("b/config.yaml"), testing::ContainsRegex("date: \"20[0-9][0-9]-[01][0-9]-[0-3][0-9]\""));
  // Resumed or evaluated on another day, the run goes by its own.
  std::string config = get("b/config.yaml");
  config.replace(config.find("date: \"20") + 7, 10, "2001-02-03");
  put("b/config.yaml", config);
  works(on_chat("--resume --out b train.epochs=2"));
  EXPECT_THAT(get("b/config.yaml"), HasSubstr("date: \"2001-02-03\""));
  const auto prompt_of = [&](const std::string& run) {
    const std::string said = shell("hearth generate " + run + " --chat --prompt q --max-tokens 1").err;
    return said.substr(said.find(" prompt of ") + 11, 3);
  };
  EXPECT_EQ(std::stoi(prompt_of("a")), std::stoi(prompt_of("b")) + 10);
  refused(on_chat("data.date=2023-02-29"), {"data.date must be a date like 2026-11-24", "2023-02-29"});
  refused(on_chat("data.variables=[a-b=1]"), {"like enable_thinking=false", "a-b=1"});
  refused(on_chat("data.variables=[messages=1]"), {"data.variables sets 'messages'", "remove it"});
}

TEST_F(Chat, MistakesInTheData) {
  works(pretrain() + " data.cache=mine");
  std::string lines;
  for (int i = 1; i < 1'000'000; ++i) lines += "{\"text\":\"a\"}\n";
  put("chat.jsonl", lines + "{\"text\":\"a}\n");
  refused_and_clean(on_chat(), {"chat.jsonl:1000000: expected JSON", "hearth validate"});
  put("chat.jsonl", chat_line("a", "b") + chat_line("a", " "));
  refused_and_clean(on_chat(), {"chat.jsonl:2: turn 2 (assistant) is empty"});
  put("chat.jsonl", "");
  refused_and_clean(on_chat(), {"chat.jsonl", "the file is empty"});
  refused_and_clean(small("train llama-full model=base data=none.jsonl"),
                    {"cannot open none.jsonl", "try data=FILE.jsonl"});
  put("chat.jsonl", chat_line("a", "b") + chat_line("a", std::string(60, 'b')) + chat_line("a", "b"));
  refused(on_chat("data.overlong=refuse"),
          {"chat.jsonl:2: the sample has ", " tokens, more than data.context=64"});
  EXPECT_FALSE(has("runs"));
}

TEST_F(Chat, MistakesInModelAndTemplate) {
  works(pretrain() + " data.cache=mine");
  put("odd.jinja", "{{ messages }}\n{% macro x %}");
  refused_and_clean(on_chat("data.template=odd.jinja"), {"odd.jinja:2"});
  refused_and_clean(on_chat("data.template=chatmal"), {"did you mean 'chatml'?"});
  refused_and_clean(on_chat("data.fields=[promt=a]"), {"'promt'", "did you mean 'prompt'?"});
  refused_and_clean(on_chat("data.fields=[prompt]"), {"data.fields like [prompt=question"});
  fs::remove(at("base/chat_template.jinja"));
  refused_and_clean(on_chat(), {"chat template", "data.template"});
  write_tiny_model(at("base"), 99);
  refused_and_clean(on_chat(), {"the model has 99 tokens (base/config.json)", "the tokenizer has 100 (base"});
}

}  // namespace
}  // namespace hearth
