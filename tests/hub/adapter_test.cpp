#include "hub/adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "hub/weights.h"
#include "io/safetensors.h"
#include "run/from_recipe.h"
#include "run/trainer.h"
#include "temporary_folder.h"
#include "token_file.h"

namespace hearth::hub {
namespace {

constexpr const char* kConfig = R"({"model_type": "llama", "vocab_size": 23, "hidden_size": 16,
 "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
 "rms_norm_eps": 1e-5, "initializer_range": 0.2, "tie_word_embeddings": TIED})";

/// A folder with a small model that was trained a little, and text of random tokens.
class Adapters : public testing::Test {
 protected:
  Adapters() { make_model("base", "false"); }

  void make_model(const std::string& name, const std::string& tied) {
    std::string config = kConfig;
    config.replace(config.find("TIED"), 4, tied);
    write_file_atomically(at("config.json"), config);
    std::vector<int32_t> tokens(200);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % 23);
    write_tokens(at("text.safetensors"), tokens);
    run(name, {"model.config=" + at("config.json").string(), "train.steps=2"});
  }

  fs::path at(const std::string& name) const { return folder_.path() / name; }

  static run::TrainerEvents quiet() {
    return {.progress = [](const run::Progress&) {}, .message = [](const std::string&) {}};
  }
  recipe::Recipe recipe(const std::vector<std::string>& overrides) const {
    const std::string yaml =
        "threads: 2\ndata: {context: 9, val_share: 0.3}\noptimizer: {name: adamw, lr: 0.01}\n"
        "train: {steps: 6, batch: 4, accumulate: 2, checkpoint_every: 2, log_every: 1, eval_every: 3}\n";
    std::vector<std::string> all = {"data.path=" + at("text.safetensors").string()};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return run::parse_recipe(yaml, "test", all);
  }
  /// A recipe that adapts the base.
  recipe::Recipe lora(std::vector<std::string> overrides) const {
    overrides.push_back("model.path=" + at("base").string());
    overrides.push_back("adapter=lora");
    return recipe(overrides);
  }
  void run(const std::string& name, const std::vector<std::string>& overrides) const {
    run::Trainer(tasks::Job(recipe(overrides)), at(name), quiet()).run(false);
  }
  void refused(const std::vector<std::string>& overrides, const std::vector<std::string>& parts) const {
    try {
      run::Trainer(tasks::Job(recipe(overrides)), at("refused"), quiet()).run(false);
      ADD_FAILURE() << "expected a UserError";
    } catch (const UserError& error) {
      for (const std::string& part : parts) EXPECT_THAT(error.what(), testing::HasSubstr(part));
    }
  }

  TemporaryFolder folder_;
};

using Bytes = std::map<std::string, std::vector<std::byte>>;
Bytes bytes_of(const engine::Engine& engine, ir::Role role) {
  Bytes all;
  for (const exec::PersistentBuffer& buffer : engine.plan().layout->buffers()) {
    const std::byte* data = engine.data(buffer);
    if (buffer.role == role) all[buffer.name] = {data, data + buffer.type.num_bytes()};
  }
  return all;
}

TEST_F(Adapters, TrainOnlyThemselves) {
  for (const char* precision : {"precision=fp32", "precision=bf16"}) {
    run::Trainer trainer(
        tasks::Job(lora({precision, "adapter.targets=[q_proj, down_proj]", "adapter.dropout=0.1"})),
        at(precision), quiet());
    const Bytes frozen = bytes_of(trainer.engine(), ir::Role::frozen);
    const Bytes trained = bytes_of(trainer.engine(), ir::Role::parameter);
    EXPECT_EQ(frozen.size(), 2U * 9 + 3);
    EXPECT_EQ(trained.size(), 2U * 2 * 2);
    trainer.run(false);
    EXPECT_EQ(bytes_of(trainer.engine(), ir::Role::frozen), frozen);
    for (const auto& [name, bytes] : bytes_of(trainer.engine(), ir::Role::parameter))
      EXPECT_NE(bytes, trained.at(name)) << name;
  }
}

TEST_F(Adapters, LeaveFrozenWeightsWithoutGradientsAndState) {
  run::Trainer trainer(tasks::Job(lora({"adapter.rank=3", "train.accumulate=1"})), at("run"), quiet());
  const engine::Engine& engine = trainer.engine();
  std::vector<std::string> frozen;
  for (const exec::PersistentBuffer& buffer : engine.plan().layout->buffers()) {
    if (buffer.role != ir::Role::frozen) {
      EXPECT_THAT(buffer.name, testing::AnyOf(testing::HasSubstr("lora_"), "steps"));
    } else if (buffer.type.shape.rank() == 2) {
      frozen.push_back(to_string(buffer.type.shape));
    }
  }
  for (const ir::Node& node : engine.plan().train_program().graph.nodes) {
    for (const ir::ValueId out : node.outputs)
      EXPECT_THAT(
          frozen,
          testing::Not(testing::Contains(to_string(engine.plan().train_program().graph.type(out).shape))))
          << node.op->name << " of " << node.name;
  }
}

TEST_F(Adapters, TrainAWholeModuleWhenAsked) {
  run::Trainer trainer(
      tasks::Job(lora({"adapter.targets=v_proj", "adapter.modules_to_save=[lm_head, layers.1.mlp.up_proj]"})),
      at("run"), quiet());
  trainer.run(false);
  const io::SafetensorsFile file(at("run") / kAdapterFile);
  std::vector<std::string> names;
  for (const io::TensorView& tensor : file.tensors()) names.push_back(tensor.name);
  const std::string layers = "base_model.model.model.layers.";
  EXPECT_THAT(names,
              testing::UnorderedElementsAre(
                  layers + "0.self_attn.v_proj.lora_A.weight", layers + "0.self_attn.v_proj.lora_B.weight",
                  layers + "1.self_attn.v_proj.lora_A.weight", layers + "1.self_attn.v_proj.lora_B.weight",
                  layers + "1.mlp.up_proj.weight", "base_model.model.lm_head.weight"));
  EXPECT_FALSE(fs::exists(at("run") / "model.safetensors"));
}

TEST_F(Adapters, GoOnFromACheckpointBitByBit) {
  const recipe::Recipe wanted = lora({"adapter.dropout=0.2", "train.ema=0.9"});
  run::Trainer whole(tasks::Job(wanted), at("whole"), quiet());
  whole.run(false);
  std::atomic<bool> stop{false};
  run::TrainerEvents events = quiet();
  events.progress = [&](const run::Progress& progress) { stop = progress.step == 4; };
  events.stop = &stop;
  EXPECT_TRUE(run::Trainer(tasks::Job(wanted), at("parts"), events).run(false).interrupted);
  stop = false;
  run::Trainer rest(tasks::Job(wanted), at("parts"), quiet());
  rest.run(true);
  EXPECT_TRUE(std::ranges::equal(rest.engine().state(), whole.engine().state()));
  EXPECT_EQ(read_file(at("parts") / kAdapterFile), read_file(at("whole") / kAdapterFile));
  const exec::PersistentLayout& layout = *rest.engine().plan().layout;
  EXPECT_GT(layout.frozen_bytes(), 0);
  EXPECT_EQ(std::ssize(rest.engine().state()),
            layout.num_bytes() - layout.frozen_bytes() - layout.carried_bytes());
  const auto checkpoint = io::find_newest_checkpoint(at("parts") / "checkpoints", nullptr);
  EXPECT_EQ(io::read_checkpoint(checkpoint->path).memory.size(), rest.engine().state().size());
}

TEST_F(Adapters, AreReadBackWithTheirConfig) {
  run::Trainer first(tasks::Job(lora({"adapter.rank=5", "adapter.alpha=7", "adapter.rslora=true",
                                      "adapter.targets=[o_proj]"})),
                     at("first"), quiet());
  first.run(false);
  const AdapterConfig config = read_adapter_config(at("first"));
  EXPECT_EQ(config.base, at("base").string());
  EXPECT_EQ(config.options.rank, 5);
  EXPECT_EQ(config.options.alpha, 7);
  EXPECT_TRUE(config.options.rslora);
  EXPECT_EQ(config.options.targets, std::vector<std::string>{"o_proj"});
  for (const char* part : {"first", "first/adapter_model.safetensors"}) {
    run::Trainer second(
        tasks::Job(recipe({"model.path=" + at("base").string(), "adapter.path=" + at(part).string()})),
        at("second"), quiet());
    second.load_initial_weights();
    EXPECT_EQ(second.evaluate().loss, first.evaluate().loss);
  }
}

TEST_F(Adapters, StartAsTheBaseModel) {
  run::Trainer base(tasks::Job(recipe({"model.path=" + at("base").string()})), at("run"), quiet());
  run::Trainer adapted(tasks::Job(lora({})), at("run"), quiet());
  base.load_initial_weights();
  adapted.load_initial_weights();
  EXPECT_EQ(adapted.evaluate().loss, base.evaluate().loss);
}

TEST_F(Adapters, TrainOnAModelInFewBits) {
  run::Trainer plain(tasks::Job(lora({})), at("plain"), quiet());
  const double wanted = plain.evaluate().loss;
  for (const auto& [kind, bytes, near] : {std::tuple("nf4", 0.55, 0.1), std::tuple("int8", 1.1, 0.01)}) {
    run::Trainer trainer(tasks::Job(lora({std::string("adapter.quantize=") + kind})), at(kind), quiet());
    const Bytes frozen = bytes_of(trainer.engine(), ir::Role::frozen);
    EXPECT_EQ(frozen.count("model.layers.1.mlp.up_proj.weight.absmax"), 1U);
    EXPECT_EQ(frozen.at("lm_head.weight").size(), 23U * 16 * 4);
    const size_t num_bytes = frozen.at("model.layers.1.mlp.up_proj.weight").size();
    EXPECT_LE(static_cast<double>(num_bytes), bytes * 40 * 16);
    const double before = trainer.evaluate().loss;
    EXPECT_NEAR(before, wanted, near) << kind;
    EXPECT_NE(before, wanted) << kind;
    trainer.run(false);
    EXPECT_EQ(bytes_of(trainer.engine(), ir::Role::frozen), frozen);
    EXPECT_LT(trainer.evaluate().loss, before) << kind;
    EXPECT_TRUE(fs::exists(at(kind) / kAdapterFile));
  }
}

TEST_F(Adapters, RefuseWhatDoesNotFit) {
  const std::string model = "model.path=" + at("base").string();
  refused({model, "adapter=lora", "adapter.targets=[q_proj, v_prj]"},
          {"adapter.targets", "v_prj", "'v_proj'"});
  refused({model, "adapter=lora", "adapter.targets=lm_head"}, {"adapter.targets", "'lm_head'", "q_proj"});
  refused({model, "adapter=lora", "adapter.modules_to_save=[lm_heat]"}, {"modules_to_save", "'lm_head'"});
  refused({"model.config=" + at("config.json").string(), "adapter=lora"}, {"model.path"});
  make_model("tied", "true");
  refused({"model.path=" + at("tied").string(), "adapter=lora", "adapter.modules_to_save=[embed_tokens]"},
          {"modules_to_save", "ties"});
}

/// As PEFT decides, whose own answers tests/parity/adapters.py compares.
TEST(ModuleRules, SayWhatBecomesOfAModule) {
  const auto change = [](const std::string& keys, const std::string& module) {
    const auto config = nlohmann::ordered_json::parse("{\"r\": 8, \"lora_alpha\": 4, " + keys + "}");
    return ModuleRule(config, "file").change_of(module);
  };
  const auto rank = [&](const std::string& keys, const std::string& module) {
    return change(keys, module).rank;
  };
  const std::string q = "model.layers.1.self_attn.q_proj", up = "model.layers.11.mlp.up_proj";
  EXPECT_EQ(rank(R"("target_modules": ["q_proj"])", q), 8);
  EXPECT_EQ(rank(R"("target_modules": ["proj"])", q), 0);
  EXPECT_EQ(rank(R"("target_modules": "q_proj")", q), 0);
  EXPECT_EQ(rank(R"("target_modules": "(?i).*\\.Q_proj|x")", q), 8);
  EXPECT_EQ(rank(R"("target_modules": "ALL-linear", "exclude_modules": ["q_proj"])", q), 0);
  EXPECT_EQ(rank(R"("target_modules": "all-linear", "exclude_modules": "q_proj")", q), 8);
  EXPECT_EQ(rank(R"("target_modules": ["up_proj"], "layers_to_transform": 1)", up), 0);
  EXPECT_EQ(rank(R"("target_modules": ["up_proj"], "layers_to_transform": [1, 11])", up), 8);
  EXPECT_EQ(rank(R"("target_modules": ["up_proj"], "layers_to_transform": [11], "layers_pattern": "h")", up),
            0);
  const std::string patterns =
      R"("target_modules": ["q_proj", "up_proj"], "use_rslora": true, )"
      R"("rank_pattern": {"^q_proj": 1, "1.self_attn.q_proj": 2, "q_proj": 3}, "alpha_pattern": {"up.*": 16})";
  EXPECT_EQ(rank(patterns, q), 2);
  EXPECT_EQ(rank(patterns, "model.layers.0.self_attn.q_proj"), 3);
  EXPECT_EQ(change(patterns, up).rank, 8);
  EXPECT_DOUBLE_EQ(change(patterns, up).scale, 16 / std::sqrt(8.0));
  EXPECT_DOUBLE_EQ(change(patterns, q).scale, 4 / std::sqrt(2.0));
  const std::string saved = R"("target_modules": ["q_proj", "up_proj"], "modules_to_save": ["norm", "mlp"])";
  EXPECT_TRUE(change(saved, "model.layers.0.input_layernorm").whole);
  EXPECT_TRUE(change(saved, up).whole);
  EXPECT_EQ(rank(saved, up), 0);
  EXPECT_FALSE(change(saved, q).whole);
}

TEST(ModuleRules, GiveUpOnPatternsThatTakeTooLong) {
  const ModuleRule rule(
      nlohmann::ordered_json::parse(R"({"r": 8, "lora_alpha": 4, "target_modules": ["q_proj"],
    "rank_pattern": {"((l|a|la)*)*[0-9]": 3}})"),
      "file");
  try {
    rule.change_of("model.layers.0.lalalalalalalalalalalalalalala.q_proj");
    ADD_FAILURE() << "expected a UserError";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("file: \"rank_pattern\""));
  }
}

TEST_F(Adapters, SaveWholeModulesUnderNamesThatPeftUnderstands) {
  run::Trainer(tasks::Job(lora({"adapter.targets=v_proj", "adapter.modules_to_save=[norm, lm_head]"})),
               at("run"), quiet())
      .run(false);
  const auto saved = nlohmann::json::parse(read_file(at("run") / kAdapterConfig)).at("modules_to_save");
  EXPECT_EQ(saved, (nlohmann::json{"model.norm", "lm_head"}));
  run::Trainer again(
      tasks::Job(recipe({"model.path=" + at("base").string(), "adapter.path=" + at("run").string()})),
      at("again"), quiet());
  again.run(false);
  EXPECT_EQ(nlohmann::json::parse(read_file(at("again") / kAdapterConfig)).at("modules_to_save"), saved);
}

TEST_F(Adapters, RefuseOthersOfAnotherShape) {
  run::Trainer(tasks::Job(lora({"adapter.rank=4", "adapter.targets=[q_proj]"})), at("other"), quiet())
      .run(false);
  const std::string config = read_file(at("other/adapter_config.json"));
  const auto with = [&](const std::string& from, const std::string& to,
                        const std::vector<std::string>& parts) {
    std::string changed = config;
    ASSERT_NE(changed.find(from), std::string::npos);
    write_file_atomically(at("other/adapter_config.json"),
                          changed.replace(changed.find(from), from.size(), to));
    refused({"model.path=" + at("base").string(), "adapter.path=" + at("other").string()}, parts);
  };
  with("\"r\": 4", "\"r\": 8", {"q_proj.lora_A.weight", "[8, 16]", "[4, 16]"});
  with("\"r\": 4", "\"r\": 0", {"adapter_config.json", "\"r\""});
  with("\"r\": 4", "\"r\": \"4\"", {"adapter_config.json", "\"r\""});
  with("\"q_proj\"", "\"k_proj\"", {"k_proj.lora_A.weight"});
  with("\"use_dora\": false", "\"use_dora\": true", {"adapter_config.json", "use_dora"});
  with("\"LORA\"", "\"IA3\"", {"adapter_config.json", "peft_type", "IA3"});
  const std::string list = "[\n    \"q_proj\"\n  ]";
  with(list, "\"*q_proj\"", {"target_modules", "q_proj"});
  with(list, "\"model.layers.0.(self_attn.q_proj\"", {"target_modules", "regular expression"});
  with(list, "\".*(q_proj|input_layernorm)\"", {"target_modules", "'model.layers.0.input_layernorm'"});
  with(list, "\".*(q_proj|lm_head)\"", {"target_modules", "'lm_head'"});
  with(list, "[\"dense\"]", {"target_modules", "names no linear layer"});
  with(list, "[\"q_proj\"], \"layers_to_transform\": [1]", {"layers.0.self_attn.q_proj.lora_A.weight"});
  with(list, "[\"q_proj\"], \"layers_pattern\": \"layers\"", {"layers_pattern", "layers_to_transform"});
  with(list, "[\"q_proj\"], \"layers_to_transform\": [1], \"layers_pattern\": \"(h|layers)\"",
       {"layers_pattern", "(h|layers)"});
  with("\"modules_to_save\": null", "\"modules_to_save\": [\"proj\"]", {"modules_to_save", "q_proj", "both"});
  with("\"rank_pattern\": {}", "\"rank_pattern\": {\"q_proj\": 0}", {"rank_pattern", "'q_proj'", "0"});
  with("\"rank_pattern\": {}", "\"rank_pattern\": {\"(q_proj\": 1}", {"rank_pattern", "(q_proj"});
  with("\"rank_pattern\": {}", "\"rank_pattern\": {\"q_proj\": 2}", {"q_proj.lora_A.weight", "[2, 16]"});
  with("\"task_type\": \"CAUSAL_LM\"", "\"task_type\": \"SEQ_CLS\"", {"task_type", "SEQ_CLS"});
  with("{", "{\"kasa_config\": {},", {"adapter_config.json", "kasa_config", "merge_and_unload"});
  with("{", "{\"alora_invocation_tokens\": [3, 5],", {"alora_invocation_tokens", "[3,5]"});
  with("{", "{\"of_next_year\": 1,", {"of_next_year", "1 is not supported", "remove the key"});
  with("{", "", {"JSON"});
  const fs::path both = at("both");
  run::Trainer(tasks::Job(lora({"adapter.rank=4", "adapter.targets=[q_proj, v_proj]"})), both, quiet())
      .run(false);
  write_file_atomically(both / "adapter_config.json", config);
  refused({"model.path=" + at("base").string(), "adapter.path=" + both.string()},
          {"adapter.targets", "v_proj.lora_A.weight"});
}

}  // namespace
}  // namespace hearth::hub
