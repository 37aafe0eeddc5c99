#include "cli/program.h"
#include "tiny_language_model.h"

namespace hearth {
namespace {

using testing::HasSubstr;

/// A teacher that is trained for a few steps, and a recipe of its student.
class Distill : public Program {
 protected:
  Distill() {
    write_tiny_model(at("model"));
    std::string text;
    for (int i = 0; i < 60; ++i) text += fmt::format("line {} of a short text\n", i * 37 % 60);
    put("text.txt", text);
    put("student.yaml", R"(model: {config: model/config.json}
data: {path: text.txt, cache: cache, context: 32, val_share: 0.2}
train: {steps: 6, batch: 4, log_every: 1, checkpoint_every: 3}
optimizer: {name: adamw, lr: 0.01}
schedule: {name: constant}
threads: 1
seed: 5
)");
    works("hearth train student.yaml --out teacher train.steps=30 seed=6");
  }
  std::string capture(const std::string& more = "") const {
    return works("hearth distill capture teacher --recipe student.yaml --out t.kd " + more);
  }
  static std::string student(const std::string& out, const std::string& more = "") {
    return "hearth train student.yaml distill.from=t.kd --out " + out + " " + more;
  }
};

TEST_F(Distill, CaptureGivesTheSameBytesHoweverOftenItIsInterrupted) {
  EXPECT_THAT(capture("--top-k 5"), HasSubstr("t.kd: the 5 most likely tokens after each of"));
  const std::string whole = get("t.kd");
  cut("t.kd", 40);
  EXPECT_THAT(capture("--top-k 5"), HasSubstr("by an earlier capture"));
  EXPECT_EQ(get("t.kd"), whole);
  EXPECT_THAT(capture("--top-k 5 threads=2"), HasSubstr("by an earlier capture"));
  fs::remove(at("t.kd"));
  capture("--top-k 5 threads=2");
  EXPECT_EQ(get("t.kd"), whole);
  const std::string named = works("hearth distill capture teacher --top-k 5");
  EXPECT_THAT(named, HasSubstr("cache/text-"));
  EXPECT_EQ(get(named.substr(0, named.find(':'))), whole);
}

TEST_F(Distill, AStudentWithTheTeachersWeightsHasNothingToLearn) {
  capture("--top-k 100");
  works(student("same", "distill.weight=1 init=teacher/model.safetensors train.steps=1"));
  const std::string log = get("same/trainer_log.jsonl"), key = "\"loss\":";
  EXPECT_LT(std::abs(std::stod(log.substr(log.find(key) + key.size()))), 1e-4);
}

TEST_F(Distill, APausedRunEndsWithTheSameBits) {
  capture("--top-k 8");
  for (const char* loss : {"forward", "reverse", "jsd"}) {
    const std::string keys = fmt::format("distill.temperature=2 distill.loss={} ", loss);
    works(student("whole", keys));
    works(student("parts", keys + "train.steps=3"));
    works("hearth train --resume --out parts train.steps=6");
    EXPECT_EQ(get("whole/model.safetensors"), get("parts/model.safetensors")) << loss;
    EXPECT_THAT(works("hearth eval whole"), HasSubstr("perplexity"));
    fs::remove_all(at("whole"));
    fs::remove_all(at("parts"));
  }
}

TEST_F(Distill, ATeacherThatRunsDuringTrainingGivesWhatItsFileGives) {
  capture("--top-k 8");
  works(student("by_file", "distill.loss=reverse"));
  const std::string online =
      "hearth train student.yaml distill.from=teacher distill.top_k=8 distill.loss=reverse ";
  works(online + "--out online");
  // The file stores log-probabilities in f16.
  EXPECT_NEAR(last_eval_loss("online"), last_eval_loss("by_file"), 1e-3);
  works(online + "--out parts train.steps=3");
  works("hearth train --resume --out parts train.steps=6");
  EXPECT_EQ(get("online/model.safetensors"), get("parts/model.safetensors"));
  EXPECT_THAT(works("hearth eval online"), HasSubstr("perplexity"));
  works(online + "--out same distill.weight=1 init=teacher/model.safetensors train.steps=1");
  const std::string log = get("same/trainer_log.jsonl"), key = "\"loss\":";
  EXPECT_LT(std::abs(std::stod(log.substr(log.find(key) + key.size()))), 1e-5);
}

TEST_F(Distill, TheTeacherChangesTheStudent) {
  capture("--top-k 8");
  works("hearth train student.yaml --out alone train.steps=3");
  works(student("taught", "train.steps=3"));
  works(student("zero", "train.steps=3 distill.weight=0"));
  EXPECT_NE(get("alone/model.safetensors"), get("taught/model.safetensors"));
  EXPECT_NEAR(last_eval_loss("alone"), last_eval_loss("zero"), 1e-4);
  EXPECT_GT(std::abs(last_eval_loss("alone") - last_eval_loss("taught")), 1e-3);
}

TEST_F(Distill, OtherRowsAndDamagedFilesAreRefused) {
  capture("--top-k 8");
  refused(student("run", "data.context=16"), {"t.kd was captured with data.context=32", "data.context=16"});
  refused(student("run", "data.val_share=0.5"), {"t.kd was captured from other data", "capture again"});
  refused("hearth distill capture teacher --recipe student.yaml --out t.kd --top-k 9",
          {"t.kd was captured from another teacher", "--top-k"});
  cut("t.kd", 1);
  refused(student("run"), {"t.kd has", "run hearth distill capture again"});
  put("t.kd", "no file of a teacher");
  refused(student("run"), {"t.kd is not a teacher file"});
  refused("hearth train student.yaml distill.from=none.kd --out run",
          {"there is no teacher file 'none.kd'", "hearth distill capture"});
  EXPECT_FALSE(has("run"));
}

TEST_F(Distill, AnotherTokenizerIsRefused) {
  capture("--top-k 8");
  std::string tokenizer = get("model/tokenizer.json");
  put("other/config.json", get("model/config.json"));
  // Swaps the ids of two tokens that do not occur in the text.
  tokenizer.replace(tokenizer.find("\"Q\": 49"), 7, "\"Q\": 58");
  tokenizer.replace(tokenizer.find("\"Z\": 58"), 7, "\"Z\": 49");
  put("other/tokenizer.json", tokenizer);
  refused(student("run", "model.config=other/config.json"), {"t.kd", "another tokenizer", "same tokenizer"});
  refused(student("run", "model.config=other/config.json distill.from=teacher"),
          {"distill.from=teacher", "another tokenizer"});
}

TEST_F(Distill, KeysWithoutEffectAreRefused) {
  capture("--top-k 8");
  refused(student("run", "distill.top_k=9"),
          {"distill.top_k is for a teacher in a folder", "8 tokens per entry"});
  const std::string train = "hearth train student.yaml --out run ";
  refused(train + "distill.weight=0.2", {"distill.weight has no effect without a teacher"});
  refused(train + "distill.from=t.kd distill.beta=0.2", {"distill.beta has no effect", "distill.loss=jsd"});
  refused("hearth train tiny.yaml --out run distill.from=t.kd",
          {"distill.from is for language models", "classify"});
  put("pairs.jsonl", preference_line("a", "b", "c") + preference_line("d", "e", "f"));
  refused(train + "train.objective=dpo data=pairs.jsonl distill.from=t.kd",
          {"distill.from is for language models", "preference"});
}

}  // namespace
}  // namespace hearth
