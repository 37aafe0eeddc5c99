#include "cli/program.h"
#include "tiny_language_model.h"

namespace hearth {
namespace {

using testing::HasSubstr;

class Dpo : public Program {
 protected:
  Dpo() {
    write_tiny_model(at("model"));
    std::string pairs, chats;
    for (int i = 0; i < 10; ++i) {
      pairs += preference_line("q" + std::to_string(i), "good", "bad");
      chats += chat_line("q" + std::to_string(i), "good");
    }
    put("pairs.jsonl", pairs);
    put("chat.jsonl", chats);
  }
  static std::string line(const std::string& verb, const std::string& data, const std::string& more = "") {
    return "export XDG_CACHE_HOME=$PWD/cache; hearth " + verb +
           " llama-dpo adapter.name= precision=fp32 model.config=model/config.json data=" + data +
           " data.context=64 train.log_every=1 train.accumulate=2 data.val_share=0.3 threads=1 " + more;
  }
  void refused_and_clean(const std::string& text, const std::vector<std::string>& parts) const {
    refused(text, parts);
    EXPECT_FALSE(has("runs")) << text;
    EXPECT_FALSE(has("cache/hearth") && !fs::is_empty(at("cache/hearth"))) << text;
  }
};

TEST_F(Dpo, TrainsEvaluatesAndGoesOn) {
  const std::string out = works(line("train", "pairs.jsonl", "train.steps=3"));
  EXPECT_THAT(out, HasSubstr("7 pairs of answers of at most 64 tokens; 3 pairs held out"));
  EXPECT_THAT(out, HasSubstr("chosen answer preferred in "));
  EXPECT_THAT(get("runs/llama-dpo/trainer_log.jsonl"), HasSubstr("\"eval_rewards/accuracies\":"));
  EXPECT_THAT(works("export XDG_CACHE_HOME=$PWD/cache; hearth eval runs/llama-dpo"),
              HasSubstr("(3 held out)"));
  works("export XDG_CACHE_HOME=$PWD/cache; hearth train --resume --out runs/llama-dpo train.steps=4");
  refused("export XDG_CACHE_HOME=$PWD/cache; hearth eval runs/llama-dpo data.val_share=0.5",
          {"the pairs have changed since the run began", "runs/llama-dpo/reference.safetensors"});
}

TEST_F(Dpo, ValidateShowsBothAnswers) {
  put("pairs.jsonl", preference_line("a", "good", "bad") + preference_line("b", "same", "same") +
                         preference_line("c", "good", "bad"));
  const std::string out = works(line("validate", "pairs.jsonl"));
  EXPECT_THAT(out, HasSubstr("pairs.jsonl:1 (preference, chosen, "));
  EXPECT_THAT(out, HasSubstr("{+good<|im_end|>+}\n\nrejected, "));
  EXPECT_THAT(out, HasSubstr("{+bad<|im_end|>+}"));
  EXPECT_THAT(out, HasSubstr("1 preferences have equal answers"));
}

TEST_F(Dpo, ValidateOfAnotherObjectiveSaysSoBeforeItShowsSamples) {
  const Result result = shell(
      "export XDG_CACHE_HOME=$PWD/cache; hearth validate llama-lora adapter.name= precision=fp32 "
      "model.config=model/config.json data=pairs.jsonl data.context=64 threads=1");
  EXPECT_EQ(result.code, 2) << result.out;
  EXPECT_THAT(result.err, HasSubstr("pairs.jsonl:1: expected a record with one answer"));
  EXPECT_THAT(result.err, HasSubstr("try recipes/llama-dpo.yaml"));
  EXPECT_EQ(result.out, "");
}

TEST_F(Dpo, MistakesInTheData) {
  refused_and_clean(line("train", "chat.jsonl"),
                    {"chat.jsonl:1: expected the fields chosen and rejected, got messages"});
  put("pairs.jsonl", preference_line("a", "b", "c") + "{\"prompt\": \"a\", \"chosen\": \"b\"}\n");
  refused_and_clean(line("train", "pairs.jsonl"), {"pairs.jsonl:2: expected the fields chosen and rejected"});
  const Result result = shell(line("validate", "pairs.jsonl"));
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.out, HasSubstr("pairs.jsonl:2: expected the fields chosen and rejected"));
  put("text.txt", "a text\n");
  refused_and_clean(line("train", "text.txt"),
                    {"text.txt:1: expected a record with a chosen and a rejected"});
  refused_and_clean(line("train", "tokens.safetensors"), {"tokens.safetensors", "chosen and rejected"});
}

TEST_F(Dpo, MistakesInTheRecipe) {
  const auto wrong = [&](const std::string& key, const std::vector<std::string>& parts) {
    refused_and_clean(line("train", "pairs.jsonl", key), parts);
  };
  wrong("data.packing=true", {"data.packing=false for train.objective=dpo", "the override"});
  wrong("data.format=openai", {"data.format=preference", "openai"});
  wrong("data.overlong=split", {"data.overlong=truncate"});
  wrong("data.train_on_prompt=true", {"data.train_on_prompt=false"});
  wrong("train.objective=dpq", {"did you mean 'dpo'?"});
  wrong("dpo.beta=0", {"dpo.beta"});
  wrong("dpo.label_smoothing=0.5", {"a number from 0 to below 0.5"});
  refused("hearth train demo train.objective=dpo", {"expected model.path, a language model"});
  refused(line("train", "pairs.jsonl", "train.objective=cross_entropy data.format=detect"),
          {"pairs.jsonl:1: expected a record with one answer", "train.objective=dpo"});
}

}  // namespace
}  // namespace hearth
