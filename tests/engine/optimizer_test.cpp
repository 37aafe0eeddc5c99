#include "engine/optimizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "engine/plan_builder.h"
#include "io/run_log.h"
#include "run/from_recipe.h"
#include "run/trainer.h"
#include "tasks/language/language_model.h"
#include "temporary_folder.h"

namespace hearth::engine {
namespace {

recipe::Recipe small_recipe(const std::string& optimizer, double lr) {
  return run::parse_recipe(fmt::format(R"(
model: {{name: mlp, num_classes: 10, hidden: [24, 16], dropout: 0}}
data: {{kind: shapes, image_size: 8, count: 64, val_count: 16, shuffle: false}}
train: {{steps: 48, batch: 16, accumulate: 2, log_every: 1, checkpoint_every: 100}}
optimizer: {{name: {}, lr: {}, weight_decay: 0.01}}
schedule: {{name: constant}}
)",
                                       optimizer, lr),
                           "test");
}

class EveryOptimizer : public testing::TestWithParam<std::pair<const char*, double>> {};

TEST_P(EveryOptimizer, LearnsByHeart) {
  const auto& [name, lr] = GetParam();
  const TemporaryFolder run;
  const run::TrainerEvents quiet{.progress = [](const run::Progress&) {},
                                 .message = [](const std::string&) {}};
  run::Trainer trainer(tasks::Job(small_recipe(name, lr)), run.path(), quiet);
  trainer.run(false);
  const auto losses = io::read_curve(run.path() / "trainer_log.jsonl", "loss");
  ASSERT_EQ(losses.size(), 48u);
  EXPECT_LT(losses.back().value, 0.5 * losses.front().value);
}

INSTANTIATE_TEST_SUITE_P(All, EveryOptimizer,
                         testing::Values(std::pair("sgd", 0.05), std::pair("adamw", 0.01),
                                         std::pair("adamw8bit", 0.01), std::pair("lion", 0.004),
                                         std::pair("adafactor", 0.05), std::pair("muon", 0.02)),
                         [](const auto& info) { return std::string(info.param.first); });

TEST(Optimizers, AreAllTrainedAbove) {
  EXPECT_THAT(optimizer_names(),
              testing::ElementsAre("sgd", "adamw", "adamw8bit", "lion", "adafactor", "muon"));
}

DType state_dtype(const Plan& plan, const std::string& name) {
  const exec::PersistentBuffer* found = plan.layout->find(name);
  return found == nullptr ? DType::boolean : found->type.dtype;
}

Plan plan_of(const recipe::Recipe& recipe) {
  EngineOptions options = run::engine_options(tasks::Job(recipe));
  options.backend = exec::Backend::null;
  const int64_t sizes[] = {recipe.train.batch};
  return make_plan(options, sizes, {});
}

TEST(Optimizers, TakeThousandsOfWeights) {
  const char* config = R"({"model_type": "llama", "vocab_size": 16, "hidden_size": 4, "intermediate_size": 4,
"num_hidden_layers": 456, "num_attention_heads": 1})";
  const EngineOptions options{.objective = tasks::language_model(
                                  {.config = models::parse_decoder_config(config, "test"), .context = 2}),
                              .batch = 1};
  const Plan plan = measure_plan(options, std::span(&options.batch, 1), {});
  EXPECT_EQ(plan.tensors.size(), 456u * 9 + 3);
}

TEST(Optimizers, KeepMomentsOfLargeWeightsInEightBits) {
  const Plan plan = plan_of(small_recipe("adamw8bit", 0.01));
  // 192 x 24 elements, and 24 x 16.
  EXPECT_EQ(state_dtype(plan, "adam_m/fc1.weight"), DType::u8);
  EXPECT_EQ(state_dtype(plan, "adam_v_scale/fc1.weight"), DType::f32);
  EXPECT_EQ(state_dtype(plan, "adam_m/fc2.weight"), DType::f32);
}

TEST(Optimizers, LeaveTablesAndVectorsToAdamWUnderMuon) {
  const models::DecoderConfig config =
      models::parse_decoder_config(R"({"model_type": "llama", "vocab_size": 40,
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
    "max_position_embeddings": 32, "tie_word_embeddings": false})",
                                   "test");
  const EngineOptions options{.objective = tasks::language_model({.config = config, .context = 8}),
                              .optimizer = {.name = "muon"},
                              .accumulate = 2,
                              .backend = exec::Backend::null};
  const int64_t sizes[] = {1};
  const Plan plan = make_plan(options, sizes, {});
  EXPECT_EQ(state_dtype(plan, "momentum/model.layers.0.mlp.up_proj.weight"), DType::f32);
  for (const char* plain : {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"}) {
    EXPECT_EQ(state_dtype(plan, std::string("adam_v/") + plain), DType::f32) << plain;
    EXPECT_EQ(state_dtype(plan, std::string("momentum/") + plain), DType::boolean) << plain;
  }
}

}  // namespace
}  // namespace hearth::engine
