#include "convert/language.h"

namespace hearth::convert {
namespace {

using enum RuleKind;

bool trl_has_adapter(const Importer& importer) { return importer.config.is_true("use_peft"); }

/// True if the arguments are those of DPO.
bool trl_is_dpo(const Importer& importer) {
  for (const char* key : {"beta", "precompute_ref_log_probs", "label_smoothing", "max_prompt_length"})
    if (importer.config.find(key) != nullptr) return true;
  return importer.config.text("loss_type").find("sigmoid") != std::string::npos;
}

Result trl_dataset(Importer& importer, const Entry& entry) {
  if (trl_is_dpo(importer)) importer.set("train.objective", "dpo");
  return set_data(importer, text_of(entry.value));
}

Result trl_beta(Importer& importer, const Entry& entry) {
  importer.set("train.objective", "dpo");
  return importer.set(entry.key == "beta" ? "dpo.beta" : "dpo.label_smoothing", text_of(entry.value));
}

Result trl_use_peft(Importer& importer, const Entry& entry) {
  if (is_off(entry.value)) return equal("all weights are trained");
  return importer.set("adapter.name", "lora");
}

Result trl_adapter_key(Importer& importer, const Entry& entry) {
  if (!trl_has_adapter(importer)) return no_effect("no adapter is trained");
  if (entry.key == "lora_target_modules") return convert_targets(importer, entry);
  if (entry.key == "lora_modules_to_save")
    return importer.set_list("adapter.modules_to_save", texts_of(entry.value));
  return importer.set(entry.key == "lora_r"         ? "adapter.rank"
                      : entry.key == "lora_alpha"   ? "adapter.alpha"
                      : entry.key == "lora_dropout" ? "adapter.dropout"
                                                    : "adapter.rslora",
                      text_of(entry.value));
}

/// Sets data.train_on_prompt. By default, TRL trains all tokens of chats, but only the completions of prompts
/// with completions.
Result trl_loss_mask(Importer& importer, const Entry& entry) {
  if (trl_is_dpo(importer)) return no_effect("DPO compares answers");
  if (importer.config.is_true("assistant_only_loss") || importer.config.is_true("completion_only_loss"))
    return importer.set("data.train_on_prompt", "false");
  const Value record = first_record(importer, importer.config.text("dataset_name"));
  if (!record.is_object())
    return importer.refuse(
        "the value depends on the data: true for chats, false for prompts with completions",
        "data.train_on_prompt");
  const bool has_completions = record.contains("completion") && entry.value != Value(false);
  return importer.set("data.train_on_prompt", has_completions ? "false" : "true");
}

Result trl_completion_only(Importer& importer, const Entry& entry) {
  if (is_off(entry.value)) return importer.set("data.train_on_prompt", "true");
  return importer.set("data.train_on_prompt", "false");
}

Result trl_text_field(Importer& importer, const Entry& entry) {
  const std::string field = text_of(entry.value);
  if (field == "text") return equal("Hearth reads this field");
  return importer.set("data.fields", "[text=" + field + "]");
}

constexpr Rule kTrlRules[] = {
    {.keys = "model_name_or_path", .kind = convert, .ours = "model.path", .convert = convert_model},
    {.keys = "dataset_name dataset",
     .kind = convert,
     .ours = "data.path",
     .note = "a file; for a dataset on the hub, the file to which you write it",
     .convert = trl_dataset},
    {.keys = "dataset_train_split",
     .kind = accept,
     .values = "train",
     .note = "the split is a part of the dataset; write this part to the data file"},
    {.keys = "dataset_test_split dataset_config dataset_streaming dataset_num_proc dataset_kwargs* "
             "dataset_batch_size",
     .note = "preparation of the data"},
    {.keys = "dataset_text_field", .kind = convert, .ours = "data.fields", .convert = trl_text_field},
    {.keys = "test_split_size",
     .kind = take,
     .ours = "data.val_share",
     .note = "Hearth holds out the last part of the data",
     .fallback = "0"},
    {.keys = "max_length max_seq_length", .kind = take, .ours = "data.context", .fallback = "1024"},
    {.keys = "truncation_mode", .kind = accept, .values = "keep_start", .note = "Hearth keeps the start"},
    {.keys = "packing", .kind = take, .ours = "data.packing", .fallback = "false"},
    {.keys = "packing_strategy",
     .kind = accept,
     .values = "bfd|ffd",
     .note = "packed samples do not attend to each other in Hearth"},
    {.keys = "padding_free pad_to_multiple_of eval_packing pad_token",
     .note = "padding does not change the weights"},
    {.keys = "assistant_only_loss",
     .kind = convert,
     .ours = "data.train_on_prompt",
     .note = "false: all tokens of chats are trained",
     .fallback = "false",
     .convert = trl_loss_mask},
    {.keys = "completion_only_loss",
     .kind = convert,
     .ours = "data.train_on_prompt",
     .convert = trl_completion_only},
    {.keys = "shuffle_dataset", .note = "order of the data before the first epoch"},
    {.keys = "chat_template_path", .kind = take, .ours = "data.template"},
    {.keys = "eos_token",
     .kind = convert,
     .note = "accepted if the tokenizer has the same token",
     .convert = convert_special_token},
    {.keys = "use_peft", .kind = convert, .ours = "adapter.name", .convert = trl_use_peft},
    {.keys = "lora_r", .kind = convert, .ours = "adapter.rank", .fallback = "16", .convert = trl_adapter_key},
    {.keys = "lora_alpha",
     .kind = convert,
     .ours = "adapter.alpha",
     .fallback = "32",
     .convert = trl_adapter_key},
    {.keys = "lora_dropout",
     .kind = convert,
     .ours = "adapter.dropout",
     .fallback = "0.05",
     .convert = trl_adapter_key},
    {.keys = "lora_target_modules", .kind = convert, .ours = "adapter.targets", .convert = trl_adapter_key},
    {.keys = "lora_modules_to_save",
     .kind = convert,
     .ours = "adapter.modules_to_save",
     .convert = trl_adapter_key},
    {.keys = "use_rslora", .kind = convert, .ours = "adapter.rslora", .convert = trl_adapter_key},
    {.keys = "lora_task_type",
     .kind = accept,
     .values = "causal_lm",
     .note = "Hearth trains causal language models"},
    {.keys = "load_in_4bit load_in_8bit",
     .kind = convert,
     .ours = "adapter.quantize",
     .note = "nf4 or int8",
     .convert = convert_load_in_bits},
    {.keys = "bnb_4bit_quant_type",
     .kind = accept,
     .ours = "adapter.quantize",
     .values = "nf4",
     .note = "Hearth has only nf4"},
    {.keys = "use_bnb_nested_quant bnb_4bit_quant_storage",
     .note = "storage of the scales of quantized weights"},
    {.keys = "loss_type",
     .kind = accept,
     .values = "nll|sigmoid|[sigmoid]",
     .note = "Hearth has only cross entropy and DPO's sigmoid loss"},
    {.keys = "beta",
     .kind = convert,
     .ours = "dpo.beta",
     .note = "sets train.objective=dpo",
     .convert = trl_beta},
    {.keys = "label_smoothing",
     .kind = convert,
     .ours = "dpo.label_smoothing",
     .note = "sets train.objective=dpo",
     .convert = trl_beta},
    {.keys = "max_prompt_length precompute_ref_* disable_dropout",
     .note = "only for DPO; data.context sets the limit"},
    {.keys = "torch_dtype dtype model_revision model_init_kwargs* attn_implementation",
     .note = "loading of the model; see the key precision"},
    {.keys = "learning_rate", .kind = take, .ours = "optimizer.lr", .fallback = "0.00002"},
    {.keys = "optim",
     .kind = take,
     .ours = "optimizer.name",
     .values = kTrainerOptimizers,
     .fallback = "adamw_torch_fused"},
    kTrainerScheduler,
    kTrainerWarmup,
    {.keys = "per_device_train_batch_size per_gpu_train_batch_size",
     .kind = take,
     .ours = "train.batch",
     .fallback = "8"},
    kTrainerEpochs,
    {.keys = "env.*", .note = "environment of the process"},
    {.keys = "use_dora lora_target_parameters ref_model* sync_ref_model f_divergence_type loss_weights "
             "ld_alpha use_weighting rpo_alpha "
             "discopop_tau f_alpha_divergence_coef router_aux_loss_coef mixture* datasets.* test_split_size "
             "streaming",
     .kind = accept,
     .note = "Hearth has no such feature"},
};

}  // namespace

Tool trl() {
  return {.name = "trl",
          .title = "arguments of TRL or Hugging Face's Trainer",
          .marks =
              "per_device_train_batch_size num_train_epochs dataset_name use_peft lr_scheduler_type "
              "save_strategy",
          .tables = {kTrlRules, trainer_rules()}};
}

}  // namespace hearth::convert
