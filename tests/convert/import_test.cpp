#include "convert/import.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "convert/config.h"
#include "recipe/recipe_file.h"
#include "temporary_folder.h"

namespace hearth::convert {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const recipe::Choices& choices() {
  static const recipe::Choices all{
      .names = {
          {"model.name", {"mlp", "simplecnn", "resnet18", "yolox_nano", "yolox_s", "yolox_m", "yolox_l"}},
          {"adapter.quantize", {"", "nf4", "int8", "fp8"}},
          {"data.kind", {"folder", "shapes", "yolo", "text", "captions"}},
          {"optimizer.name", {"sgd", "adamw", "adamw8bit", "lion", "adafactor", "muon"}}}};
  return all;
}

/// Imports a config. Its recipe must be valid, all of its keys must be known, and each must be listed.
Imported import(const std::string& text, const std::string& file = "config.yaml",
                const std::vector<std::string>& overrides = {}) {
  Imported imported = import_config(text, file, {.choices = choices(), .overrides = overrides});
  EXPECT_EQ(imported.fault, "") << imported.recipe;
  for (const ImportedKey& key : imported.keys) EXPECT_NE(key.detail, "unknown key") << key.key;
  const Config config(text, file);
  for (const Entry& entry : config.entries()) {
    const auto is_same = [&](const ImportedKey& key) { return key.key == entry.path; };
    EXPECT_TRUE(entry.path.starts_with("names.") || std::ranges::any_of(imported.keys, is_same))
        << entry.path;
  }
  return imported;
}

/// Returns the key of an import; fails if there is none.
ImportedKey key_of(const Imported& imported, const std::string& name) {
  for (const ImportedKey& key : imported.keys)
    if (key.key == name) return key;
  ADD_FAILURE() << "no key " << name;
  return {};
}

Fate fate(const Imported& imported, const std::string& name) { return key_of(imported, name).fate; }

recipe::Recipe recipe_of(const Imported& imported) {
  return recipe::parse_recipe(imported.recipe, "imported", choices());
}

constexpr const char* kAxolotl = R"(base_model: ./base
model_type: AutoModelForCausalLM
adapter: qlora
load_in_4bit: true
load_in_8bit: false
lora_r: 24
lora_alpha: 48
lora_dropout: 0.05
lora_target_modules: [q_proj, v_proj]
datasets:
  - path: chats.jsonl
    type: chat_template
    field_messages: conversations
    message_property_mappings: {role: from, content: value}
sequence_len: 640
sample_packing: true
val_set_size: 0.02
micro_batch_size: 3
gradient_accumulation_steps: 5
max_steps: 200
optimizer: paged_adamw_8bit
learning_rate: 1e-4
lr_scheduler: cosine
warmup_ratio: 0.05
weight_decay: 0.01
bf16: auto
gradient_checkpointing: true
wandb_project:
)";

TEST(Import, Axolotl) {
  const Imported imported = import(kAxolotl);
  EXPECT_EQ(imported.tool, "axolotl YAML");
  EXPECT_EQ(imported.count(Fate::refused), 0U) << imported.recipe;
  const recipe::Recipe recipe = recipe_of(imported);
  EXPECT_EQ(recipe.model.path, "./base");
  EXPECT_EQ(recipe.adapter.name, recipe::AdapterKind::lora);
  EXPECT_EQ(recipe.adapter.quantize, "nf4");
  EXPECT_EQ(recipe.adapter.rank, 24);
  EXPECT_EQ(recipe.adapter.alpha, 48);
  EXPECT_EQ(recipe.adapter.targets, (std::vector<std::string>{"q_proj", "v_proj"}));
  EXPECT_EQ(recipe.data.format, RecordFormat::sharegpt);
  EXPECT_EQ(recipe.data.overlong, Overlong::drop);
  EXPECT_EQ(recipe.data.context, 640);
  EXPECT_EQ(recipe.data.val_share, 0.02);
  EXPECT_EQ(recipe.train.batch, 3);
  EXPECT_EQ(recipe.train.accumulate, 5);
  EXPECT_EQ(recipe.train.steps, 200);
  EXPECT_EQ(recipe.train.clip_norm, 1) << "the default of Trainer";
  EXPECT_EQ(recipe.optimizer.name, "adamw8bit");
  EXPECT_EQ(recipe.optimizer.lr, 1e-4);
  EXPECT_EQ(recipe.schedule.warmup_steps, 10);
  EXPECT_EQ(recipe.precision, DType::bf16);
  EXPECT_EQ(fate(imported, "gradient_checkpointing"), Fate::no_effect);
  EXPECT_EQ(fate(imported, "wandb_project"), Fate::equal);
  EXPECT_EQ(fate(imported, "sample_packing"), Fate::equal);
  EXPECT_EQ(key_of(imported, "lora_r").where, "config.yaml:6");
}

TEST(Import, WhatHearthCannotDoIsRefusedByName) {
  const Imported imported = import(std::string(kAxolotl) +
                                   "peft_use_dora: true\nneftune_noise_alpha: 5\nrope_scaling: {factor: 2}\n"
                                   "gradient_checkpointing_kwargs: {use_reentrant: true}\n");
  for (const char* key : {"peft_use_dora", "neftune_noise_alpha", "rope_scaling.factor"}) {
    EXPECT_EQ(fate(imported, key), Fate::refused) << key;
    EXPECT_THAT(imported.recipe, HasSubstr(std::string("# Refused: ") + key + ": "));
  }
  EXPECT_EQ(imported.count(Fate::refused), 3U);
}

TEST(Import, AnUnknownKeyIsRefusedUnlessItIsOff) {
  const std::string text = std::string(kAxolotl) + "flux_capacitor: 88\nwarp: false\n";
  const Imported imported = import_config(text, "a.yaml", {.choices = choices()});
  EXPECT_EQ(key_of(imported, "flux_capacitor").detail, "unknown key");
  EXPECT_EQ(fate(imported, "flux_capacitor"), Fate::refused);
  EXPECT_EQ(fate(imported, "warp"), Fate::equal);
}

TEST(Import, AWarmupFractionNeedsTheNumberOfUpdates) {
  const std::string text =
      "base_model: m\nlearning_rate: 1e-4\nwarmup_ratio: 0.1\ndatasets: [{path: a.jsonl, type: "
      "completion}]\n";
  Imported imported = import(text);
  EXPECT_EQ(fate(imported, "warmup_ratio"), Fate::refused);
  EXPECT_TRUE(imported.needs_updates);
  imported = import_config(text, "a.yaml", {.choices = choices(), .updates = 31});
  EXPECT_EQ(recipe_of(imported).schedule.warmup_steps, 4);
  imported = import(text, "a.yaml", {"schedule.warmup_steps=7"});
  EXPECT_EQ(fate(imported, "warmup_ratio"), Fate::taken) << "the user decided";
  EXPECT_EQ(recipe_of(imported).schedule.warmup_steps, 7);
}

TEST(Import, LlamaFactoryAndItsDefaults) {
  const Imported imported = import(R"(### model
model_name_or_path: org/model-1b
trust_remote_code: true
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 12
lora_target: q_proj,k_proj
dataset: mine
template: chatml
cutoff_len: 300
output_dir: saves/x
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
learning_rate: 1.0e-4
num_train_epochs: 2.0
lr_scheduler_type: cosine
bf16: true
)");
  EXPECT_EQ(imported.tool, "LLaMA-Factory YAML");
  EXPECT_EQ(imported.count(Fate::refused), 0U) << imported.recipe;
  const recipe::Recipe recipe = recipe_of(imported);
  EXPECT_EQ(recipe.adapter.rank, 12);
  EXPECT_EQ(recipe.model.path, "hf:org/model-1b");
  EXPECT_EQ(recipe.adapter.alpha, 24) << "twice the rank";
  EXPECT_EQ(recipe.adapter.targets, (std::vector<std::string>{"q_proj", "k_proj"}));
  EXPECT_EQ(recipe.data.template_, "chatml");
  EXPECT_EQ(recipe.data.context, 300);
  EXPECT_FALSE(recipe.data.packing);
  EXPECT_EQ(recipe.data.val_share, 0);
  EXPECT_EQ(recipe.train.epochs, 2);
  EXPECT_EQ(recipe.train.batch, 2);
  EXPECT_EQ(recipe.train.accumulate, 4);
  EXPECT_EQ(recipe.optimizer.name, "adamw");
  EXPECT_EQ(recipe.train.clip_norm, 1);
}

TEST(Import, LlamaFactoryDpoWithALinearSchedule) {
  const Imported imported = import(
      "model_name_or_path: m\nstage: dpo\nfinetuning_type: full\ndataset: p\npref_beta: 0.2\n"
      "pref_loss: sigmoid\ncutoff_len: 64\ntemplate: qwen\n");
  EXPECT_EQ(fate(imported, "lr_scheduler_type"), Fate::refused) << "linear by default";
  const recipe::Recipe recipe = recipe_of(imported);
  EXPECT_EQ(recipe.train.objective, recipe::Objective::dpo);
  EXPECT_EQ(recipe.dpo.beta, 0.2);
  EXPECT_EQ(recipe.adapter.name, recipe::AdapterKind::none);
  EXPECT_EQ(recipe.optimizer.lr, 5e-5);
}

TEST(Import, Torchtune) {
  const Imported imported = import(R"(output_dir: /tmp/out
model:
  _component_: torchtune.models.llama3_2.qlora_llama3_2_1b
  lora_attn_modules: [q_proj, v_proj, output_proj]
  apply_lora_to_mlp: True
  lora_rank: 8
  lora_alpha: 16
tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, path: x/tokenizer.model, max_seq_len: 256}
checkpointer:
  _component_: torchtune.training.FullModelHFCheckpointer
  checkpoint_dir: models/base
  checkpoint_files: [model.safetensors]
  recipe_checkpoint: null
  output_dir: ${output_dir}
dataset: {_component_: torchtune.datasets.chat_dataset, source: json, data_files: chats.jsonl,
  conversation_column: messages, conversation_style: openai, packed: False}
seed: null
shuffle: True
batch_size: 2
epochs: 1
gradient_accumulation_steps: 8
max_steps_per_epoch: null
optimizer: {_component_: torch.optim.AdamW, fused: True, lr: 3e-4}
lr_scheduler: {_component_: torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup, num_warmup_steps: 10}
loss: {_component_: torchtune.modules.loss.LinearCrossEntropyLoss}
clip_grad_norm: null
device: cuda
dtype: bf16
metric_logger: {_component_: torchtune.training.metric_logging.DiskLogger, log_dir: "${output_dir}/logs"}
)");
  EXPECT_EQ(imported.tool, "torchtune YAML");
  EXPECT_EQ(imported.count(Fate::refused), 0U) << imported.recipe;
  const recipe::Recipe recipe = recipe_of(imported);
  EXPECT_EQ(recipe.adapter.targets,
            (std::vector<std::string>{"q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}));
  EXPECT_EQ(recipe.model.path, "models/base");
  EXPECT_EQ(recipe.adapter.quantize, "nf4");
  EXPECT_EQ(recipe.optimizer.weight_decay, 0.01) << "the default of torch.optim.AdamW";
  EXPECT_EQ(recipe.schedule.warmup_steps, 10);
  EXPECT_EQ(recipe.train.clip_norm, 0);
  EXPECT_EQ(key_of(imported, "checkpointer.output_dir").value, "/tmp/out");
}

TEST(Import, KohyaWithItsDataset) {
  const TemporaryFolder folder;
  const std::string dataset = (folder.path() / "data.toml").string();
  write_file_atomically(dataset, R"([general]
caption_extension = ".txt"
enable_bucket = true
[[datasets]]
resolution = [768, 768]
batch_size = 2
  [[datasets.subsets]]
  image_dir = ")"
                                 "~/fotos f\u00fcr sp\u00e4ter~8A"
                                 R"("
  num_repeats = 3
  caption_dropout_rate = 0.1
  [[datasets.subsets]]
  image_dir = "other"
  is_reg = true
)");
  const Imported imported = import(
      "[model]\npretrained_model_name_or_path = \"FLUX\"\nnetwork_dim = 32\n"
      "network_alpha = 8\nnetwork_train_unet_only = true\nunet_lr = 3e-4\n"
      "learning_rate = 1e-4\noptimizer_type = \"AdamW8bit\"\n"
      "optimizer_args = [\"weight_decay=0.1\", \"betas=(0.9, 0.99)\"]\n"
      "timestep_sampling = \"shift\"\ndiscrete_flow_shift = 2.5\nguidance_scale = 1.0\n"
      "model_prediction_type = \"raw\"\nmax_train_steps = 900\nmixed_precision = \"bf16\"\n"
      "lr_scheduler = \"constant_with_warmup\"\nlr_warmup_steps = 0.1\n"
      "dataset_config = \"" +
          dataset + "\"\n",
      "kohya.toml");
  const recipe::Recipe recipe = recipe_of(imported);
  EXPECT_EQ(recipe.data.kind, "captions");
  EXPECT_EQ(recipe.data.path, "~/fotos f\u00fcr sp\u00e4ter~8A");
  EXPECT_EQ(recipe.data.image_size.width, 768);
  EXPECT_EQ(recipe.diffuse.prior, "other");
  EXPECT_EQ(recipe.diffuse.dropout, 0.1);
  EXPECT_EQ(recipe.diffuse.sampling, recipe::NoiseSampling::shift);
  EXPECT_EQ(recipe.diffuse.shift, 2.5);
  EXPECT_EQ(recipe.adapter.rank, 32);
  EXPECT_EQ(recipe.adapter.alpha, 8);
  EXPECT_EQ(recipe.optimizer.lr, 3e-4) << "unet_lr";
  EXPECT_EQ(recipe.optimizer.weight_decay, 0.1);
  EXPECT_EQ(recipe.optimizer.beta2, 0.99);
  EXPECT_EQ(recipe.schedule.warmup_steps, 90);
  EXPECT_EQ(fate(imported, "datasets[0].subsets[0].num_repeats"), Fate::refused) << "there are two folders";
  EXPECT_EQ(imported.count(Fate::refused), 1U) << imported.recipe;
}

TEST(Import, ValuesThatContradictEachOtherAreNotDropped) {
  const Imported imported = import(R"(network_train_unet_only = true
train_batch_size = 1
[[datasets]]
batch_size = 4
resolution = 512
[[datasets.subsets]]
image_dir = "a"
caption_dropout_rate = 0.1
[[datasets]]
batch_size = 4
resolution = 1024
[[datasets.subsets]]
image_dir = "b"
caption_dropout_rate = 0.2
)",
                                   "a.toml");
  const recipe::Recipe recipe = recipe_of(imported);
  EXPECT_EQ(recipe.train.batch, 4);
  EXPECT_EQ(key_of(imported, "train_batch_size").detail, "train.batch=4 applies instead");
  EXPECT_EQ(recipe.data.image_size.width, 512);
  EXPECT_EQ(recipe.diffuse.dropout, 0.1);
  for (const char* key : {"datasets[1].resolution", "datasets[1].subsets[0].caption_dropout_rate",
                          "datasets[1].subsets[0].image_dir"})
    EXPECT_EQ(fate(imported, key), Fate::refused) << key;
  EXPECT_EQ(fate(imported, "datasets[1].batch_size"), Fate::taken) << "the same value";
}

TEST(Import, KohyaTrainsATextEncoderUnlessItIsExcluded) {
  const std::string text =
      "pretrained_model_name_or_path = \"FLUX\"\nnetwork_module = \"networks.lora_flux\"\ntrain_data_dir = "
      "\"d\"\n";
  EXPECT_EQ(fate(import(text, "a.toml"), "network_train_unet_only"), Fate::refused);
  EXPECT_THAT(import(text + "cache_text_encoder_outputs = true\n", "a.toml").recipe,
              Not(HasSubstr("network_train_unet_only")));
}

TEST(Import, AiToolkit) {
  const Imported imported = import(R"(job: extension
config:
  name: house
  process:
    - type: sd_trainer
      training_folder: output
      device: cuda:0
      trigger_word: h0use
      network: {type: lora, linear: 16, linear_alpha: 8}
      save: {dtype: float16, save_every: 100, max_step_saves_to_keep: 3}
      datasets:
        - {folder_path: photos, caption_ext: txt, caption_dropout_rate: 0.05, resolution: [512, 768]}
      train: {batch_size: 1, steps: 500, gradient_accumulation_steps: 2, train_unet: true, optimizer: adamw8bit,
        train_text_encoder: false, noise_scheduler: flowmatch, lr: 1e-4, dtype: bf16,
        ema_config: {use_ema: true, ema_decay: 0.99}}
      model: {name_or_path: black-forest-labs/FLUX.1-dev, is_flux: true, quantize: true}
      sample: {sampler: flowmatch, sample_every: 100, prompts: ["[trigger] at night"], guidance_scale: 4, sample_steps: 10}
meta: {name: "[name]", version: '1.0'}
)");
  const recipe::Recipe recipe = recipe_of(imported);
  EXPECT_EQ(imported.tool, "ai-toolkit YAML");
  EXPECT_EQ(recipe.diffuse.trigger, "h0use");
  EXPECT_EQ(recipe.diffuse.prompts, std::vector<std::string>{"h0use at night"});
  EXPECT_EQ(recipe.adapter.quantize, "fp8");
  EXPECT_EQ(recipe.train.accumulate, 2);
  EXPECT_EQ(recipe.train.ema, 0.99);
  EXPECT_EQ(recipe.optimizer.eps, 1e-6);
  EXPECT_EQ(recipe.optimizer.weight_decay, 0.01);
  EXPECT_EQ(recipe.data.val_share, 0);
  EXPECT_EQ(fate(imported, "config.process[0].datasets[0].resolution"), Fate::refused) << "two resolutions";
  EXPECT_EQ(imported.count(Fate::refused), 1U) << imported.recipe;
}

TEST(Import, UltralyticsArguments) {
  const Imported imported = import(R"(task: detect
mode: train
model: yolov8n.pt
data: boxes/data.yaml
epochs: 40
batch: 8
imgsz: 320
optimizer: SGD
lr0: 0.02
lrf: 0.1
cos_lr: true
warmup_epochs: 0
mosaic: 0.5
scale: 0.4
plots: true
pretrained: false
)");
  const recipe::Recipe recipe = recipe_of(imported);
  EXPECT_EQ(recipe.model.name, "yolox_nano");
  EXPECT_EQ(fate(imported, "model"), Fate::refused) << "another architecture";
  EXPECT_EQ(imported.count(Fate::refused), 1U) << imported.recipe;
  EXPECT_EQ(recipe.data.kind, "yolo");
  EXPECT_EQ(recipe.data.path, "boxes");
  EXPECT_EQ(recipe.train.batch, 8);
  EXPECT_EQ(recipe.train.accumulate, 8) << "nbs 64";
  EXPECT_EQ(recipe.optimizer.weight_decay, 0.0005);
  EXPECT_EQ(recipe.optimizer.momentum, 0.937);
  EXPECT_TRUE(recipe.optimizer.nesterov);
  EXPECT_DOUBLE_EQ(recipe.schedule.min_lr, 0.002);
  EXPECT_THAT(recipe.detect.scale, testing::ElementsAre(0.6F, 1.4F));
  EXPECT_EQ(recipe.detect.plain_epochs, 10);
}

TEST(Import, UltralyticsDataFile) {
  const Imported imported = import(
      "path: .\ntrain: images/train\nval: images/val\nnames:\n  0: cat\n  1: dog\n", "boxes/data.yaml");
  EXPECT_EQ(recipe_of(imported).data.path, "boxes");
  EXPECT_EQ(fate(imported, "names"), Fate::equal);
}

TEST(Import, TrlAndTrainerJson) {
  const Imported imported = import(R"({"model_name_or_path": "m", "dataset_name": "d.jsonl", "use_peft": true,
"lora_r": 4, "lora_target_modules": "all-linear", "assistant_only_loss": true, "max_length": 99,
"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 5, "per_device_train_batch_size": 1,
"optim": "adamw_torch", "learning_rate": 0.001, "label_names": null, "tpu_num_cores": null,
"save_strategy": "steps", "beta": null, "report_to": ["wandb"]})",
                                   "args.json");
  EXPECT_EQ(imported.count(Fate::refused), 0U) << imported.recipe;
  const recipe::Recipe recipe = recipe_of(imported);
  EXPECT_EQ(recipe.adapter.rank, 4);
  EXPECT_EQ(recipe.adapter.dropout, 0.05) << "TRL's default";
  EXPECT_EQ(recipe.train.objective, recipe::Objective::cross_entropy);
  EXPECT_EQ(recipe.schedule.warmup_steps, 5);
  EXPECT_EQ(recipe.data.context, 99);
}

TEST(Import, BadFilesAreMistakesOfTheUser) {
  const auto message = [](const std::string& text, const std::string& file) -> std::string {
    try {
      import_config(text, file, {.choices = choices()});
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message("a: [", "a.yaml"), HasSubstr("a.yaml:"));
  EXPECT_THAT(message("[x]\ny = \n", "a.toml"), HasSubstr("a.toml:2: invalid TOML"));
  EXPECT_THAT(message("[/x]\n", "a.toml"), HasSubstr("invalid TOML"));
  EXPECT_THAT(message("gr\u00f6\u00dfe = 1\n", "a.toml"), HasSubstr("a.toml:1: invalid TOML"));
  EXPECT_THAT(message("{\"a\": ", "a.json"), HasSubstr("a.json"));
  EXPECT_THAT(message("hello: world\n", "a.yaml"), HasSubstr("set --tool to one of axolotl"));
  EXPECT_THAT(message("base_model: a\nbase_model: b\n", "a.yaml"), HasSubstr("'base_model' is set twice"));
}

}  // namespace
}  // namespace hearth::convert
