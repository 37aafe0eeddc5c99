#include "cli/program.h"
#include "tiny_language_model.h"

namespace hearth {
namespace {

using testing::HasSubstr;

/// run/: a tiny model that has learnt by heart to answer "a" with "12 #### 3", and "b" with "no".
class EvalText : public Program {
 protected:
  EvalText() {
    write_tiny_model(at("model"));
    std::string learnt;
    for (int i = 0; i < 8; ++i) learnt += line("a", "12\\n#### 3") + line("b", "no");
    put("learnt.jsonl", learnt);
    put("recipe.yaml",
        "threads: 1\nmodel: {config: model/config.json}\ndata: {path: learnt.jsonl, val_path: learnt.jsonl, "
        "context: 32, cache: cache, template: chatml}\ntrain: {steps: 60, batch: 4}\n"
        "optimizer: {name: adamw, lr: 0.02}\nschedule: {name: constant}\n");
    works("hearth train recipe.yaml --out run");
  }
  static std::string line(const std::string& question, const std::string& answer) {
    return fmt::format("{{\"question\": \"{}\", \"answer\": \"{}\"}}\n", question, answer);
  }
};

TEST_F(EvalText, CountsAnswersThatAgree) {
  put("some.jsonl",
      line("a", "other words\\n#### 3") + line("a", "#### 4") + line("b", " no ") + line("b", "12\\n#### 3"));
  EXPECT_THAT(works("hearth eval run data=some.jsonl --exact-match --max-tokens 12"),
              HasSubstr("exact match 2/4 (50.00%)"));
  EXPECT_THAT(works("hearth eval run data=some.jsonl --exact-match --max-tokens 12 --limit 1"),
              HasSubstr("exact match 1/1 (100.00%)"));
}

TEST_F(EvalText, OtherDataIsJudgedAsAWholeAndAModelFolderAsTheRun) {
  const std::string run = works("hearth eval run data=learnt.jsonl");
  put("copy.jsonl", get("learnt.jsonl"));
  const auto numbers = [](const std::string& text) { return text.substr(text.find(": ")); };
  EXPECT_EQ(numbers(works("hearth eval run data=copy.jsonl")), numbers(run));
  fs::remove(at("run/config.yaml"));
  fs::remove(at("run/best.safetensors"));
  const std::string plain =
      works("hearth eval run data=learnt.jsonl data.context=32 data.cache=cache train.batch=4 threads=1");
  EXPECT_THAT(plain, HasSubstr("perplexity"));
  EXPECT_THAT(plain, HasSubstr("run: loss "));
}

TEST_F(EvalText, TheWeightsOfARunAreItsAverages) {
  works("hearth train recipe.yaml train.ema=0.5 --out averaged");
  EXPECT_EQ(works("hearth eval averaged"), works("hearth eval averaged train.ema=0"));
}

TEST_F(EvalText, OneDeviceJudgesWhatSeveralHaveTrained) {
  for (const char* way : {"data", "sharded", "pipeline"}) {
    works(fmt::format(
        "hearth train recipe.yaml train.steps=2 train.accumulate=2 devices=2 parallel={0} --out {0}", way));
    EXPECT_THAT(works(fmt::format("hearth eval {}", way)),
                HasSubstr(fmt::format("loss {:.4f}, ", last_eval_loss(way))))
        << way;
  }
}

TEST_F(EvalText, MistakesAreNamed) {
  put("text.jsonl", "{\"text\": \"abc\"}\n");
  refused("hearth eval run data=text.jsonl --exact-match", {"text.jsonl:1", "exact match", "text"});
  refused("hearth eval none data=text.jsonl", {"'none'"});
  refused("hearth eval model data=learnt.jsonl", {"model.safetensors"});
  refused("hearth eval model", {"'model'", "data=FILE.jsonl"});
  refused("hearth eval run --report report.html", {"--report is for a run on images", "'run'"});
  refused("hearth eval model data.context=16", {"'model'", "data=FILE.jsonl"});
  refused("hearth eval run --base run data=learnt.jsonl", {"--base"});
  works("hearth train tiny.yaml --out pictures");
  refused("hearth eval pictures --exact-match", {"a language model", "'pictures'"});
}

}  // namespace
}  // namespace hearth
