#include <fmt/format.h>

#include <cmath>

#include "convert/language.h"

namespace hearth::convert {
namespace {

using enum RuleKind;

/// Replaces ${key} in texts by the value of that key. Keeps other expressions, such as ${eval:...}.
void tune_prepare(Config& config, const ImportOptions&) {
  constexpr int kMaxReplaced = 8;
  constexpr size_t kMaxText = 4096;
  for (Entry& entry : config.entries()) {
    for (int i = 0; i < kMaxReplaced && entry.value.is_string(); ++i) {
      const std::string text = entry.value.get<std::string>();
      const size_t begin = text.find("${"), end = text.find('}', begin);
      if (begin == text.npos || end == text.npos || text.size() > kMaxText) break;
      const Entry* other = config.find(text.substr(begin + 2, end - begin - 2));
      if (other == nullptr || other == &entry) break;
      if (text.size() == end + 1 && begin == 0) {
        const Value value = other->value;
        entry.value = value;
      } else {
        entry.value = text.substr(0, begin) + text_of(other->value) + text.substr(end + 1);
      }
    }
  }
}

/// Returns the last part of a component: "lora_llama2_7b".
std::string tune_component(const std::string& name) { return name.substr(name.rfind('.') + 1); }

bool tune_has_adapter(const Importer& importer) {
  const std::string builder = tune_component(importer.config.text("model._component_"));
  return builder.starts_with("lora_") || builder.starts_with("qlora_");
}

Result tune_model(Importer& importer, const Entry& entry) {
  const std::string builder = tune_component(text_of(entry.value));
  if (builder.starts_with("qlora_")) importer.set("adapter.quantize", "nf4");
  if (tune_has_adapter(importer))
    return importer.set("adapter.name", "lora", "the weights are in model.path");
  if (builder.find("classifier") != builder.npos || builder.find("vision") != builder.npos)
    return importer.refuse("Hearth has no " + builder, "model.path");
  return equal("Hearth reads the architecture from config.json in model.path");
}

Result tune_adapter_key(Importer& importer, const Entry& entry) {
  if (!tune_has_adapter(importer)) return no_effect("no adapter is trained");
  return importer.set(entry.key == "model.lora_rank"    ? "adapter.rank"
                      : entry.key == "model.lora_alpha" ? "adapter.alpha"
                                                        : "adapter.dropout",
                      text_of(entry.value));
}

Result tune_targets(Importer& importer, const Entry& entry) {
  if (!tune_has_adapter(importer)) return no_effect("no adapter is trained");
  std::vector<std::string> targets;
  for (const std::string& name : texts_of(entry.value))
    targets.push_back(name == "output_proj" ? "o_proj" : name);
  if (importer.config.is_true("model.apply_lora_to_mlp"))
    targets.insert(targets.end(), {"gate_proj", "up_proj", "down_proj"});
  if (importer.config.is_true("model.apply_lora_to_output")) targets.push_back("lm_head");
  return importer.set_list("adapter.targets", targets);
}

Result tune_quantize_base(Importer& importer, const Entry& entry) {
  if (is_off(entry.value)) return equal("off");
  return importer.set("adapter.quantize", "nf4");
}

Result tune_dataset(Importer& importer, const Entry& entry) {
  const std::string name = tune_component(text_of(entry.value));
  const Config& config = importer.config;
  const std::string file = config.text("dataset.data_files", config.text("dataset.source"));
  if (name == "alpaca_dataset" || name == "alpaca_cleaned_dataset") {
    const std::string source = file.empty() || file == "json"
                                   ? (name == "alpaca_dataset" ? "tatsu-lab/alpaca" : "yahma/alpaca-cleaned")
                                   : file;
    set_data(importer, source);
    importer.set("data.format", "alpaca");
    importer.set("data.train_on_prompt", config.text("dataset.train_on_input", "true"));
    if (importer.exists(source) && !has_nonempty(importer, source, "input"))
      return importer.set("data.template", "alpaca");
    return importer.refuse("for records with an input, Hearth's prompt has another text", "data.template",
                           "alpaca");
  }
  if (file.empty())
    return importer.refuse("the config names no data file for " + name, "data.path", "data.jsonl");
  Result result = set_data(importer, file);
  if (name == "chat_dataset") {
    importer.set("data.train_on_prompt", config.text("dataset.train_on_input", "false"));
    importer.set("data.format",
                 config.text("dataset.conversation_style") == "sharegpt" ? "sharegpt" : "openai");
    return result;
  }
  if (name == "text_completion_dataset") {
    const std::string column = config.text("dataset.column", "text");
    if (column != "text") importer.set("data.fields", "[text=" + column + "]");
    importer.set("data.format", "text");
    return result;
  }
  if (name == "preference_dataset") {
    importer.set("data.format", "preference");
    return result;
  }
  return importer.refuse("Hearth has no " + name, "data.format");
}

Result tune_split(Importer& importer, const Entry& entry) {
  if (text_of(entry.value) == "train") return equal("the data file contains this split");
  return importer.refuse("the split is a part of the dataset; write this part to the data file", "data.path");
}

Result tune_context(Importer& importer, const Entry& entry) {
  if (number_of(entry.value, 0) > 0) return importer.set("data.context", text_of(entry.value));
  return importer.refuse("the config does not limit the sequence length", "data.context", "2048");
}

Result tune_optimizer(Importer& importer, const Entry& entry) {
  const std::string name = tune_component(text_of(entry.value));
  if (name == "AdamW" || name == "PagedAdamW") return importer.set("optimizer.name", "adamw");
  if (name == "AdamW8bit" || name == "PagedAdamW8bit") return importer.set("optimizer.name", "adamw8bit");
  if (name == "SGD") return importer.set("optimizer.name", "sgd");
  return importer.refuse("Hearth has no optimizer " + name, "optimizer.name", "adamw");
}

/// Sets the weight decay. Its default is 0.01 for AdamW and 0 for SGD.
Result tune_weight_decay(Importer& importer, const Entry& entry) {
  const bool is_sgd = tune_component(importer.config.text("optimizer._component_")) == "SGD";
  if (is_sgd && entry.where.empty()) return equal("the default of SGD");
  return importer.set("optimizer.weight_decay", text_of(entry.value), "Hearth also decays norms and biases");
}

Result tune_betas(Importer& importer, const Entry& entry) {
  const std::vector<std::string> betas = texts_of(entry.value);
  if (betas.size() != 2) return importer.refuse("the value is not a list of two numbers", "optimizer.beta1");
  importer.set("optimizer.beta1", betas[0]);
  return importer.set("optimizer.beta2", betas[1]);
}

Result tune_schedule(Importer& importer, const Entry& entry) {
  const std::string name = tune_component(text_of(entry.value));
  if (name == "get_cosine_schedule_with_warmup") return importer.set("schedule.name", "cosine");
  if (name == "constant") return importer.set("schedule.name", "constant");
  return importer.refuse("Hearth has no schedule " + name, "schedule.name", "cosine");
}

Result tune_loss(Importer& importer, const Entry& entry) {
  const std::string name = tune_component(text_of(entry.value));
  if (name == "DPOLoss") return importer.set("train.objective", "dpo");
  if (name == "CEWithChunkedOutputLoss" || name == "LinearCrossEntropyLoss" || name == "CrossEntropyLoss")
    return equal("cross entropy");
  return importer.refuse("Hearth has no " + name, "train.objective");
}

Result tune_max_steps(Importer& importer, const Entry& entry) {
  const double epochs = importer.config.number("epochs", 1);
  return importer.set("train.steps", number_text(number_of(entry.value, 0) * epochs),
                      "max_steps_per_epoch x epochs, if an epoch has at least that number of updates");
}

Result tune_validation(Importer& importer, const Entry& entry) {
  if (importer.config.has("dataset_val"))
    return importer.refuse("dataset_val is a part of a dataset; write this part to a file", "data.val_path");
  return importer.set("data.val_share", text_of(entry.value), "torchtune holds out no data");
}

Result tune_dtype(Importer& importer, const Entry& entry) {
  const std::string name = text_of(entry.value);
  return importer.set("precision", name, name == "bf16" ? "torchtune stores the weights in bf16, too" : "");
}

Result tune_eval_every(Importer& importer, const Entry& entry) {
  return importer.set("train.eval_every", text_of(entry.value));
}

constexpr Rule kTuneRules[] = {
    {.keys = "checkpointer.checkpoint_dir", .kind = take, .ours = "model.path"},
    {.keys = "checkpointer._component_ checkpointer.checkpoint_files* checkpointer.model_type "
             "checkpointer.output_dir "
             "checkpointer.safe_serialization save_adapter_weights_only save_every_n_epochs "
             "tokenizer._component_ tokenizer.path "
             "tokenizer.merges_file tokenizer.merges_path tokenizer.vocab_path tokenizer.special_tokens_path",
     .note = "Hearth reads model and tokenizer from the files in model.path"},
    {.keys = "checkpointer.keep_last_n_checkpoints", .kind = take, .ours = "train.keep_checkpoints"},
    {.keys = "checkpointer.recipe_checkpoint resume_from_checkpoint",
     .kind = accept,
     .note = "hearth resume RUN continues a run of Hearth"},
    {.keys = "checkpointer.adapter_checkpoint",
     .kind = accept,
     .ours = "adapter.path",
     .note = "Hearth reads PEFT adapters, not torchtune's"},
    {.keys = "model._component_",
     .kind = convert,
     .ours = "adapter.name",
     .note = "lora_...: LoRA; qlora_...: with adapter.quantize=nf4; others: all weights",
     .convert = tune_model},
    {.keys = "model.lora_rank",
     .kind = convert,
     .ours = "adapter.rank",
     .fallback = "8",
     .convert = tune_adapter_key},
    {.keys = "model.lora_alpha",
     .kind = convert,
     .ours = "adapter.alpha",
     .fallback = "16",
     .convert = tune_adapter_key},
    {.keys = "model.lora_dropout",
     .kind = convert,
     .ours = "adapter.dropout",
     .fallback = "0",
     .convert = tune_adapter_key},
    {.keys = "model.lora_attn_modules",
     .kind = convert,
     .ours = "adapter.targets",
     .note = "output_proj is o_proj",
     .convert = tune_targets},
    {.keys = "model.apply_lora_to_mlp model.apply_lora_to_output",
     .kind = part,
     .note = "see model.lora_attn_modules"},
    {.keys = "model.quantize_base",
     .kind = convert,
     .ours = "adapter.quantize",
     .note = "nf4",
     .convert = tune_quantize_base},
    {.keys = "tokenizer.max_seq_len",
     .kind = convert,
     .ours = "data.context",
     .note = "0: no limit",
     .fallback = "0",
     .convert = tune_context},
    {.keys = "dataset._component_",
     .kind = convert,
     .ours = "data.path",
     .note = "alpaca, chat, text completion and preference datasets",
     .convert = tune_dataset},
    {.keys =
         "dataset.source dataset.data_files dataset.train_on_input dataset.conversation_style dataset.column",
     .kind = part,
     .note = "see dataset._component_"},
    {.keys = "dataset.conversation_column",
     .kind = accept,
     .values = "messages|conversations",
     .note = "rename the field to messages"},
    {.keys = "dataset.packed",
     .kind = take,
     .ours = "data.packing",
     .note = "packed samples do not attend to each other",
     .fallback = "false"},
    {.keys = "dataset.split", .kind = convert, .note = "only train", .convert = tune_split},
    {.keys = "dataset.split_across_pack",
     .kind = accept,
     .ours = "data.overlong",
     .note = "set data.overlong=split"},
    {.keys = "dataset_val.*", .kind = part, .note = "see run_val_every_n_steps"},
    {.keys = "(validation)",
     .kind = convert,
     .ours = "data.val_share",
     .note = "torchtune holds out no data",
     .fallback = "0",
     .convert = tune_validation},
    {.keys = "run_val_every_n_steps",
     .kind = convert,
     .ours = "train.eval_every",
     .convert = tune_eval_every},
    {.keys = "batch_size", .kind = take, .ours = "train.batch", .fallback = "1"},
    {.keys = "gradient_accumulation_steps",
     .kind = take,
     .ours = "train.accumulate",
     .note = "for one device; multiply by the number of devices that the config was for"},
    {.keys = "epochs", .kind = take, .ours = "train.epochs", .fallback = "1"},
    {.keys = "max_steps_per_epoch",
     .kind = convert,
     .ours = "train.steps",
     .note = "max_steps_per_epoch x epochs",
     .convert = tune_max_steps},
    {.keys = "optimizer._component_",
     .kind = convert,
     .ours = "optimizer.name",
     .note = "AdamW, PagedAdamW, AdamW8bit, PagedAdamW8bit, SGD",
     .convert = tune_optimizer},
    {.keys = "optimizer.lr", .kind = take, .ours = "optimizer.lr", .fallback = "0.001"},
    {.keys = "optimizer.weight_decay",
     .kind = convert,
     .ours = "optimizer.weight_decay",
     .note = "Hearth also decays norms and biases",
     .fallback = "0.01",
     .convert = tune_weight_decay},
    {.keys = "optimizer.betas",
     .kind = convert,
     .ours = "optimizer.beta1",
     .note = "and optimizer.beta2",
     .convert = tune_betas},
    {.keys = "optimizer.eps", .kind = take, .ours = "optimizer.eps"},
    {.keys = "optimizer.fused optimizer.foreach", .note = "implementation in PyTorch"},
    {.keys = "optimizer_in_bwd", .kind = take, .ours = "optimizer.in_backward"},
    {.keys = "clip_grad_norm", .kind = take, .ours = "train.clip_norm"},
    {.keys = "lr_scheduler._component_",
     .kind = convert,
     .ours = "schedule.name",
     .note = "get_cosine_schedule_with_warmup",
     .fallback = "constant",
     .convert = tune_schedule},
    {.keys = "lr_scheduler.num_warmup_steps", .kind = take, .ours = "schedule.warmup_steps"},
    {.keys = "loss._component_",
     .kind = convert,
     .ours = "train.objective",
     .note = "cross entropy and DPOLoss",
     .convert = tune_loss},
    {.keys = "loss.beta", .kind = take, .ours = "dpo.beta"},
    {.keys = "loss.label_smoothing", .kind = take, .ours = "dpo.label_smoothing"},
    {.keys = "loss.num_output_chunks loss.ignore_index", .note = "only the implementation differs"},
    {.keys = "dtype", .kind = convert, .ours = "precision", .note = "bf16, fp32", .convert = tune_dtype},
    {.keys = "seed", .kind = take, .ours = "seed", .note = "Hearth's random numbers are different"},
    {.keys = "shuffle", .kind = take, .ours = "data.shuffle"},
    {.keys = "log_every_n_steps", .kind = take, .ours = "train.log_every"},
    {.keys = "enable_activation_checkpointing enable_activation_offloading ac_mode ac_option low_cpu_ram "
             "fsdp_cpu_offload",
     .note = "changes memory only; Hearth recomputes activations to meet the key `memory`"},
    {.keys = "output_dir name metric_logger.* profiler* log_level log_peak_memory_stats batch_size_val "
             "base_model_path save_* debug_*",
     .note = "output and logging; set the run folder by --out"},
    {.keys = "device compile tensor_parallel_* data_parallel_* custom_sharded_layers fsdp.* fsdp_* "
             "memory_efficient_fsdp_wrap "
             "use_distributed_state_dict cudnn_deterministic_mode clear_cache use_flex context_parallel_*",
     .note = "distribution of the work; see the keys device, devices and parallel"},
    {.keys = "model.* tokenizer.* dataset.* datasets.* optimizer.* lr_scheduler.* loss.* checkpointer.* "
             "teacher_* kd_* ref_* reward_* policy_* "
             "value_* ppo_* quantizer* collate_fn* num_steps forward_batch_size max_generated_tokens "
             "temperature top_k tasks limit "
             "max_seq_length enable_kv_cache prompt* max_new_tokens grpo_* whiten_* gamma lmbda kl_coeff "
             "min_response_length "
             "penalise_no_eos stop_token_ids dataloader.* orchestration.* inference.* postprocessing.* "
             "training.* apply_chat_template "
             "instruct_template chat_format max_steps* sampler*",
     .kind = accept,
     .note = "Hearth has no such feature"},
};

}  // namespace

Tool torchtune() {
  return {.name = "torchtune",
          .title = "torchtune YAML",
          .marks = "checkpointer tokenizer._component_ model._component_",
          .tables = {kTuneRules},
          .prepare = tune_prepare};
}

}  // namespace hearth::convert
