#include "cli/program.h"
#include "io/safetensors.h"
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

TEST_F(Distill, ATeacherInFewerBitsTeachesAlmostAlike) {
  const std::string train = "hearth train student.yaml distill.weight=0.9 ";
  works(train + "distill.from=teacher --out full");
  for (const char* kind : {"int8", "nf4", "fp8"}) {
    const std::string keys = fmt::format("distill.from=teacher distill.quantize={} --out ", kind);
    works(train + keys + kind);
    EXPECT_NEAR(last_eval_loss("full"), last_eval_loss(kind), 2e-2) << kind;
    EXPECT_FALSE(get("full/model.safetensors") == get(std::string(kind) + "/model.safetensors")) << kind;
  }
  works(train + "distill.from=teacher distill.quantize=int8 train.steps=3 --out parts");
  works("hearth train --resume --out parts train.steps=6");
  EXPECT_TRUE(get("int8/model.safetensors") == get("parts/model.safetensors"));
}

/// Surogate's sidecar of a shard with the entries of a captured file: an entry for each token, as long as all
/// training rows are consecutive parts of the shard.
TEST_F(Distill, ASidecarOfSurogateTeachesAsACapturedFileDoes) {
  std::vector<int32_t> tokens(1000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % 89);
  const Shape shape{std::ssize(tokens)};
  const std::vector<io::TensorView> views = {
      {.name = "tokens", .dtype = DType::i32, .shape = shape, .bytes = std::as_bytes(std::span(tokens))}};
  io::write_safetensors(at("tokens.safetensors"), views);
  const std::string data = " data.path=tokens.safetensors ";
  capture("--top-k 5" + data);
  const auto text_of = [](auto values) {
    const auto bytes = std::as_bytes(std::span(values));
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  const auto header = [&](const std::string& magic, std::vector<int32_t> fields) {
    std::string made = magic + text_of(fields);
    made.resize(1024);
    return made;
  };
  // The captured file has a header of 64 bytes, and its entries are one block: ids, then log-probabilities.
  const std::string captured = get("t.kd");
  uint64_t num_entries = 0;
  std::memcpy(&num_entries, captured.data() + 16, sizeof(num_entries));
  ASSERT_LT(num_entries, 1000U);
  std::string ids(tokens.size() * 5 * 4, 0), halves(tokens.size() * 5 * 2, 0);
  for (size_t entry = 0; entry < num_entries; ++entry) {
    for (size_t j = 0; j < 5; ++j) {
      // Reverses the order, because ids of Surogate are not ascending.
      const size_t from = 5 * entry + j, to = 5 * entry + 4 - j;
      ids.replace(4 * to, 4, captured, 64 + 4 * from, 4);
      halves.replace(2 * to, 2, captured, 64 + 20 * num_entries + 2 * from, 2);
    }
  }
  put("train-000.bin", header("BIN.TOK\n", {2, 4, 1000, 100, 0, 0}) + text_of(tokens));
  std::string head = header("KD.LOGP\n", {1, 5, 1000, 100, 0, 0});
  head.replace(64, 16, "0123456789abcdef");
  put("train-000.bin.kd", head + ids + halves);
  works(student("by_file", data));
  const std::string train = "hearth train student.yaml" + data + "distill.from=train-000.bin.kd --out ";
  works(train + "by_sidecar");
  EXPECT_TRUE(get("by_file/model.safetensors") == get("by_sidecar/model.safetensors"));
  works(train + "two devices=2 train.shards=2");
  works(train + "one train.shards=2");
  EXPECT_TRUE(get("one/model.safetensors") == get("two/model.safetensors"));
  refused(train + "run data.path=text.txt", {"captured from other tokens than those of text.txt"});
  refused(train + "run data.val_share=0.1", {"has entries for", "data.val_share"});
  refused(train + "run distill.top_k=3", {"distill.top_k"});
  put(".tokenize_hash", "fedcba9876543210\n");
  refused(train + "run", {"'0123456789abcdef'", "'fedcba9876543210'", "distill-capture"});
  put(".tokenize_hash", "0123456789abcdef\n");
  works(train + "again");
  fs::rename(at("train-000.bin"), at("moved"));
  refused(train + "run", {"token shard 'train-000.bin', which does not exist"});
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
          {"distill.top_k is for a teacher that runs during training", "8 tokens per entry"});
  refused(student("run", "distill.quantize=nf4"), {"distill.quantize is for a teacher that runs"});
  const std::string train = "hearth train student.yaml --out run ";
  refused(train + "distill.weight=0.2", {"distill.weight has no effect without a teacher"});
  refused(train + "distill.from=t.kd distill.beta=0.2", {"distill.beta has no effect", "distill.loss=jsd"});
  refused("hearth train tiny.yaml --out run distill.from=t.kd", {"there is no run in 't.kd'"});
  put("pairs.jsonl", preference_line("a", "b", "c") + preference_line("d", "e", "f"));
  refused(train + "train.objective=dpo data=pairs.jsonl distill.from=t.kd",
          {"distill.from is for classification", "language models", "preference"});
}

}  // namespace
}  // namespace hearth
