#include <fmt/format.h>

#include <cmath>

#include "convert/language.h"

namespace hearth::convert {
namespace {

using enum RuleKind;

bool trains_adapter(const Importer& importer) { return !importer.config.text("adapter").empty(); }

Result axolotl_adapter(Importer& importer, const Entry& entry) {
  const std::string name = text_of(entry.value);
  if (name.empty()) return equal("all weights are trained");
  if (name != "lora" && name != "qlora") return importer.refuse("Hearth has no " + name, "adapter.name");
  if (name == "qlora" && importer.config.find("load_in_4bit") == nullptr)
    importer.set("adapter.quantize", "nf4");
  return importer.set("adapter.name", "lora");
}

/// Converts the keys of adapters, which have no effect without an adapter.
Result axolotl_adapter_number(Importer& importer, const Entry& entry) {
  if (!trains_adapter(importer)) return no_effect("no adapter is trained");
  return importer.set(entry.key == "lora_r"       ? "adapter.rank"
                      : entry.key == "lora_alpha" ? "adapter.alpha"
                                                  : "adapter.dropout",
                      text_of(entry.value));
}

Result axolotl_target_linear(Importer& importer, const Entry& entry) {
  if (!trains_adapter(importer)) return no_effect("no adapter is trained");
  if (is_off(entry.value)) return equal("off");
  return importer.set("adapter.targets", "[all-linear]");
}

Result axolotl_targets(Importer& importer, const Entry& entry) {
  if (!trains_adapter(importer)) return no_effect("no adapter is trained");
  if (importer.config.is_true("lora_target_linear")) return no_effect("lora_target_linear is set");
  return convert_targets(importer, entry);
}

Result axolotl_load_in_bits(Importer& importer, const Entry& entry) {
  if (!trains_adapter(importer) && !is_off(entry.value))
    return importer.refuse("without an adapter all weights are trained, so they cannot be quantized",
                           "adapter.name");
  return convert_load_in_bits(importer, entry);
}

/// Converts batch_size, the number of rows of an update; gradient_accumulation_steps takes precedence.
Result axolotl_batch_size(Importer& importer, const Entry& entry) {
  if (importer.config.find("gradient_accumulation_steps") != nullptr)
    return no_effect("gradient_accumulation_steps is set");
  const double rows = number_of(entry.value, 0), micro = importer.config.number("micro_batch_size", 1);
  if (rows < micro || micro < 1)
    return importer.refuse("batch_size is smaller than micro_batch_size", "train.accumulate");
  return importer.set("train.accumulate", number_text(std::floor(rows / micro)));
}

Result axolotl_val_set_size(Importer& importer, const Entry& entry) {
  const double share = number_of(entry.value, 0);
  if (share < 1)
    return importer.set("data.val_share", number_text(share),
                        "Hearth holds out the last part of the data, not a random one");
  return importer.refuse("the value is a number of records, but data.val_share is a fraction",
                         "data.val_share");
}

/// Sets data.path to the first file of the first dataset; refuses further ones.
Result axolotl_data(Importer& importer, const Entry& entry) {
  if (entry.path.find('[') != std::string::npos && entry.path.find("[0]") == std::string::npos)
    return importer.refuse("Hearth reads one file; append the records to the file of the first dataset",
                           "data.path");
  if (entry.key == "datasets.path" && importer.config.find("datasets.data_files") != nullptr)
    return no_effect("data_files names the file");
  if (entry.value.is_array() && entry.value.size() != 1)
    return importer.refuse("Hearth reads one file; join the files", "data.path");
  return set_data(importer, entry.value.is_array() ? text_of(entry.value[0]) : text_of(entry.value));
}

/// Sets data.format and data.template for axolotl's prompt strategies.
Result axolotl_type(Importer& importer, const Entry& entry) {
  const std::string type = text_of(entry.value);
  const std::string path = importer.config.text("datasets.path");
  if (importer.config.text("rl") == "dpo")
    return importer.set("data.format", "preference",
                        "Hearth reads the fields chosen and rejected as text or messages");
  if (type == "alpaca") {
    importer.set("data.format", "alpaca");
    if (importer.exists(path) && !has_nonempty(importer, path, "input"))
      return importer.set("data.template", "alpaca");
    return importer.refuse("for records with an input, Hearth's prompt has another text", "data.template",
                           "alpaca");
  }
  if (type == "completion" || type == "pretrain") {
    const std::string field = importer.config.text("datasets.field", "text");
    if (field != "text") importer.set("data.fields", "[text=" + field + "]");
    importer.set("data.overlong", "split");
    return importer.set("data.format", "text");
  }
  if (type.starts_with("chat_template") || type.starts_with("sharegpt")) {
    const std::string role = importer.config.text("datasets.message_property_mappings.role",
                                                  importer.config.text("datasets.message_field_role"));
    const bool is_sharegpt = role == "from" || type.starts_with("sharegpt");
    return importer.set("data.format", is_sharegpt ? "sharegpt" : "openai");
  }
  return importer.refuse("Hearth has no prompt strategy " + type, "data.format");
}

Result axolotl_field_messages(Importer& importer, const Entry& entry) {
  const std::string field = text_of(entry.value);
  if (field == "messages" || field == "conversations") return equal("Hearth reads this field");
  return importer.refuse("Hearth reads messages or conversations; rename the field");
}

/// Accepts the names of the fields of a message that Hearth reads.
Result axolotl_message_field(Importer& importer, const Entry& entry) {
  const std::string field = text_of(entry.value);
  const bool is_role = entry.key.ends_with("role");
  const std::string_view names = is_role ? "role from" : "content value";
  if (names.find(field) != names.npos && field.size() > 3) return equal("Hearth reads this field");
  return importer.refuse("Hearth reads role and content, or from and value; rename the field");
}

Result axolotl_split(Importer& importer, const Entry& entry) {
  const std::string split = text_of(entry.value);
  if (split == "train") return equal("the data file contains this split");
  return importer.refuse("the split is a part of the dataset; write this part to the data file", "data.path");
}

Result axolotl_rl(Importer& importer, const Entry& entry) {
  if (text_of(entry.value) == "dpo") return importer.set("train.objective", "dpo");
  return importer.refuse("Hearth has no " + text_of(entry.value), "train.objective");
}

Result axolotl_min_lr_ratio(Importer& importer, const Entry& entry) {
  const double ratio = number_of(entry.value, 0);
  return importer.set("schedule.min_lr", number_text(ratio * importer.config.number("learning_rate", 0)));
}

Result axolotl_plugins(Importer& importer, const Entry& entry) {
  for (const std::string& plugin : texts_of(entry.value))
    if (plugin.find("liger") == plugin.npos && plugin.find("cut_cross_entropy") == plugin.npos &&
        plugin.find("kernels") == plugin.npos)
      return importer.refuse("unknown plugin " + plugin);
  return no_effect("the plugins only change kernels");
}

constexpr Rule kAxolotlRules[] = {
    {.keys = "base_model base_model_config", .kind = convert, .ours = "model.path", .convert = convert_model},
    {.keys = "tokenizer_config", .kind = take, .ours = "model.tokenizer"},
    {.keys = "adapter",
     .kind = convert,
     .ours = "adapter.name",
     .note = "lora; qlora: with adapter.quantize=nf4",
     .convert = axolotl_adapter},
    {.keys = "load_in_4bit load_in_8bit",
     .kind = convert,
     .ours = "adapter.quantize",
     .note = "nf4 or int8",
     .convert = axolotl_load_in_bits},
    {.keys = "lora_r", .kind = convert, .ours = "adapter.rank", .convert = axolotl_adapter_number},
    {.keys = "lora_alpha", .kind = convert, .ours = "adapter.alpha", .convert = axolotl_adapter_number},
    {.keys = "lora_dropout",
     .kind = convert,
     .ours = "adapter.dropout",
     .fallback = "0",
     .convert = axolotl_adapter_number},
    {.keys = "lora_target_linear",
     .kind = convert,
     .ours = "adapter.targets",
     .note = "all-linear",
     .convert = axolotl_target_linear},
    {.keys = "lora_target_modules",
     .kind = convert,
     .ours = "adapter.targets",
     .note = "names of layers; regular expressions are refused",
     .convert = axolotl_targets},
    {.keys = "lora_modules_to_save", .kind = take, .ours = "adapter.modules_to_save"},
    {.keys = "lora_model_dir", .kind = take, .ours = "adapter.path"},
    {.keys = "peft_use_rslora", .kind = take, .ours = "adapter.rslora"},
    {.keys = "peft_use_dora loraplus_lr_ratio loraplus_lr_embedding lora_target_parameters "
             "peft_layers_to_transform "
             "peft_layers_pattern peft.* loftq* lora_rank_pattern lora_alpha_pattern peft_layer_replication "
             "peft_trainable_token_indices relora* lora_fan_in_fan_out lisa_*",
     .kind = accept,
     .note = "Hearth has no such kind of adapter"},
    {.keys = "peft_init_lora_weights",
     .kind = accept,
     .values = "true",
     .note = "Hearth initializes adapters by PEFT's default method"},
    {.keys = "bnb_config_kwargs.bnb_4bit_quant_type",
     .kind = accept,
     .ours = "adapter.quantize",
     .values = "nf4",
     .note = "Hearth has only nf4"},
    {.keys = "bnb_config_kwargs.*", .note = "storage of the scales of quantized weights"},
    {.keys = "lora_mlp_kernel lora_qkv_kernel lora_o_kernel lora_embedding_kernel lora_on_cpu "
             "peft_autocast_adapter_dtype "
             "qlora_sharded_model_loading",
     .note = "only the implementation differs"},
    {.keys = "sequence_len", .kind = take, .ours = "data.context", .fallback = "512"},
    {.keys = "sample_packing",
     .kind = take,
     .ours = "data.packing",
     .note = "packed samples do not attend to each other",
     .fallback = "false"},
    {.keys = "excess_length_strategy",
     .kind = take,
     .ours = "data.overlong",
     .values = "drop=drop truncate=truncate",
     .fallback = "drop"},
    {.keys = "train_on_inputs", .kind = take, .ours = "data.train_on_prompt"},
    {.keys = "datasets.path datasets.data_files pretraining_dataset pretraining_dataset.path "
             "pretraining_dataset.data_files",
     .kind = convert,
     .ours = "data.path",
     .note = "one file; for a dataset on the hub, the file to which you write it",
     .convert = axolotl_data},
    {.keys = "datasets.type pretraining_dataset.type",
     .kind = convert,
     .ours = "data.format",
     .note = "alpaca, chat_template, sharegpt, completion; all types with rl: dpo",
     .convert = axolotl_type},
    {.keys = "datasets.split pretraining_dataset.split",
     .kind = convert,
     .note = "only train",
     .convert = axolotl_split},
    {.keys = "datasets.field_messages",
     .kind = convert,
     .note = "messages or conversations",
     .convert = axolotl_field_messages},
    {.keys = "datasets.message_property_mappings.role datasets.message_property_mappings.content "
             "datasets.message_field_role "
             "datasets.message_field_content",
     .kind = convert,
     .note = "role and content, or from and value",
     .convert = axolotl_message_field},
    {.keys = "datasets.field pretraining_dataset.text_column datasets.text_column",
     .kind = part,
     .note = "see datasets.type"},
    {.keys = "datasets.field_chosen",
     .kind = accept,
     .values = "chosen",
     .note = "rename the field to chosen"},
    {.keys = "datasets.field_rejected",
     .kind = accept,
     .values = "rejected",
     .note = "rename the field to rejected"},
    {.keys = "datasets.roles.user",
     .kind = accept,
     .values = "[user]|[human]|[user, human]|[human, user]",
     .note = "unsupported role; rename the roles in the data"},
    {.keys = "datasets.roles.assistant",
     .kind = accept,
     .values = "[assistant]|[gpt]|[assistant, gpt]|[gpt, assistant]",
     .note = "unsupported role; rename the roles in the data"},
    {.keys = "datasets.roles.system",
     .kind = accept,
     .values = "[system]",
     .note = "unsupported role; rename the roles in the data"},
    {.keys = "datasets.roles_to_train",
     .kind = accept,
     .values = "[assistant]|[gpt]|[assistant, gpt]",
     .note = "Hearth trains the assistant's turns"},
    {.keys = "datasets.train_on_eos",
     .kind = accept,
     .values = "turn",
     .note = "Hearth trains the end of each answer"},
    {.keys = "datasets.ds_type", .kind = accept, .values = "json", .note = "convert the file to JSON Lines"},
    {.keys = "datasets.field_thinking datasets.template_thinking_key",
     .kind = accept,
     .values = "thinking|reasoning_content|reasoning",
     .note = "rename the field to reasoning_content"},
    {.keys = "datasets.name pretraining_dataset.name",
     .note = "configuration of the dataset on the hub; write this configuration to the data file"},
    {.keys = "test_datasets.path test_datasets.data_files", .kind = take, .ours = "data.val_path"},
    {.keys = "test_datasets.type test_datasets.ds_type test_datasets.split test_datasets.field_messages "
             "test_datasets.*",
     .kind = part,
     .note = "read like the training data"},
    {.keys = "val_set_size",
     .kind = convert,
     .ours = "data.val_share",
     .fallback = "0",
     .convert = axolotl_val_set_size},
    {.keys = "streaming shuffle_merged_datasets", .note = "changes the order of the data only"},
    {.keys = "dataset_exact_deduplication curriculum_sampling",
     .kind = accept,
     .note = "Hearth uses the data as they are; prepare the data file this way"},
    {.keys = "chat_template",
     .kind = convert,
     .ours = "data.template",
     .note = "chatml; others: the template of the tokenizer",
     .convert = convert_template},
    {.keys = "chat_template_jinja", .kind = take, .ours = "data.template", .note = "path of a template file"},
    {.keys = "default_system_message",
     .kind = accept,
     .ours = "data.template",
     .note = "Hearth adds no system message; write it into the data"},
    {.keys = "eot_tokens",
     .note = "the chat template defines the end of a turn; hearth validate shows whether it is trained"},
    {.keys = "special_tokens.*",
     .kind = convert,
     .note = "accepted if the tokenizer has the same token",
     .convert = convert_special_token},
    {.keys = "tokens.bos_token tokens.eos_token tokens.unk_token tokens.pad_token",
     .kind = convert,
     .note = "accepted if the tokenizer has the same token",
     .convert = convert_special_token},
    {.keys = "tokens added_tokens_overrides*",
     .kind = accept,
     .note = "Hearth adds no tokens to a tokenizer"},
    {.keys = "rl", .kind = convert, .ours = "train.objective", .note = "dpo", .convert = axolotl_rl},
    {.keys = "dpo_beta rl_beta", .kind = take, .ours = "dpo.beta"},
    {.keys = "dpo_label_smoothing", .kind = take, .ours = "dpo.label_smoothing"},
    {.keys = "dpo_loss_type",
     .kind = accept,
     .values = "[sigmoid]|sigmoid",
     .note = "Hearth has only the sigmoid loss"},
    {.keys = "precompute_ref_log_probs dpo_use_liger_kernel dpo_padding_free dpo_use_logits_to_keep",
     .note = "only the implementation differs"},
    {.keys = "micro_batch_size", .kind = take, .ours = "train.batch", .fallback = "1"},
    {.keys = "batch_size",
     .kind = convert,
     .ours = "train.accumulate",
     .note = "batch_size / micro_batch_size",
     .convert = axolotl_batch_size},
    {.keys = "num_epochs",
     .kind = convert,
     .ours = "train.epochs",
     .fallback = "1",
     .convert = convert_epochs},
    {.keys = "learning_rate", .kind = take, .ours = "optimizer.lr"},
    {.keys = "optimizer",
     .kind = take,
     .ours = "optimizer.name",
     .values = kTrainerOptimizers,
     .fallback = "adamw_torch_fused"},
    {.keys = "lr_scheduler",
     .kind = convert,
     .ours = "schedule.name",
     .note = "cosine, cosine_with_min_lr, constant, constant_with_warmup",
     .fallback = "cosine",
     .convert = convert_scheduler},
    {.keys = "cosine_min_lr_ratio",
     .kind = convert,
     .ours = "schedule.min_lr",
     .note = "cosine_min_lr_ratio x learning_rate",
     .convert = axolotl_min_lr_ratio},
    {.keys = "cosine_constant_lr_ratio lr_div_factor lr_groups* embedding_lr embedding_lr_scale "
             "jagged_restart_* eta_min lr_quadratic_warmup",
     .kind = accept,
     .ours = "schedule.name",
     .note = "Hearth has no such schedule"},
    kTrainerWarmup,
    {.keys = "unfrozen_parameters",
     .kind = accept,
     .ours = "train.freeze",
     .note = "train.freeze lists the frozen modules instead"},
    {.keys = "plugins",
     .kind = convert,
     .note = "only plugins that change kernels",
     .convert = axolotl_plugins},
    {.keys = "strict eval_sample_packing pad_to_sequence_len pad_to_multiple_of eval_batch_size "
             "evals_per_epoch saves_per_epoch "
             "eval_table_size eval_max_new_tokens eval_causal_lm_metrics use_otel_metrics otel_metrics_* "
             "do_causal_lm_eval loss_watchdog_* "
             "auto_resume_from_checkpoints",
     .note = "evaluation, checkpoints and padding do not change the weights"},
    {.keys = "sample_packing_* multipack_real_batches streaming_multipack_buffer_size pretrain_multipack_* "
             "batch_flattening group_by_length",
     .note = "changes the order of samples in rows only"},
    {.keys = "liger_* cut_cross_entropy* chunked_cross_entropy* unsloth_* flash_attention flash_attn_* "
             "sdp_attention xformers_attention "
             "flash_optimum flex_attention flex_attn_* eager_attention sage_attention fused_attn_kernel "
             "use_kernels use_scattermoe use_sonicmoe "
             "experts_implementation flash_attn_d512 gemma4_hybrid_attn_impl tiled_mlp* use_glm_dsa_kernels "
             "use_dsv4_kernels fused_* sdpa_varlen "
             "torchdistx_path",
     .note = "implementation of the same computation"},
    {.keys = "model_type tokenizer_type tokenizer_use_fast tokenizer_legacy tokenizer_save_jinja_files "
             "tokenizer_use_mistral_common "
             "processor_type is_llama_derived_model is_mistral_derived_model is_falcon_derived_model "
             "is_qwen_derived_model type_of_model revision_of_model torch_dtype",
     .note = "Hearth reads this from config.json and tokenizer.json of the model"},
    {.keys = "dataset_prepared_path dataset_processes dataset_num_proc dataset_keep_in_memory "
             "dataset_shard_* push_dataset_to_hub "
             "num_dataset_shards_to_save skip_prepare_dataset shuffle_before_merging_datasets",
     .note = "preparation of the data"},
    {.keys = "gptq* model_quantization_config* experimental_skip_move_to_device",
     .note = "Hearth reads the quantization of a model from its files"},
    {.keys = "dp_shard_size dp_replicate_size tensor_parallel_size context_parallel_size "
             "expert_parallel_size sequence_parallel_degree "
             "heads_k_stride ring_attn_func use_ray layer_offloading gc_steps gc_collect_steps "
             "gpu_memory_limit selective_checkpointing "
             "recompute_layer_types dist_* expert_parallel_* debug env_capabilities profiler_steps* "
             "axolotl_config_path "
             "resources_per_worker",
     .note = "distribution of the work; see the keys devices and parallel"},
    {.keys = "resize_token_embeddings_to_32x mean_resizing_embeddings",
     .note = "Hearth keeps the size of the embeddings"},
    {.keys = "s2_attention noisy_embedding_alpha max_packed_sequence_len quantize_moe_experts reward_model "
             "process_reward_model num_labels "
             "center_rewards_coefficient model_config.* overrides_of_model_config.* "
             "overrides_of_model_config rope_scaling* qat.* quantization.* "
             "ebft.* trl.* vllm.* kto_* orpo_* simpo_* cpo_* rpo_alpha freeze_mm_modules drop_system_message "
             "datasets.* pretraining_dataset.* "
             "llama4_linearized_experts nvfp4_* dsv4_* use_onebitllms reinit_weights use_pose pose_* "
             "use_eaft eaft_* diffusion.* llmcompressor.* cls_model_config fp32_norms* "
             "dynamic_checkpoint* trainer_cls min_sample_len train_on_last_step_only",
     .kind = accept,
     .note = "Hearth has no such feature"},
};

}  // namespace

Tool axolotl() {
  return {.name = "axolotl",
          .title = "axolotl YAML",
          .marks = "base_model",
          .tables = {kAxolotlRules, trainer_rules()}};
}

}  // namespace hearth::convert
