// What may be changed when a run resumes: every key, the list of them in the documents, and the files that a
// run reads again.
#include "recipe/resume.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "base/error.h"
#include "paths.h"
#include "recipe/recipe_file.h"
#include "run/inputs.h"
#include "run/stopped_run.h"

namespace hearth::run {
namespace {

using testing::HasSubstr;

constexpr const char* kShort = R"(
model: {name: mlp, num_classes: 10, hidden: [12], dropout: 0.1}
data: {kind: shapes, image_size: 8, count: 70, val_count: 20, flip: true}
train: {steps: 3, batch: 8, checkpoint_every: 3, ema: 0.9, log_every: 1}
optimizer: {name: sgd, lr: 0.01, momentum: 0.9}
threads: 1
)";

recipe::Recipe recipe_with(const std::vector<std::string>& overrides) {
  return parse_recipe(kShort, "test", overrides);
}

RunSummary train(const recipe::Recipe& recipe, const fs::path& folder, bool resume) {
  return Trainer(tasks::Job(recipe), folder, {}).run(resume);
}

/// Another value of every key that may change, which this recipe can train with; empty: for a run of another
/// kind, of which the rule alone is tested.
const std::map<std::string, std::string> kOther = {
    {"threads", "2"},
    {"device", ""},
    {"reserve", "1GiB"},
    {"devices", ""},
    {"parallel", ""},
    {"supervise", "false"},
    {"self_test", "never"},
    {"record", "never"},
    {"memory", "1GiB"},
    {"precision", "bf16"},
    {"matmul_precision", ""},
    {"passes.off", "[winograd]"},
    {"saved_activations", "fp8"},
    {"offload.states", "true"},
    {"offload.weights", "true"},
    {"offload.activations", "true"},
    {"exchange.transport", ""},
    {"exchange.outer_lr", "0.5"},
    {"exchange.outer_momentum", "0.8"},
    {"thermal.limit", "80"},
    {"power.limit", "200"},
    {"log.to", "[csv]"},
    {"log.webhook", "https://example.org"},
    {"log.project", "x"},
    {"log.name", "x"},
    {"init", ""},
    {"model.path", ""},
    {"model.config", ""},
    {"model.autoencoder", ""},
    {"model.tokenizer", ""},
    {"adapter.path", ""},
    {"data.path", ""},
    {"data.val_path", "elsewhere"},
    {"data.classes", "elsewhere"},
    {"data.cache", "elsewhere"},
    {"diffuse.prior", ""},
    {"distill.from", ""},
    {"distill.weight", ""},
    {"distill.temperature", ""},
    {"distill.loss", ""},
    {"distill.beta", ""},
    {"train.steps", "8"},
    {"train.epochs", "3"},
    {"train.batch", "6"},
    {"train.accumulate", "2"},
    {"train.shards", "2"},
    {"train.checkpoint_every", "2"},
    {"train.memory_checkpoint_every", "1"},
    {"train.keep_checkpoints", "5"},
    {"train.eval_every", "2"},
    {"train.eval_on_start", "true"},
    {"train.log_every", "2"},
    {"train.label_smoothing", "0.1"},
    {"train.clip_norm", "1"},
    {"train.ema", "0.99"},
    {"train.early_stop", "9"},
    {"bad_steps.max", "3"},
    {"bad_steps.z_score", "6"},
    {"optimizer.lr", "0.02"},
    {"optimizer.momentum", "0.8"},
    {"optimizer.nesterov", "true"},
    {"optimizer.in_backward", "true"},
    {"optimizer.weight_decay", "0.1"},
    {"optimizer.beta1", "0.8"},
    {"optimizer.beta2", "0.99"},
    {"optimizer.eps", "1e-6"},
    {"optimizer.rates", "[fc1=0.5]"},
    {"schedule.name", "constant"},
    {"schedule.warmup_steps", "2"},
    {"schedule.step_size", "2"},
    {"schedule.gamma", "0.5"},
    {"schedule.min_lr", "0.001"},
    {"model.dropout", "0.3"},
    {"adapter.dropout", "0.1"},
    {"quantize.qat", ""},
    {"quantize.group", ""},
    {"quantize.after_steps", ""},
    {"prune.sparsity", ""},
    {"prune.scope", ""},
    {"prune.from_step", ""},
    {"prune.to_step", ""},
    {"prune.every", ""},
    {"prune.drop", ""},
    {"dpo.beta", "0.2"},
    {"dpo.label_smoothing", "0.1"},
    {"data.threads", "2"},
    {"data.keep_images", ""},
    {"data.bad_records", "skip"},
    {"data.crop_padding", "1"},
    {"data.flip", "false"},
    {"data.jitter", "0.1"},
    {"data.scale", "[0.9, 1.1]"},
    {"segment.loss", "[dice]"},
    {"segment.class_weights", ""},
    {"segment.weights", ""},
    {"detect.mosaic", "0.5"},
    {"detect.mixup", "0.5"},
    {"detect.degrees", "5"},
    {"detect.translate", "0.2"},
    {"detect.shear", "1"},
    {"detect.scale", "[0.8, 1.2]"},
    {"detect.hsv", "false"},
    {"detect.plain_epochs", "1"},
    {"detect.score", "0.1"},
    {"detect.nms", "0.5"},
    {"detect.max_detections", "50"},
    {"detect.shown_score", "0.5"},
    {"diffuse.sampling", "uniform"},
    {"diffuse.mean", "0.5"},
    {"diffuse.std", "0.5"},
    {"diffuse.shift", "2"},
    {"diffuse.mode_scale", "1"},
    {"diffuse.weighting", ""},
    {"diffuse.min_snr", "3"},
    {"diffuse.dropout", "0.2"},
    {"diffuse.prior_weight", "0.5"},
    {"diffuse.prompts", "[a house]"},
    {"diffuse.steps", "9"},
    {"diffuse.guidance", "2"},
    {"diffuse.judged", "3"},
};

class Resume : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    first_.emplace(quick_folder());
    train(recipe_with({}), first_->path(), false);
  }
  static void TearDownTestSuite() { first_.reset(); }

  /// A run of three steps.
  static std::unique_ptr<TemporaryFolder> copy() {
    auto folder = std::make_unique<TemporaryFolder>(quick_folder());
    fs::copy(first_->path(), folder->path(), fs::copy_options::recursive);
    return folder;
  }

  static inline std::optional<TemporaryFolder> first_;
};

TEST_F(Resume, WorksWithAnotherValueOfEveryKeyOfTheList) {
  for (const recipe::ResumeKey& key : recipe::resume_keys()) {
    SCOPED_TRACE(key.key);
    const auto other = kOther.find(std::string(key.key));
    ASSERT_NE(other, kOther.end()) << "the test has no other value of it";
    if (other->second.empty()) continue;
    const auto folder = copy();
    const std::string change = fmt::format("{}={}", key.key, other->second);
    const bool is_steps = key.key == "train.steps";
    const recipe::Recipe changed =
        recipe_with(is_steps ? std::vector{change} : std::vector{std::string("train.steps=7"), change});
    EXPECT_EQ(recipe::fault_of_resume(recipe_with({}), changed), "");
    try {
      EXPECT_EQ(train(changed, folder->path(), true).steps, is_steps ? 8 : 7);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    recipe::Recipe want = changed;
    want.model.class_names = load_recipe(first_->path() / "config.yaml").model.class_names;
    EXPECT_EQ(read_file(folder->path() / "config.yaml"), recipe::write_recipe(want));
  }
}

TEST_F(Resume, EveryOtherKeyIsRefusedByItsName) {
  std::set<std::string> refused;
  const std::vector<std::string> values = {
      "7",    "12",   "0.37",   "0.03",       "true",  "false",         "[7]",  "[0.7]", "[head]",
      "x",    "dpo",  "adamw",  "lora",       "bf16",  "simplecnn",     "text", "fp16",  "int8",
      "drop", "line", "alpaca", "2026-01-02", "[a=b]", "[0.1,0.2,0.3]", "16"};
  for (const std::string& key : recipe::recipe_keys()) {
    const bool may_change =
        std::ranges::find(recipe::resume_keys(), key, &recipe::ResumeKey::key) != recipe::resume_keys().end();
    if (may_change) continue;
    for (const std::string& value : values) {
      try {
        const recipe::Recipe changed = recipe_with({fmt::format("{}={}", key, value)});
        const std::vector<std::string> keys = recipe::changed_keys(recipe_with({}), changed);
        if (keys != std::vector{key}) continue;
        EXPECT_THAT(recipe::fault_of_resume(recipe_with({}), changed),
                    HasSubstr(key + " cannot be changed when a run resumes"));
        refused.insert(key);
        break;
      } catch (const UserError&) {
        // Not a value of this key.
      }
    }
  }
  for (const char* key :
       {"seed", "train.freeze", "model.hidden", "data.count", "data.shuffle", "data.image_size"})
    EXPECT_TRUE(refused.contains(key)) << key;
  EXPECT_GE(refused.size(), 25U);
}

TEST_F(Resume, SomeKeysHaveAConditionThatIsSaid) {
  const auto fault = [](const std::string& change) {
    return recipe::fault_of_resume(recipe_with({}), recipe_with({change}));
  };
  EXPECT_THAT(fault("precision=fp16"),
              HasSubstr("precision cannot be changed when a run resumes (between fp32 "
                        "and bf16 it can): it was \"fp32\" and is \"fp16\" now"));
  EXPECT_THAT(fault("train.ema=0"), HasSubstr("train.ema cannot be changed"));
  EXPECT_THAT(fault("optimizer.momentum=0"), HasSubstr("optimizer.momentum cannot be changed"));
  EXPECT_EQ(fault("train.batch=9"), "");
  recipe::Recipe images = recipe_with({});
  images.train.objective = recipe::Objective::flow;
  recipe::Recipe other = images;
  other.train.batch = 9;
  EXPECT_THAT(recipe::fault_of_resume(images, other), HasSubstr("train.batch cannot be changed"));
}

TEST_F(Resume, TakesEveryBatchInMidEpoch) {
  // 24 of 70 rows are done; two epochs end after the rest of the first and all of the second.
  for (int64_t batch = 1; batch <= 20; ++batch) {
    const auto folder = copy();
    const recipe::Recipe changed =
        recipe_with({"train.steps=0", "train.epochs=2", fmt::format("train.batch={}", batch)});
    // A last batch of one image is left out (data.drop_last).
    const int64_t whole = 70 % batch == 1 ? 69 : 70;
    const int64_t want = 3 + (whole - 24 + batch - 1) / batch + (whole + batch - 1) / batch;
    if (batch == 1 || (whole - 24) % batch == 1) {
      // The batch norm of this model trains on no single image.
      const std::string config = read_file(folder->path() / "config.yaml");
      EXPECT_THROW(train(changed, folder->path(), true), UserError) << batch;
      EXPECT_EQ(read_file(folder->path() / "config.yaml"), config);
      continue;
    }
    EXPECT_EQ(train(changed, folder->path(), true).steps, want) << batch;
    const auto newest = io::find_newest_checkpoint(folder->path() / "checkpoints", nullptr);
    ASSERT_TRUE(newest);
    const RunState state = parse_run_state(io::read_checkpoint(newest->path).state, "state");
    EXPECT_EQ(state.position.total, 2 * whole) << "every sample once in each epoch, batch " << batch;
  }
}

TEST_F(Resume, TheListInTheDocumentsIsTheOneInTheCode) {
  const std::string text = read_file(fs::path(kSourceDir) / "docs" / "reliability.md");
  const size_t begin = text.find("### Keys that may change");
  ASSERT_NE(begin, std::string::npos);
  std::istringstream lines(text.substr(begin, text.find("\n## ", begin) - begin));
  std::map<std::string, std::string> documented;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `")) continue;
    const size_t end = line.find(" | ", 2);
    const std::string condition = line.substr(end + 3, line.size() - end - 5);
    for (size_t at = line.find('`'); at < end; at = line.find('`', at + 1)) {
      const size_t close = line.find('`', at + 1);
      documented[line.substr(at + 1, close - at - 1)] = condition == "always" ? "" : condition;
      at = close;
    }
  }
  std::map<std::string, std::string> listed;
  for (const recipe::ResumeKey& key : recipe::resume_keys()) listed[std::string(key.key)] = key.condition;
  EXPECT_EQ(documented, listed);
}

class InputFiles : public testing::Test {
 protected:
  InputFiles() {
    recipe_.data.kind = "folder";
    recipe_.data.path = at("data");
    put("data/cat/a.png", "a picture");
    put("data/dog/b.png", "another picture");
  }
  fs::path at(const std::string& name) const { return folder_.path() / name; }
  void put(const std::string& name, std::string_view contents) const {
    make_folder(at(name).parent_path());
    write_file_atomically(at(name), contents);
  }
  std::vector<std::string> changes() const { return changes_between(before_, inputs_of(recipe_)); }
  void remember() { before_ = inputs_of(recipe_); }

  recipe::Recipe recipe_;

 private:
  TemporaryFolder folder_;
  std::vector<InputState> before_;
};

TEST_F(InputFiles, ThatAreTheSameElsewhereHaveNotChanged) {
  remember();
  put("data/.cache/x", "hidden");
  put("data/runs/one/trainer_log.jsonl", "a run");
  put("data/runs/one/model.safetensors", "of a run");
  fs::rename(at("data"), at("moved"));
  recipe_.data.path = at("moved");
  EXPECT_TRUE(changes().empty());
}

TEST_F(InputFiles, ThatHaveChangedAreNamed) {
  remember();
  put("data/dog/b.png", "another pictuRe");
  EXPECT_THAT(changes(), testing::ElementsAre("data.path (2 files of 24 bytes, contents changed)"));
  put("data/dog/c.png", "");
  EXPECT_THAT(changes(), testing::ElementsAre("data.path (2 files of 24 bytes, now 3 files of 24 bytes)"));
  fs::remove(at("data/dog/c.png"));
  put("data/dog/b.png", "another picture");
  EXPECT_TRUE(changes().empty());
  fs::rename(at("data/dog/b.png"), at("data/cat/b.png"));
  EXPECT_EQ(changes().size(), 1U);
}

TEST_F(InputFiles, OfWeightsThatAreLargeAreSampled) {
  recipe_.adapter.name = recipe::AdapterKind::lora;
  recipe_.model.path = at("model").string();
  put("model/config.json", "{}");
  put("model/model.safetensors", "weights");
  // Sparse files: reading all of them would take its time.
  fs::resize_file(at("model/model.safetensors"), uintmax_t{1} << 32);
  remember();
  put("model/README.md", "words");
  EXPECT_TRUE(changes().empty());
  fs::resize_file(at("model/model.safetensors"), (uintmax_t{1} << 32) - 4);
  EXPECT_THAT(changes(), testing::ElementsAre(HasSubstr("model.path (2 files")));
  fs::resize_file(at("model/model.safetensors"), uintmax_t{1} << 32);
  EXPECT_TRUE(changes().empty());
  put("model/config.json", "[]");
  EXPECT_EQ(changes().size(), 1U);
}

}  // namespace
}  // namespace hearth::run
