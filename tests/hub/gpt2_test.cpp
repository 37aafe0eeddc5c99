#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "hub/adapter.h"
#include "hub/model_weights.h"
#include "hub/weights.h"
#include "infer/generator.h"
#include "io/safetensors.h"
#include "run/from_recipe.h"
#include "run/trainer.h"
#include "tasks/language/language_model.h"
#include "temporary_folder.h"
#include "token_file.h"

namespace hearth::hub {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kGpt2Config = R"({"model_type": "gpt2", "vocab_size": 23, "n_embd": 16, "n_layer": 2,
"n_head": 2, "n_positions": 96, "initializer_range": 0.4})";

class Gpt2 : public testing::Test {
 protected:
  Gpt2() {
    fs::create_directories(at("model"));
    write_file_atomically(at("model/config.json"), kGpt2Config);
    engine::Engine engine({.objective = objective(8)}, {}, kOneRow);
    engine.initialize();
    save_weights(engine, at("model/model.safetensors"), false);
  }

  static std::shared_ptr<const engine::Objective> objective(int64_t context, bool documents = false) {
    return tasks::language_model({.config = models::parse_decoder_config(kGpt2Config, "test"),
                                  .context = context,
                                  .documents = documents});
  }
  fs::path at(const std::string& name) const { return folder_.path() / name; }
  infer::Generator generator(const std::string& model, int64_t slots) const {
    return infer::Generator(find_model(at(model)), {.slots = slots, .compute = {.num_threads = 2}});
  }
  /// Logits after so many tokens, fed at once or one by one.
  std::vector<float> logits(const std::string& model, int32_t count, bool at_once = true) const {
    infer::Generator made = generator(model, 96);
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < count; ++i) ids.push_back(i * 5 % 23);
    std::span<const float> found;
    if (at_once) found = made.feed(ids);
    for (size_t i = 0; !at_once && i < ids.size(); ++i) found = made.feed(std::span(ids).subspan(i, 1));
    return {found.begin(), found.end()};
  }
  /// The model's files with each tensor's name as `rename` gives it, and one tensor more.
  void copy(const std::string& to, const std::function<std::string(std::string)>& rename,
            const std::string& more) const {
    fs::create_directories(at(to));
    write_file_atomically(at(to) / "config.json", kGpt2Config);
    const io::SafetensorsFile file(at("model/model.safetensors"));
    std::vector<io::TensorView> views(file.tensors().begin(), file.tensors().end());
    for (io::TensorView& view : views) view.name = rename(view.name);
    const std::array<float, 4> mask = {1, 0, 1, 1};
    views.push_back(
        {.name = more, .dtype = DType::f32, .shape = {1, 1, 2, 2}, .bytes = std::as_bytes(std::span(mask))});
    io::write_safetensors(at(to) / "model.safetensors", views);
  }
  recipe::Recipe recipe(std::vector<std::string> overrides) const {
    std::vector<int32_t> tokens(200);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % 23);
    write_tokens(at("text.safetensors"), tokens);
    overrides.insert(overrides.begin(),
                     {"data.path=" + at("text.safetensors").string(), "model.path=" + at("model").string()});
    const std::string yaml =
        "threads: 2\ndata: {context: 9, val_share: 0.3}\noptimizer: {name: adamw, lr: 0.01}\n"
        "train: {steps: 3, batch: 4}\n";
    return run::parse_recipe(yaml, "test", overrides);
  }
  std::string error_of(FunctionRef<void()> body) const {
    try {
      body();
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }
  void train(const recipe::Recipe& recipe, const std::string& run) const {
    run::Trainer(tasks::Job(recipe), at(run),
                 {.progress = [](const run::Progress&) {}, .message = [](const std::string&) {}})
        .run(false);
  }

  static constexpr int64_t kOneRow[] = {1};
  TemporaryFolder folder_;
};

std::string inner(std::string name) { return name.substr(std::string_view("transformer.").size()); }
std::string same(std::string name) { return name; }

TEST_F(Gpt2, FilesHoldMatricesTheOtherWayRound) {
  const io::SafetensorsFile file(at("model/model.safetensors"));
  EXPECT_EQ(file.find("transformer.h.1.attn.c_attn.weight")->shape, Shape({16, 48}));
  EXPECT_EQ(file.find("transformer.h.1.mlp.c_proj.weight")->shape, Shape({64, 16}));
  EXPECT_EQ(file.find("transformer.wpe.weight")->shape, Shape({96, 16}));
}

TEST_F(Gpt2, LogitsDoNotDependOnThePiecesThatAreFed) {
  const std::vector<float> whole = logits("model", 80), single = logits("model", 80, false);
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(whole[i], single[i], 1e-5);
}

TEST_F(Gpt2, FilesMayLeaveTheOutermostNameOutAndHoldMasks) {
  const std::vector<float> wanted = logits("model", 9);
  copy("inner", inner, "h.0.attn.bias");
  EXPECT_EQ(logits("inner", 9), wanted);
  copy("outer", same, "transformer.h.1.attn.masked_bias");
  EXPECT_EQ(logits("outer", 9), wanted);
  copy("more", inner, "h.0.attn.c_attn.scale");
  EXPECT_THAT(error_of([&] { logits("more", 9); }), HasSubstr("'h.0.attn.c_attn.scale'"));
}

/// The loss of tokens in one row, or in rows of their own.
double loss_of(const std::shared_ptr<const engine::Objective>& objective, int64_t num_rows, bool documents) {
  const int64_t sizes[] = {num_rows};
  engine::Engine engine({.objective = objective}, {}, sizes);
  engine.initialize();
  constexpr size_t kTokens = 24, kDocument = 12;
  std::array<int32_t, kTokens + 16> tokens{}, labels{}, positions{}, starts{};
  for (size_t i = 0; i < kTokens; ++i) {
    tokens[i] = static_cast<int32_t>(i * 7 % 23);
    labels[i] = static_cast<int32_t>(i * 13 % 23);
    positions[i] = static_cast<int32_t>(i % kDocument);
    starts[i] = static_cast<int32_t>(i / kDocument * kDocument);
  }
  engine::MicroBatch batch{
      {{"tokens", tokens.data()}, {"labels", labels.data()}, {"positions", positions.data()}}, num_rows};
  if (documents) batch.add({"starts", starts.data()});
  return engine.evaluate(batch);
}

TEST_F(Gpt2, PositionsStartAgainWithEveryDocument) {
  EXPECT_NEAR(loss_of(objective(24, true), 1, true), loss_of(objective(12), 2, false), 1e-4);
}

TEST_F(Gpt2, ContextsEndWhereItsPositionsDo) {
  const auto says_so = AllOf(HasSubstr("96"), HasSubstr("97"), HasSubstr("n_positions"));
  EXPECT_THAT(error_of([&] { generator("model", 97); }), says_so);
  EXPECT_THAT(error_of([&] { train(recipe({"data.context=97"}), "run"); }), says_so);
}

TEST_F(Gpt2, AdaptersSayHowWeightsLie) {
  const recipe::Recipe lora = recipe({"adapter=lora", "adapter.targets=[c_attn, c_proj]"});
  train(lora, "run");
  const auto config = nlohmann::json::parse(read_file(at("run") / kAdapterConfig));
  EXPECT_EQ(config.at("fan_in_fan_out"), true);
  const io::SafetensorsFile file(at("run") / kAdapterFile);
  const std::string layer = "base_model.model.transformer.h.0.attn.c_attn.lora_";
  EXPECT_EQ(file.find(layer + "A.weight")->shape, Shape({16, 16}));
  EXPECT_EQ(file.find(layer + "B.weight")->shape, Shape({48, 16}));
}

/// The weights of base and adapter in one file are those that the adapter computes with.
TEST_F(Gpt2, AdaptersAreMergedAsTheyCompute) {
  train(recipe({"adapter=lora", "optimizer.lr=0.1"}), "run");
  const std::vector<float> wanted = logits("run", 9);
  copy("inner", inner, "h.0.attn.bias");
  for (const char* base : {"model", "inner"}) {
    ModelWeights weights(find_model(at("run"), at(base)), 2);
    fs::create_directories(at("merged"));
    write_file_atomically(at("merged/config.json"), kGpt2Config);
    const auto& views = weights.files().tensors();
    io::write_safetensors(at("merged/model.safetensors"), {views.begin(), views.end()},
                          [&](size_t i) { return weights.bytes_of(views[i], DType::f32); });
    const std::vector<float> found = logits("merged", 9);
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-4) << base;
    EXPECT_NE(found, logits("model", 9));
  }
}

TEST_F(Gpt2, AdaptersRefuseWhatTheyCannotDo) {
  const recipe::Recipe nf4 = recipe({"adapter=lora", "adapter.quantize=nf4"});
  EXPECT_THAT(error_of([&] { train(nf4, "run"); }), HasSubstr("adapter.quantize"));
  const recipe::Recipe table = recipe({"adapter=lora", "adapter.modules_to_save=[wte]"});
  EXPECT_THAT(error_of([&] { train(table, "run"); }), HasSubstr("'transformer.wte'"));
}

}  // namespace
}  // namespace hearth::hub
