// Configs of other tools, imported and trained: the losses are those of a recipe that was written by hand.
#include "cli/program.h"
#include "data/files.h"
#include "data/images/image.h"
#include "tiny_language_model.h"

namespace hearth {
namespace {

using testing::HasSubstr;

class Import : public Program {
 protected:
  Import() {
    write_tiny_model(at("model"));
    std::string chats, records;
    for (int i = 0; i < 24; ++i) {
      chats += chat_line(fmt::format("question {}", i), fmt::format("answer {}", i));
      records +=
          fmt::format("{{\"instruction\": \"say {0}\", \"input\": \"\", \"output\": \"{0} it is\"}}\n", i);
    }
    put("chat.jsonl", chats);
    put("data/mine.jsonl", records);
    put("text.txt", chats);
  }

  /// Trains a model with random weights to start from, in the folder `base`.
  void make_base() const {
    works(trained("pretrain-llama", "base",
                  "model.config=model/config.json data=text.txt train.steps=2 data.context=64 train.batch=2 "
                  "schedule.warmup_steps=0"));
  }
  static std::string trained(const std::string& recipe, const std::string& out,
                             const std::string& more = "") {
    return fmt::format("export XDG_CACHE_HOME=$PWD/cache; hearth train {} --out {} threads=1 {}", recipe, out,
                       more);
  }
  /// Returns the losses in the log of a run.
  std::vector<std::string> losses(const std::string& run) const {
    std::vector<std::string> found;
    const std::string log = get(run + "/trainer_log.jsonl"), key = "loss\":";
    for (size_t at = log.find(key); at != std::string::npos; at = log.find(key, at + 1))
      found.push_back(log.substr(at, log.find_first_of(",}", at) - at));
    return found;
  }
  /// Both recipes train to the same losses, of which there are several.
  void expect_equal_runs(const std::string& imported, const std::string& by_hand) const {
    works(trained(imported, "runs/imported"));
    works(trained(by_hand, "runs/by_hand"));
    EXPECT_GT(losses("runs/imported").size(), 3U);
    EXPECT_EQ(losses("runs/imported"), losses("runs/by_hand"));
  }
};

TEST_F(Import, AnAxolotlLoraTrainsAsByHand) {
  make_base();
  put("lora.yml", R"(base_model: base
adapter: lora
lora_r: 4
lora_alpha: 8
lora_target_modules: [q_proj, v_proj]
datasets: [{path: chat.jsonl, type: chat_template}]
chat_template: tokenizer_default
sequence_len: 64
sample_packing: false
micro_batch_size: 2
gradient_accumulation_steps: 2
num_epochs: 2
optimizer: adamw_torch
learning_rate: 1e-2
lr_scheduler: cosine
warmup_ratio: 0.25
weight_decay: 0.1
seed: 7
logging_steps: 1
val_set_size: 0.1
)");
  EXPECT_THAT(works("export XDG_CACHE_HOME=$PWD/cache; hearth import lora.yml"),
              testing::AllOf(HasSubstr("schedule.warmup_steps=3; 0.25 of 12 updates"),
                             HasSubstr(" 0 refused\n"), HasSubstr("wrote lora-hearth.yaml")));
  put("hand.yaml", R"(seed: 7
model: {path: base}
adapter: {name: lora, rank: 4, alpha: 8, targets: [q_proj, v_proj]}
data: {path: chat.jsonl, context: 64, packing: false, format: openai, overlong: drop, val_share: 0.1}
train: {epochs: 2, batch: 2, accumulate: 2, clip_norm: 1, log_every: 1}
optimizer: {name: adamw, lr: 0.01, weight_decay: 0.1}
schedule: {name: cosine, warmup_steps: 3}
)");
  expect_equal_runs("lora-hearth.yaml", "hand.yaml");
}

TEST_F(Import, ALlamaFactoryLoraTrainsAsByHand) {
  make_base();
  put("data/dataset_info.json", R"({"mine": {"file_name": "mine.jsonl"}})");
  put("factory.yaml", R"(model_name_or_path: base
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 4
lora_target: all
dataset: mine
max_samples: 1000
template: chatml
cutoff_len: 64
per_device_train_batch_size: 2
gradient_accumulation_steps: 3
learning_rate: 5.0e-3
num_train_epochs: 2.0
lr_scheduler_type: constant_with_warmup
warmup_steps: 2
logging_steps: 1
)");
  EXPECT_THAT(works("hearth import factory.yaml --out f.yaml"), HasSubstr(" 0 refused\n"));
  put("hand.yaml", R"(model: {path: base}
adapter: {name: lora, rank: 4, alpha: 8}
data: {path: data/mine.jsonl, context: 64, packing: false, format: alpaca, template: chatml, val_path: data/mine.jsonl}
train: {epochs: 2, batch: 2, accumulate: 3, clip_norm: 1, log_every: 1}
optimizer: {name: adamw, lr: 0.005}
schedule: {name: constant, warmup_steps: 2}
)");
  expect_equal_runs("f.yaml", "hand.yaml");
}

TEST_F(Import, AnUltralyticsDetectorTrainsAsByHand) {
  for (const char* split : {"train", "val"})
    for (int i = 0; i < 4; ++i) {
      put(fmt::format("set/images/{}/{}.png", split, i), data::encode_png(data::speckled(64, 64, 3)));
      put(fmt::format("set/labels/{}/{}.txt", split, i), fmt::format("{} 0.5 0.5 0.4 0.6\n", i % 2));
    }
  put("set/data.yaml", "path: .\ntrain: images/train\nval: images/val\nnames: {0: cat, 1: dog}\n");
  put("args.yaml",
      "task: detect\nmodel: yolov8n.pt\ndata: set/data.yaml\nepochs: 2\nbatch: 2\nnbs: 2\nimgsz: 64\n"
      "optimizer: SGD\nlr0: 0.01\ncos_lr: true\nwarmup_epochs: 1\nmosaic: 0\namp: false\nclose_mosaic: 0\n"
      "pretrained: false\n");
  const Result result = shell("hearth import args.yaml");
  EXPECT_EQ(result.code, 1) << "YOLOX is another model";
  EXPECT_THAT(result.out,
              HasSubstr("Hearth has YOLOX instead of yolov8n; the recipe sets model.name=yolox_nano"));
  EXPECT_THAT(works("hearth import args.yaml --out b.yaml --force"), HasSubstr("schedule.warmup_steps=2"));
  put("hand.yaml", R"(model: {name: yolox_nano}
data: {kind: yolo, path: set, image_size: 64, flip: true}
detect: {mosaic: 0, degrees: 0, shear: 0, scale: [0.5, 1.5], plain_epochs: 0}
train: {epochs: 2, batch: 2, clip_norm: 10, ema: 0.9999, early_stop: 100}
optimizer: {name: sgd, lr: 0.01, momentum: 0.937, nesterov: true, weight_decay: 0.0005}
schedule: {name: cosine, warmup_steps: 2, min_lr: 0.0001}
)");
  works(trained("b.yaml", "runs/imported", "train.log_every=1"));
  works(trained("hand.yaml", "runs/by_hand", "train.log_every=1"));
  EXPECT_GT(losses("runs/imported").size(), 3U);
  EXPECT_EQ(losses("runs/imported"), losses("runs/by_hand"));
}

TEST_F(Import, ARefusedKeyEndsWithStatus1AndItsRecipeIsWritten) {
  put("a.yml",
      "base_model: model\nlearning_rate: 1\nmax_steps: 1\npeft_use_dora: true\n"
      "datasets: [{path: chat.jsonl, type: chat_template}]\n");
  const Result result = shell("hearth import a.yml");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(get("a-hearth.yaml"),
              HasSubstr("# Refused: peft_use_dora: true: Hearth has no such kind of adapter\n"));
  refused("hearth import a.yml", {"a-hearth.yaml exists already"});
  works("hearth import a.yml --force --out b.yaml");
  refused("hearth import a.yml --out c.yaml train.batsh=2", {"there is no key train.batsh"});
  refused("hearth import a.yml --out c.yaml --tool axolot", {"did you mean 'axolotl'"});
}

}  // namespace
}  // namespace hearth
