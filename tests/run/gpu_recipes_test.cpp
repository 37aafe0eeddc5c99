// Language recipes on an emulated GPU, as a user runs them: twenty steps take the processor's course, and
// nothing is lent to it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "run/from_recipe.h"
#include "run/trainer.h"
#include "temporary_folder.h"
#include "token_file.h"

namespace hearth::run {
namespace {

constexpr int kRecipeSteps = 20;

struct Kind {
  std::string name;
  std::vector<std::string> overrides;
  double tolerance = 1e-4;  ///< of losses, relative
  bool adapts = false;      ///< a base model, else a model of random weights
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class GpuRecipes : public testing::TestWithParam<Kind> {
 protected:
  GpuRecipes() {
    write_file_atomically(
        at("config.json"),
        R"({"model_type": "llama", "vocab_size": 53, "hidden_size": 64, "intermediate_size": 96,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
            "initializer_range": 0.2})");
    std::vector<int32_t> tokens(700);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % 53);
    write_tokens(at("text.safetensors"), tokens);
  }
  fs::path at(const std::string& name) const { return folder_.path() / name; }

  /// The losses of a run's steps.
  std::vector<double> run(const std::string& name, const std::string& device, int num_steps,
                          std::vector<std::string> overrides) const {
    const std::string yaml =
        "threads: 2\ndata: {context: 12, val_share: 0.2}\noptimizer: {name: adamw, lr: 0.003}\n"
        "train: {batch: 2, log_every: 1, eval_every: 10}\n";
    overrides.push_back("data.path=" + at("text.safetensors").string());
    overrides.push_back("device=" + device);
    overrides.push_back("train.steps=" + std::to_string(num_steps));
    std::vector<double> losses;
    Trainer trainer(tasks::Job(run::parse_recipe(yaml, "test", overrides)), at(name),
                    {.progress = [&](const Progress& progress) { losses.push_back(progress.loss); },
                     .message = [](const std::string&) {}});
    EXPECT_EQ(trainer.engine().plan().train_program().num_host_nodes, 0);
    trainer.run(false);
    return losses;
  }

  TemporaryFolder folder_;
};

TEST_P(GpuRecipes, TakeTheProcessorsCourse) {
  std::vector<std::string> overrides = GetParam().overrides;
  const std::string config = "model.config=" + at("config.json").string();
  if (GetParam().adapts) {
    run("base", "cpu", 2, {config});
    overrides.insert(overrides.end(), {"adapter=lora", "model.path=" + at("base").string()});
  } else {
    overrides.push_back(config);
  }
  const std::vector<double> want = run("here", "cpu", kRecipeSteps, overrides);
  const std::vector<double> got = run("there", "emulated", kRecipeSteps, overrides);
  ASSERT_EQ(want.size(), size_t{kRecipeSteps});
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], GetParam().tolerance * want[i]) << "step " << i;
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, GpuRecipes,
    testing::Values(Kind{"fp32", {"train.accumulate=2", "train.clip_norm=1"}},
                    Kind{"bf16", {"precision=bf16"}, 2e-2}, Kind{"fp16", {"precision=fp16"}, 5e-3},
                    Kind{"recomputed", {"memory=1350KiB"}}, Kind{"lora", {}, 1e-4, true},
                    Kind{"lora_bf16", {"precision=bf16", "adapter.dropout=0.1"}, 2e-2, true},
                    Kind{"nf4", {"adapter.quantize=nf4"}, 1e-4, true},
                    Kind{"nf4_bf16", {"adapter.quantize=nf4", "precision=bf16"}, 2e-2, true},
                    Kind{"int8", {"adapter.quantize=int8"}, 1e-4, true}),
    [](const testing::TestParamInfo<Kind>& info) { return info.param.name; });

}  // namespace
}  // namespace hearth::run
