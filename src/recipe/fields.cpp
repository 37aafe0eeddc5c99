#include "recipe/fields.h"

#include <fmt/ranges.h>

#include "recipe/field_kinds.h"

namespace hearth::recipe {
namespace {

void add_run_fields(std::vector<Field>& fields) {
  const auto key = top_level(fields);
  key("seed", "every random choice follows from it", &Recipe::seed);
  key("threads", "0: every processor", &Recipe::threads, Whole{0, 1024});
  key("device",
      "cpu; gpu: the first GPU, gpu:0 or gpu:0000:03:00.0: that one (hearth env lists them); emulated: "
      "kernels for GPUs, on the processor, to test them",
      &Recipe::device, Device());
  key("reserve", "memory of a GPU that is left to the desktop", &Recipe::reserve,
      Bytes{"a size like 512MiB"});
  key("devices", "how many of them share each update, a worker for each", &Recipe::devices, Whole{1, 64});
  key("parallel",
      "data: all devices do the same; zero1: each keeps a part of the optimizer's state; sharded: of the "
      "weights too; pipeline: each has a part of the model",
      &Recipe::parallel);
  key("supervise", "a run that dies or hangs is started again from its newest checkpoint",
      &Recipe::supervise);
  key("self_test", "whether a GPU's kernels are tried before training", &Recipe::self_test);
  key("precision", "fp32, bf16, or fp16 with a dynamic loss scale", &Recipe::precision);
  key("memory", "budget of the arena, met by recomputation; 0: none", &Recipe::memory,
      Bytes{"a size like 20GiB, or 0 for no budget"});
  key("init", "safetensors file with the first weights", &Recipe::init);
}

void add_pass_fields(std::vector<Field>& fields) {
  section(fields, "passes", &Recipe::passes)("off", "passes to leave out (hearth dump --list); winograd too",
                                             &Passes::off);
}

void add_offload_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "offload", &Recipe::offload);
  key("states", "moments, gradient sums and averages wait in host memory", &Offload::states);
  key("weights", "weights wait in host memory", &Offload::weights);
  key("activations", "with a budget: saved activations may wait in host memory", &Offload::activations);
}

void add_exchange_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "exchange", &Recipe::exchange);
  key("transport",
      "what sums over devices go by: host: its memory, in one order; nccl: NVIDIA's or AMD's library, if it "
      "passes a test, in an order of its own",
      &Exchange::transport);
  key("compress",
      "what devices send of gradients: none: all; bf16: half; powersgd: factors of rank 4; the rest goes "
      "with the next update",
      &Exchange::compress);
  key("local_steps", "updates that each device makes alone before all move together (DiLoCo)",
      &Exchange::local_steps, Whole{1, 1 << 20});
  key("outer_lr", "local steps: learning rate of the step together", &Exchange::outer_lr, Real{0, 1e6});
  key("outer_momentum", "local steps: Nesterov momentum of the step together", &Exchange::outer_momentum,
      Real{0, 1});
}

void add_model_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "model", &Recipe::model);
  key("name", "{}", &Model::name, Named{", or a language model's folder,"}).advice =
      "model=simplecnn, or model=./FOLDER with a config.json";
  key("path", "a language model: folder with config.json, weights and tokenizer", &Model::path);
  key("config", "a new language model: its config.json", &Model::config);
  key("tokenizer", "folder or file; empty: the one beside the model or its config", &Model::tokenizer);
  key("num_classes", "classes to tell apart", &Model::num_classes, Whole{2, 100000});
  key("hidden", "mlp: widths of the hidden layers", &Model::hidden);
  key("dropout", "mlp: share of activations dropped", &Model::dropout, Real{0, 1});
}

void add_adapter_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "adapter", &Recipe::adapter);
  key("name", "lora: train low-rank matrices beside the model's own, which are frozen", &Adapter::name);
  key("path", "PEFT adapter to start from; its rank, alpha, rslora and modules hold", &Adapter::path);
  key("rank", "columns of the low-rank matrices", &Adapter::rank, Whole{1, 1 << 16});
  key("alpha", "their product counts alpha / rank times", &Adapter::alpha, Real{0, 1e6});
  key("dropout", "share of their inputs that is dropped", &Adapter::dropout, Real{0, 1});
  key("rslora", "alpha / sqrt(rank) instead", &Adapter::rslora);
  key("targets", "linear layers by name, like [q_proj, v_proj]; all-linear: every one", &Adapter::targets,
      OneOrMore());
  key("quantize", "nf4 (QLoRA) or int8: how the model's own linear layers are stored", &Adapter::quantize,
      Named());
  key("modules_to_save", "modules that train as a whole, like [lm_head]", &Adapter::modules_to_save);
}

void add_picture_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "data", &Recipe::data);
  key("kind", "shapes (generated), idx (MNIST), cifar10, folder (a folder per class), tensors; text",
      &Data::kind, Named());
  key("path", "folder of the dataset, or file of text (.txt, .jsonl, .json)", &Data::path);
  key("image_size", "side of the pictures in pixels", &Data::image_size, Whole{4, 4096});
  key("channels", "1 gray, 3 color", &Data::channels, Whole{1, 3});
  key("count", "shapes: training pictures", &Data::count, Whole{1});
  key("val_count", "shapes: validation pictures", &Data::val_count, Whole{1});
  key("shuffle", "a new order each epoch", &Data::shuffle);
  key("threads", "threads that decode pictures ahead; 0: none", &Data::threads, Whole{0, 64});
  key("crop_padding", "random crop after padding by so many pixels", &Data::crop_padding, Whole{0, 1024});
  key("flip", "mirror half of the pictures", &Data::flip);
  key("jitter", "random brightness, contrast, saturation, by up to this share", &Data::jitter, Real{0, 1});
  key("mean", "per channel, of pixels from 0 to 1", &Data::mean);
  key("std", "per channel", &Data::std);
}

void add_text_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "data", &Recipe::data);
  key("context", "text: tokens of a row", &Data::context, Whole{1, 1 << 24});
  key("val_path", "text: held-out file; empty: the end of data.path", &Data::val_path);
  key("val_share", "text: share of data.path that is held out", &Data::val_share, Real{0, 1});
  key("format", "text: what records are; detect: by their fields", &Data::format);
  key("fields", "text: names of fields in the data, like [prompt=question]", &Data::fields);
  key("template", "text: chat template: {} or a file; empty: the tokenizer's", &Data::template_);
  key("date", "text: what day a chat template takes it for, like 2026-11-24; empty: today's, kept in the run",
      &Data::date);
  key("variables", "text: variables of the chat template, like [enable_thinking=false]", &Data::variables);
  key("bad_records", "text: records that cannot be used: refuse, or skip and count them", &Data::bad_records);
  key("train_on_prompt", "text: the loss counts more than what the assistant says", &Data::train_on_prompt);
  key("packing", "text: several samples to a row; without it, rows by length", &Data::packing);
  key("overlong",
      "text: samples longer than a row: truncate, drop, split, refuse; auto: split plain text, truncate "
      "records",
      &Data::overlong);
  key("document", "text: one document of a .txt file", &Data::document);
  key("cache", "text: folder for tokens; empty: ~/.cache/hearth", &Data::cache);
}

void add_train_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "train", &Recipe::train);
  key("steps", "updates in all; 0: epochs decide", &Train::steps, Whole{0});
  key("epochs", "times through the data", &Train::epochs, Whole{1});
  key("objective", "cross_entropy, or dpo: to prefer chosen to rejected answers", &Train::objective);
  key("batch", "micro-batch of one worker", &Train::batch, Whole{1, 1 << 20});
  key("accumulate", "micro-batches per update, over all devices", &Train::accumulate, Whole{1, 1 << 20});
  key("shards",
      "parts of an update that are summed apart: the most devices that give the same bits; 0: devices",
      &Train::shards, Whole{0, 64});
  key("checkpoint_every", "updates between checkpoints", &Train::checkpoint_every, Whole{1});
  key("memory_checkpoint_every",
      "seconds between checkpoints in memory, for a run that is started again; 0: none",
      &Train::memory_checkpoint_every, Real{0, 1e6});
  key("keep_checkpoints", "how many to keep", &Train::keep_checkpoints, Whole{1, 1000});
  key("eval_every", "updates between evaluations; 0: each epoch", &Train::eval_every, Whole{0});
  key("eval_on_start", "evaluate the first weights too, before any update", &Train::eval_on_start);
  key("log_every", "updates between log lines", &Train::log_every, Whole{1});
  key("label_smoothing", "share of the target spread over all classes", &Train::label_smoothing, Real{0, 1});
  key("clip_norm", "largest global gradient norm; 0: off", &Train::clip_norm, Real{0, 1e30});
  key("ema", "decay of the weights' moving average; 0: off", &Train::ema, Real{0, 1});
  key("early_stop", "evaluations without gain before stopping; 0: off", &Train::early_stop, Whole{0});
}

void add_bad_step_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "bad_steps", &Recipe::bad_steps);
  key("most", "updates that may be left out, their samples too, because they are not finite", &BadSteps::most,
      Whole{0, 1000000});
  key("z_score", "or because their loss is so many deviations above the mean; 0: off", &BadSteps::z_score,
      Real{0, 1e6});
}

void add_dpo_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "dpo", &Recipe::dpo);
  key("beta", "how dear it is to leave the starting model", &Dpo::beta, Real{1e-6, 1e6});
  key("label_smoothing", "share of pairs that are the wrong way round", &Dpo::label_smoothing, Real{0, 0.5});
}

void add_optimizer_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "optimizer", &Recipe::optimizer);
  key("name", "{}", &Optimizer::name, Named());
  key("lr", "learning rate", &Optimizer::lr, Real{0, 1e6});
  key("momentum", "sgd, muon", &Optimizer::momentum, Real{0, 1});
  key("nesterov", "sgd, muon", &Optimizer::nesterov);
  key("in_backward", "weights move as their gradients come, which need no memory then",
      &Optimizer::in_backward);
  key("weight_decay", "L2 for sgd, decoupled for the others", &Optimizer::weight_decay, Real{0, 1e6});
  key("beta1", "adamw, lion", &Optimizer::beta1, Real{0, 1});
  key("beta2", "adamw; lion wants 0.99", &Optimizer::beta2, Real{0, 1});
  key("eps", "adamw", &Optimizer::eps, Real{0, 1});
}

void add_schedule_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "schedule", &Recipe::schedule);
  key("name", "constant, step, cosine, onecycle", &Schedule::name);
  key("warmup_steps", "linear warm-up", &Schedule::warmup_steps, Whole{0});
  key("step_size", "step: updates between drops", &Schedule::step_size, Whole{1});
  key("gamma", "step: factor of a drop", &Schedule::gamma, Real{0, 1e6});
  key("min_lr", "cosine: the last rate", &Schedule::min_lr, Real{0, 1e6});
}

}  // namespace

const std::vector<Field>& recipe_fields() {
  static const std::vector<Field> all = [] {
    std::vector<Field> fields;
    for (const auto add :
         {add_run_fields, add_pass_fields, add_offload_fields, add_exchange_fields, add_model_fields,
          add_adapter_fields, add_picture_fields, add_text_fields, add_train_fields, add_bad_step_fields,
          add_dpo_fields, add_optimizer_fields, add_schedule_fields})
      add(fields);
    return fields;
  }();
  return all;
}

std::string doc_of(const Field& field, const Choices& choices) {
  const size_t at = field.doc.find(kNamesHere);
  if (at == std::string::npos) return field.doc;
  return fmt::format("{}{}{}", field.doc.substr(0, at), fmt::join(choices.of(field.key), ", "),
                     field.doc.substr(at + kNamesHere.size()));
}

}  // namespace hearth::recipe
