#include "recipe/fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "recipe/field_kinds.h"
#include "recipe/yaml.h"

namespace hearth::recipe {
namespace {

Field device_field() {
  const auto read = [](Recipe& recipe, const YAML::Node& node) -> std::string {
    const std::string name = node.IsScalar() ? node.Scalar() : "";
    if (name != "cpu" && !exec::names_gpu(name)) return "cpu, gpu, gpu:0, gpu:0000:03:00.0 or emulated";
    recipe.device = name;
    return "";
  };
  return {"device",
          "cpu; gpu: the first GPU, gpu:0 or gpu:0000:03:00.0: that one (hearth env lists them); emulated: "
          "kernels for GPUs, on the processor, to test them",
          read, [](const Recipe& recipe) { return yaml_quoted(recipe.device); }};
}

Field seed_field() {
  const auto read = [](Recipe& recipe, const YAML::Node& node) -> std::string {
    const auto value = number_of<uint64_t>(node);
    if (!value) return "a whole number from 0 to 18446744073709551615";
    recipe.seed = *value;
    return "";
  };
  return {"seed", "every random choice follows from it", read,
          [](const Recipe& recipe) { return std::to_string(recipe.seed); }};
}

void add_run_fields(std::vector<Field>& f) {
  f.push_back(seed_field());
  f.push_back(integer(
      "threads", "0: every processor", [](Recipe & r) -> auto& { return r.threads; }, 0, 1024));
  f.push_back(device_field());
  f.push_back(bytes(
      "reserve", "memory of a GPU that is left to the desktop", "a size like 512MiB",
      [](Recipe & r) -> auto& { return r.reserve; }));
  f.push_back(integer(
      "devices", "how many of them share each update, a worker for each",
      [](Recipe & r) -> auto& { return r.devices; }, 1, 64));
  f.push_back(text(
      "parallel",
      "data: all devices do the same; zero1: each keeps a part of the optimizer's state; sharded: of the "
      "weights too; pipeline: each has a part of the model",
      [](Recipe & r) -> auto& { return r.parallel; }, parallel_ways()));
  f.push_back(boolean(
      "supervise", "a run that dies or hangs is started again from its newest checkpoint",
      [](Recipe & r) -> auto& { return r.supervise; }));
  f.push_back(text("self_test", "whether a GPU's kernels are tried before training",
                   [](Recipe & r) -> auto& { return r.self_test; }, {"always", "once", "never"}));
  f.push_back(text("precision", "fp32, bf16, or fp16 with a dynamic loss scale",
                   [](Recipe & r) -> auto& { return r.precision; }, {"fp32", "bf16", "fp16"}));
  f.push_back(bytes(
      "memory", "budget of the arena, met by recomputation; 0: none", "a size like 20GiB, or 0 for no budget",
      [](Recipe & r) -> auto& { return r.memory; }));
  f.push_back(text(
      "init", "safetensors file with the first weights", [](Recipe & r) -> auto& { return r.init; }));
  f.push_back(words(
      "passes.off", "passes to leave out (hearth dump --list); winograd too",
      [](Recipe & r) -> auto& { return r.passes_off; }));
  f.push_back(boolean(
      "offload.states", "moments, gradient sums and averages wait in host memory",
      [](Recipe & r) -> auto& { return r.offload.states; }));
  f.push_back(boolean(
      "offload.weights", "weights wait in host memory",
      [](Recipe & r) -> auto& { return r.offload.weights; }));
  f.push_back(boolean(
      "offload.activations", "with a budget: saved activations may wait in host memory",
      [](Recipe & r) -> auto& { return r.offload.activations; }));
}

void add_exchange_fields(std::vector<Field>& f) {
  f.push_back(text(
      "exchange.transport",
      "what sums over devices go by: host: its memory, in one order; nccl: NVIDIA's or AMD's library, if it "
      "passes a test, in an order of its own",
      [](Recipe & r) -> auto& { return r.transport; }, {"host", "nccl"}));
  f.push_back(text("exchange.compress",
                   "what devices send of gradients: none: all; bf16: half; powersgd: factors of rank 4; the "
                   "rest goes with the next update",
                   [](Recipe & r) -> auto& { return r.compress; }, {"none", "bf16", "powersgd"}));
  f.push_back(integer(
      "exchange.local_steps", "updates that each device makes alone before all move together (DiLoCo)",
      [](Recipe & r) -> auto& { return r.local.steps; }, 1, 1 << 20));
  f.push_back(real(
      "exchange.outer_lr", "local steps: learning rate of the step together",
      [](Recipe & r) -> auto& { return r.local.outer_lr; }, 0, 1e6));
  f.push_back(real(
      "exchange.outer_momentum", "local steps: Nesterov momentum of the step together",
      [](Recipe & r) -> auto& { return r.local.outer_momentum; }, 0, 1));
}

void add_model_fields(std::vector<Field>& f) {
  std::vector<std::string> models;
  for (const models::ModelDef& model : models::model_list()) models.emplace_back(model.name);
  Field name = text(
      "model.name", fmt::format("{}", fmt::join(models, ", ")),
      [](Recipe & r) -> auto& { return r.model.name; }, models);
  name.read = [read = name.read](Recipe& recipe, const YAML::Node& node) {
    const std::string expected = read(recipe, node);
    return expected.empty() ? "" : expected + ", or a language model's folder,";
  };
  name.advice = "model=simplecnn, or model=./FOLDER with a config.json";
  f.push_back(std::move(name));
  f.push_back(text(
      "model.path", "a language model: folder with config.json, weights and tokenizer",
      [](Recipe & r) -> auto& { return r.text.model; }));
  f.push_back(text(
      "model.config", "a new language model: its config.json",
      [](Recipe & r) -> auto& { return r.text.config; }));
  f.push_back(text(
      "model.tokenizer", "folder or file; empty: the one beside the model or its config",
      [](Recipe & r) -> auto& { return r.text.tokenizer; }));
  f.push_back(integer(
      "model.num_classes", "classes to tell apart", [](Recipe & r) -> auto& { return r.model.num_classes; },
      2, 100000));
  f.push_back(numbers<int64_t>(
      "model.hidden", "mlp: widths of the hidden layers",
      [](Recipe & r) -> auto& { return r.model.hidden; }));
  f.push_back(real(
      "model.dropout", "mlp: share of activations dropped",
      [](Recipe & r) -> auto& { return r.model.dropout; }, 0, 1));
}

Field loader_threads_field() {
  const auto read = [](Recipe& recipe, const YAML::Node& node) -> std::string {
    const auto value = number_of<int>(node);
    if (!value || *value < 0 || *value > 64) return "a whole number from 0 to 64";
    recipe.loader.num_threads = *value;
    return "";
  };
  return {"data.threads", "threads that decode pictures ahead; 0: none", read,
          [](const Recipe& r) { return std::to_string(r.loader.num_threads); }};
}

/// The layers to adapt: one name, or a list of them.
Field targets_field() {
  Field list = words(
      "adapter.targets", "linear layers by name, like [q_proj, v_proj]; all-linear: every one",
      [](Recipe & r) -> auto& { return r.adapter.targets; });
  const auto read = [list](Recipe& recipe, const YAML::Node& node) -> std::string {
    if (!node.IsScalar()) return list.read(recipe, node);
    recipe.adapter.targets = {node.Scalar()};
    return "";
  };
  return {.key = list.key, .doc = list.doc, .read = read, .write = list.write, .is_list = true};
}

void add_adapter_fields(std::vector<Field>& f) {
  f.push_back(text("adapter.name", "lora: train low-rank matrices beside the model's own, which are frozen",
                   [](Recipe & r) -> auto& { return r.adapter.name; }, {"", "lora"}));
  f.push_back(text(
      "adapter.path", "PEFT adapter to start from; its rank, alpha, rslora and modules hold",
      [](Recipe & r) -> auto& { return r.adapter.path; }));
  f.push_back(integer(
      "adapter.rank", "columns of the low-rank matrices", [](Recipe & r) -> auto& { return r.adapter.rank; },
      1, 1 << 16));
  f.push_back(real(
      "adapter.alpha", "their product counts alpha / rank times",
      [](Recipe & r) -> auto& { return r.adapter.alpha; }, 0, 1e6));
  f.push_back(real(
      "adapter.dropout", "share of their inputs that is dropped",
      [](Recipe & r) -> auto& { return r.adapter.dropout; }, 0, 1));
  f.push_back(boolean(
      "adapter.rslora", "alpha / sqrt(rank) instead", [](Recipe & r) -> auto& { return r.adapter.rslora; }));
  f.push_back(targets_field());
  f.push_back(text("adapter.quantize", "nf4 (QLoRA) or int8: how the model's own linear layers are stored",
                   [](Recipe & r) -> auto& { return r.adapter.quantize; }, {"", "nf4", "int8"}));
  f.push_back(words(
      "adapter.modules_to_save", "modules that train as a whole, like [lm_head]",
      [](Recipe & r) -> auto& { return r.adapter.modules_to_save; }));
}

void add_data_fields(std::vector<Field>& f) {
  f.push_back(text("data.kind",
                   "shapes (generated), idx (MNIST), cifar10, folder (a folder per class), tensors; text",
                   [](Recipe & r) -> auto& { return r.data.kind; },
                   {"shapes", "idx", "cifar10", "folder", "tensors", "text"}));
  const auto path = [](Recipe& recipe, const YAML::Node& node) -> std::string {
    const auto value = text_of(node);
    if (!value) return "a folder";
    recipe.data.path = *value;
    return "";
  };
  f.push_back({"data.path", "folder of the dataset, or file of text (.txt, .jsonl, .json)", path,
               [](const Recipe& r) { return yaml_quoted(r.data.path.string()); }});
  f.push_back(integer(
      "data.image_size", "side of the pictures in pixels",
      [](Recipe & r) -> auto& { return r.model.image_size; }, 4, 4096));
  f.push_back(integer(
      "data.channels", "1 gray, 3 color", [](Recipe & r) -> auto& { return r.model.channels; }, 1, 3));
  f.push_back(integer(
      "data.count", "shapes: training pictures", [](Recipe & r) -> auto& { return r.data.count; }, 1));
  f.push_back(integer(
      "data.val_count", "shapes: validation pictures", [](Recipe & r) -> auto& { return r.val_count; }, 1));
  f.push_back(boolean(
      "data.shuffle", "a new order each epoch", [](Recipe & r) -> auto& { return r.loader.shuffle; }));
  f.push_back(loader_threads_field());
  const Member<int64_t> crop = [](Recipe & r) -> auto& { return r.loader.augment.crop_padding; };
  f.push_back(integer("data.crop_padding", "random crop after padding by so many pixels", crop, 0, 1024));
  f.push_back(boolean(
      "data.flip", "mirror half of the pictures", [](Recipe & r) -> auto& { return r.loader.augment.flip; }));
  const auto jitter = [](Recipe& recipe, const YAML::Node& node) -> std::string {
    const auto value = number_of<float>(node);
    if (!value || !(*value >= 0 && *value < 1)) return "a number from 0 to below 1";
    recipe.loader.augment.jitter = *value;
    return "";
  };
  f.push_back({"data.jitter", "random brightness, contrast, saturation, by up to this share", jitter,
               [](const Recipe& r) { return fmt::format("{}", r.loader.augment.jitter); }});
  f.push_back(numbers<float>(
      "data.mean", "per channel, of pixels from 0 to 1", [](Recipe & r) -> auto& { return r.loader.mean; }));
  f.push_back(numbers<float>(
      "data.std", "per channel", [](Recipe & r) -> auto& { return r.loader.std; }));
}

void add_text_fields(std::vector<Field>& f) {
  f.push_back(integer(
      "data.context", "text: tokens of a row", [](Recipe & r) -> auto& { return r.text.context; }, 1,
      1 << 24));
  f.push_back(text(
      "data.val_path", "text: held-out file; empty: the end of data.path",
      [](Recipe & r) -> auto& { return r.text.val_path; }));
  f.push_back(real(
      "data.val_share", "text: share of data.path that is held out",
      [](Recipe & r) -> auto& { return r.text.val_share; }, 0, 1));
  f.push_back(text("data.format", "text: what records are; detect: by their fields",
                   [](Recipe & r) -> auto& { return r.text.format; },
                   {"detect", "text", "prompt_completion", "alpaca", "sharegpt", "openai", "preference"}));
  f.push_back(words(
      "data.fields", "text: names of fields in the data, like [prompt=question]",
      [](Recipe & r) -> auto& { return r.text.fields; }));
  f.push_back(text(
      "data.template", "text: chat template: chatml, alpaca, plain or a file; empty: the tokenizer's",
      [](Recipe & r) -> auto& { return r.text.chat_template; }));
  f.push_back(text(
      "data.date",
      "text: what day a chat template takes it for, like 2026-11-24; empty: today's, kept in the run",
      [](Recipe & r) -> auto& { return r.text.date; }));
  f.push_back(words(
      "data.variables", "text: variables of the chat template, like [enable_thinking=false]",
      [](Recipe & r) -> auto& { return r.text.variables; }));
  f.push_back(text("data.bad_records", "text: records that cannot be used: refuse, or skip and count them",
                   [](Recipe & r) -> auto& { return r.text.bad_records; }, {"refuse", "skip"}));
  f.push_back(boolean(
      "data.train_on_prompt", "text: the loss counts more than what the assistant says",
      [](Recipe & r) -> auto& { return r.text.train_on_prompt; }));
  f.push_back(boolean(
      "data.packing", "text: several samples to a row; without it, rows by length",
      [](Recipe & r) -> auto& { return r.text.packing; }));
  f.push_back(text("data.overlong",
                   "text: samples longer than a row: truncate, drop, split, refuse; auto: split plain text, "
                   "truncate records",
                   [](Recipe & r) -> auto& { return r.text.overlong; },
                   {"auto", "truncate", "drop", "split", "refuse"}));
  f.push_back(text("data.document", "text: one document of a .txt file",
                   [](Recipe & r) -> auto& { return r.text.document; }, {"file", "paragraph", "line"}));
  f.push_back(text(
      "data.cache", "text: folder for tokens; empty: ~/.cache/hearth",
      [](Recipe & r) -> auto& { return r.text.cache; }));
}

void add_train_fields(std::vector<Field>& f) {
  f.push_back(integer(
      "train.steps", "updates in all; 0: epochs decide", [](Recipe & r) -> auto& { return r.steps; }, 0));
  f.push_back(integer(
      "train.epochs", "times through the data", [](Recipe & r) -> auto& { return r.epochs; }, 1));
  f.push_back(text("train.objective", "cross_entropy, or dpo: to prefer chosen to rejected answers",
                   [](Recipe & r) -> auto& { return r.objective; }, {"cross_entropy", "dpo"}));
  f.push_back(integer(
      "train.batch", "micro-batch of one worker", [](Recipe & r) -> auto& { return r.batch; }, 1, 1 << 20));
  f.push_back(integer(
      "train.accumulate", "micro-batches per update, over all devices",
      [](Recipe & r) -> auto& { return r.accumulate; }, 1, 1 << 20));
  f.push_back(integer(
      "train.shards",
      "parts of an update that are summed apart: the most devices that give the same bits; 0: devices",
      [](Recipe & r) -> auto& { return r.shards; }, 0, 64));
  f.push_back(integer(
      "train.checkpoint_every", "updates between checkpoints",
      [](Recipe & r) -> auto& { return r.checkpoint_every; }, 1));
  f.push_back(real(
      "train.memory_checkpoint_every",
      "seconds between checkpoints in memory, for a run that is started again; 0: none",
      [](Recipe & r) -> auto& { return r.memory_checkpoint_every; }, 0, 1e6));
  f.push_back(integer(
      "train.keep_checkpoints", "how many to keep", [](Recipe & r) -> auto& { return r.keep_checkpoints; }, 1,
      1000));
  f.push_back(integer(
      "train.eval_every", "updates between evaluations; 0: each epoch",
      [](Recipe & r) -> auto& { return r.eval_every; }, 0));
  f.push_back(boolean(
      "train.eval_on_start", "evaluate the first weights too, before any update",
      [](Recipe & r) -> auto& { return r.eval_on_start; }));
  f.push_back(integer(
      "train.log_every", "updates between log lines", [](Recipe & r) -> auto& { return r.log_every; }, 1));
  f.push_back(real(
      "train.label_smoothing", "share of the target spread over all classes",
      [](Recipe & r) -> auto& { return r.label_smoothing; }, 0, 1));
  f.push_back(real(
      "train.clip_norm", "largest global gradient norm; 0: off",
      [](Recipe & r) -> auto& { return r.optimizer.clip_norm; }, 0, 1e30));
  f.push_back(real(
      "train.ema", "decay of the weights' moving average; 0: off",
      [](Recipe & r) -> auto& { return r.optimizer.ema_decay; }, 0, 1));
  f.push_back(integer(
      "train.early_stop", "evaluations without gain before stopping; 0: off",
      [](Recipe & r) -> auto& { return r.early_stop; }, 0));
  f.push_back(integer(
      "bad_steps.most", "updates that may be left out, their samples too, because they are not finite",
      [](Recipe & r) -> auto& { return r.bad_steps.most; }, 0, 1000000));
  f.push_back(real(
      "bad_steps.z_score", "or because their loss is so many deviations above the mean; 0: off",
      [](Recipe & r) -> auto& { return r.bad_steps.z_score; }, 0, 1e6));
}

void add_dpo_fields(std::vector<Field>& f) {
  f.push_back(real(
      "dpo.beta", "how dear it is to leave the starting model",
      [](Recipe & r) -> auto& { return r.dpo.beta; }, 1e-6, 1e6));
  f.push_back(real(
      "dpo.label_smoothing", "share of pairs that are the wrong way round",
      [](Recipe & r) -> auto& { return r.dpo.label_smoothing; }, 0, 0.5));
}

void add_optimizer_fields(std::vector<Field>& f) {
  f.push_back(text("optimizer.name", fmt::format("{}", fmt::join(engine::optimizer_names(), ", ")),
                   [](Recipe & r) -> auto& { return r.optimizer_name; },
                   {engine::optimizer_names().begin(), engine::optimizer_names().end()}));
  f.push_back(real(
      "optimizer.lr", "learning rate", [](Recipe & r) -> auto& { return r.lr; }, 0, 1e6));
  f.push_back(real(
      "optimizer.momentum", "sgd, muon", [](Recipe & r) -> auto& { return r.optimizer.momentum; }, 0, 1));
  f.push_back(boolean(
      "optimizer.nesterov", "sgd, muon", [](Recipe & r) -> auto& { return r.optimizer.nesterov; }));
  f.push_back(boolean(
      "optimizer.in_backward", "weights move as their gradients come, which need no memory then",
      [](Recipe & r) -> auto& { return r.optimizer.in_backward; }));
  f.push_back(real(
      "optimizer.weight_decay", "L2 for sgd, decoupled for the others",
      [](Recipe & r) -> auto& { return r.optimizer.weight_decay; }, 0, 1e6));
  f.push_back(real(
      "optimizer.beta1", "adamw, lion", [](Recipe & r) -> auto& { return r.optimizer.beta1; }, 0, 1));
  f.push_back(real(
      "optimizer.beta2", "adamw; lion wants 0.99", [](Recipe & r) -> auto& { return r.optimizer.beta2; }, 0,
      1));
  f.push_back(real(
      "optimizer.eps", "adamw", [](Recipe & r) -> auto& { return r.optimizer.eps; }, 0, 1));
  f.push_back(text("schedule.name", "constant, step, cosine, onecycle",
                   [](Recipe & r) -> auto& { return r.schedule.name; },
                   {"constant", "step", "cosine", "onecycle"}));
  f.push_back(integer(
      "schedule.warmup_steps", "linear warm-up", [](Recipe & r) -> auto& { return r.schedule.warmup_steps; },
      0));
  f.push_back(integer(
      "schedule.step_size", "step: updates between drops",
      [](Recipe & r) -> auto& { return r.schedule.step_size; }, 1));
  f.push_back(real(
      "schedule.gamma", "step: factor of a drop", [](Recipe & r) -> auto& { return r.schedule.gamma; }, 0,
      1e6));
  f.push_back(real(
      "schedule.min_lr", "cosine: the last rate", [](Recipe & r) -> auto& { return r.schedule.min_lr; }, 0,
      1e6));
}

}  // namespace

std::vector<std::string> parallel_ways() { return {"data", "zero1", "sharded", "pipeline"}; }

const std::vector<Field>& recipe_fields() {
  static const std::vector<Field> all = [] {
    std::vector<Field> f;
    add_run_fields(f);
    add_exchange_fields(f);
    add_model_fields(f);
    add_adapter_fields(f);
    add_data_fields(f);
    add_text_fields(f);
    add_train_fields(f);
    add_dpo_fields(f);
    add_optimizer_fields(f);
    return f;
  }();
  return all;
}

}  // namespace hearth::recipe
