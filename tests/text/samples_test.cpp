#include "text/samples.h"

#include <fstream>

#include "expect_fault.h"
#include "shared_data.h"
#include "temporary_folder.h"
#include "text/inspect.h"
#include "toy_tokenizer.h"

namespace hearth::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Samples : public testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& contents) {
    std::ofstream(folder_.path() / name, std::ios::binary) << contents;
    return folder_.path() / name;
  }
  /// The tokens of every sample, trained ones in brackets.
  std::vector<std::string> read(const fs::path& path, const SampleOptions& options,
                                TextUnit unit = TextUnit::file) {
    const DataFile file(path, unit);
    std::vector<std::string> found;
    SampleReader(file, tokenizer_, options)
        .for_each([&](const Sample& sample) { found.push_back(show(sample)); }, faults_);
    return found;
  }
  std::string show(const Sample& sample) const {
    std::string text = show_tokens(sample.tokens, tokenizer_, Marking::signs);
    if (sample.rejected) text += " not " + show_tokens(*sample.rejected, tokenizer_, Marking::signs);
    return text + (sample.continues ? "..." : "");
  }

  TemporaryFolder folder_;
  Faults faults_;
  ToyTokenizer tokenizer_{{"\n\n"}, {"<s>", "</s>", "<|im_end|>"}};
  const int32_t bos_ = *tokenizer_.id_of("<s>");
  const int32_t eos_ = *tokenizer_.id_of("</s>");
};

TEST_F(Samples, DocumentsGetTheirEnds) {
  const SampleOptions options{.bos = bos_, .eos = eos_};
  EXPECT_THAT(read(write("a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"<s>c</s>\"}\n"), options),
              ElementsAre("<s>{+ab</s>+}", "{+<s>c</s>+}"));
  EXPECT_THAT(read(write("a.txt", "one\n\ntwo\n"), options, TextUnit::paragraph),
              ElementsAre("<s>{+one</s>+}", "<s>{+two</s>+}"));
}

TEST_F(Samples, AnswersAreTrainedWithoutATemplateToo) {
  const SampleOptions options{.chat = {.bos_token = "<s>", .eos_token = "</s>"}, .bos = bos_, .eos = eos_};
  EXPECT_THAT(read(write("a.jsonl", R"({"question": "q=", "answer": "a"})"), options),
              ElementsAre("<s>q={+a</s>+}"));
  EXPECT_THAT(
      fault_of([&] {
        read(
            write(
                "b.jsonl",
                R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})"),
            options);
      }),
      HasSubstr("openai data needs a chat template"));
}

TEST_F(Samples, TheTemplatesBosStandsAlone) {
  const SampleOptions options{.chat_template =
                                  "{{ bos_token }}{% for m in messages %}{{ m.content }}{% if m.role == "
                                  "'assistant' %}{{ eos_token }}{% endif %}{% endfor %}",
                              .chat = {.bos_token = "<s>", .eos_token = "</s>"},
                              .bos = bos_,
                              .eos = eos_};
  EXPECT_THAT(read(write("a.jsonl", R"({"prompt": "q", "completion": "a"})"), options),
              ElementsAre("<s>q{+a</s>+}"));
}

TEST_F(Samples, PreferencesTrainTheAnswersOnly) {
  const SampleOptions options{.chat_template = *built_in_template("chatml")};
  EXPECT_THAT(read(write("a.jsonl", R"({"prompt": "q", "chosen": "good", "rejected": "bad"})"), options),
              ElementsAre("<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n{+good<|im_end|>+}\n not "
                          "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n{+bad<|im_end|>+}\n"));
}

TEST_F(Samples, BadRecordsAreCountedAndNamed) {
  const auto path = write("a.jsonl",
                          "{\"prompt\": \"q\", \"completion\": \"a\"}\n{\"prompt\": \"q\", \"completion\": "
                          "\"\"}\nnonsense\n{\"x\": 1}\n");
  EXPECT_EQ(read(path, {}).size(), 1U);
  EXPECT_THAT(faults_.sentences(),
              ElementsAre(path.string() + ":2: turn 2 (assistant) is empty",
                          HasSubstr("a.jsonl:3: expected JSON"), HasSubstr("a.jsonl:4: the fields (")));
}

TEST_F(Samples, AnUnsupportedTemplateIsRefusedAtOnce) {
  const DataFile file(write("a.jsonl", "{\"text\": \"a\"}"));
  EXPECT_EQ(fault_of([&] {
              SampleReader(file, tokenizer_,
                           {.chat_template = "\n{% include x %}", .template_name = "chat_template.jinja"});
            }),
            "chat_template.jinja:2: the tag {% include %} is not supported here");
}

TEST_F(Samples, FingerprintsDiffer) {
  const DataFile file(write("a.jsonl", "{\"text\": \"a\"}"));
  const auto of = [&](const SampleOptions& options) {
    return SampleReader(file, tokenizer_, options).fingerprint();
  };
  EXPECT_EQ(of({}), of({}));
  EXPECT_NE(of({}), of({.chat_template = "x"}));
  EXPECT_NE(of({}), of({.format = {.fields = {{"text", "y"}}}}));
  EXPECT_NE(of({}), of({.bos = 1}));
}

TEST_F(Samples, InspectShowsSamplesCountsAndFaults) {
  const DataFile file(write("a.jsonl",
                            "{\"prompt\": \"q\", \"completion\": \"a\\u001b\"}\n{\"prompt\": \"qq\", "
                            "\"completion\": \"aaa\"}\n[]\n"));
  const SampleReader reader(file, tokenizer_, {.chat = {.eos_token = "</s>"}});
  const InspectOptions options{.marking = Marking::color, .num_shown = 1, .context = 4};
  const TextSummary summary = summarize(reader, options);
  EXPECT_EQ(summary.num_samples, 2);
  EXPECT_EQ(summary.num_tokens, 10);
  EXPECT_EQ(summary.num_trained, 7);
  EXPECT_EQ(summary.num_overlong, 1);
  const std::string text = describe(summary, reader, options);
  EXPECT_THAT(text, HasSubstr("a.jsonl:1 (prompt_completion, 4 tokens)\n\x1b[2mq\x1b[0ma\\x1b</s>\n"));
  EXPECT_THAT(text, HasSubstr("2 samples (2 prompt_completion)\n10 tokens, 70.0% of them trained\n"));
  EXPECT_THAT(text, HasSubstr("1 samples are longer than the context of 4 tokens\n"));
  EXPECT_THAT(text, HasSubstr("1 bad records: 1 no object\n"));
  EXPECT_THAT(text, HasSubstr("a.jsonl:3: expected a JSON object, got array\n"));
}

TEST(LengthHistogram, CountsByPowersOfTwo) {
  EXPECT_EQ(length_histogram({1, 3, 4, 5, 5, 5, 5}),
            "       0..1       |##########                              | 1\n"
            "       2..2       |                                        | 0\n"
            "       3..4       |####################                    | 2\n"
            "       5..8       |########################################| 4\n");
}

struct DataCase {
  const char* file;
  int64_t num_samples;
  int64_t num_faults;
};

/// What the counts of the same files are, taken by Python's json.
TEST(SharedText, EveryFormatIsRead) {
  HEARTH_SHARED_DATA(folder, "text");
  const ToyTokenizer tokenizer({}, {"<|im_start|>", "<|im_end|>"});
  for (const DataCase& one : {DataCase{"llamafactory_demo/alpaca_en_demo.json", 999, 0},
                              {"llamafactory_demo/c4_demo.jsonl", 300, 0},
                              {"llamafactory_demo/glaive_toolcall_en_demo.json", 300, 0},
                              {"llamafactory_demo/dpo_en_demo.json", 300, 0},
                              {"llamafactory_demo/v1_sft_demo.jsonl", 500, 0},
                              {"llamafactory_demo/v1_dpo_demo.jsonl", 10, 0},
                              {"llamafactory_demo/v1_multimodal_demo.jsonl", 0, 24},
                              {"torchtune_tiny/chat_tiny.json", 1, 0},
                              {"torchtune_tiny/hh_rlhf_tiny.json", 1, 0},
                              {"torchtune_tiny/instruct_tiny.json", 2, 0},
                              {"gsm8k/test.jsonl", 1319, 0}}) {
    const DataFile file(folder / one.file);
    const SampleReader reader(file, tokenizer, {.chat_template = *built_in_template("chatml")});
    const TextSummary summary = summarize(reader, {});
    EXPECT_EQ(summary.num_samples, one.num_samples) << one.file;
    EXPECT_EQ(summary.faults.total(), one.num_faults)
        << one.file << testing::PrintToString(summary.faults.sentences());
    EXPECT_EQ(summary.num_untrained, 0) << one.file;
  }
}

}  // namespace
}  // namespace hearth::text
