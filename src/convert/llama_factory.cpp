#include <fmt/format.h>

#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "convert/language.h"

namespace hearth::convert {
namespace {

using enum RuleKind;

bool factory_has_adapter(const Importer& importer) {
  return importer.config.text("finetuning_type", "lora") == "lora";
}

Result factory_stage(Importer& importer, const Entry& entry) {
  const std::string stage = text_of(entry.value);
  if (stage == "sft") return equal("Hearth trains on answers");
  if (stage == "pt") return importer.set("data.format", "text");
  if (stage == "dpo") return importer.set("train.objective", "dpo");
  return importer.refuse("Hearth has no stage " + stage, "train.objective");
}

Result factory_finetuning(Importer& importer, const Entry& entry) {
  const std::string type = text_of(entry.value);
  if (type == "full") return equal("all weights are trained");
  if (type == "lora") return importer.set("adapter.name", "lora");
  return importer.refuse("Hearth has no fine-tuning of type " + type, "adapter.name");
}

Result factory_adapter_key(Importer& importer, const Entry& entry) {
  if (!factory_has_adapter(importer)) return no_effect("no adapter is trained");
  if (entry.key == "lora_target") return convert_targets(importer, entry);
  if (entry.key == "additional_target")
    return importer.set_list("adapter.modules_to_save", texts_of(entry.value));
  if (entry.key == "use_rslora") return importer.set("adapter.rslora", text_of(entry.value));
  if (entry.key == "lora_dropout") return importer.set("adapter.dropout", text_of(entry.value));
  if (entry.key == "lora_alpha") {
    // The default is twice the rank.
    const double alpha = number_of(entry.value, 2 * importer.config.number("lora_rank", 8));
    return importer.set("adapter.alpha", number_text(alpha));
  }
  return importer.set("adapter.rank", text_of(entry.value));
}

/// Returns the entry of a dataset in dataset_info.json; null if there is none.
Value factory_dataset_info(const Importer& importer, const std::string& name) {
  const fs::path file = fs::path(importer.config.text("dataset_dir", "data")) / "dataset_info.json";
  if (!importer.exists(file.string())) return nullptr;
  const auto all = parse_json<Value>(read_file(file, 1 << 24));
  if (!all || !all->is_object() || !all->contains(name) || !(*all)[name].is_object()) return nullptr;
  return (*all)[name];
}

/// Sets data.format from the columns and tags of dataset_info.json. Returns the first reason why the records
/// cannot be read; empty if they can.
std::string factory_columns(Importer& importer, const Value& info) {
  const bool is_sharegpt = info.value("formatting", "alpaca") == "sharegpt";
  const Value columns =
      info.contains("columns") && info["columns"].is_object() ? info["columns"] : Value::object();
  const Value tags = info.contains("tags") && info["tags"].is_object() ? info["tags"] : Value::object();
  if (info.value("ranking", false)) {
    importer.set("data.format", "preference");
  } else if (is_sharegpt) {
    const std::string role = tags.contains("role_tag") ? text_of(tags["role_tag"]) : "from";
    importer.set("data.format", role == "from" ? "sharegpt" : "openai");
  } else if (importer.config.text("stage") != "pt") {
    importer.set("data.format", "alpaca");
  }
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"prompt", "instruction"}, {"query", "input"}, {"response", "output"}};
  for (const auto& [name, value] : columns.items()) {
    const std::string column = text_of(value);
    std::string_view expected = name;
    if (!is_sharegpt)
      for (const auto& [theirs, ours] : kNames)
        if (name == theirs) expected = ours;
    const bool is_text = importer.config.text("stage") == "pt" && name == "prompt" && column == "text";
    const bool is_messages = name == "messages" && (column == "messages" || column == "conversations");
    if (column != expected && !is_text && !is_messages)
      return fmt::format("the field {} is called {}; rename it to {} in the data", name, column, expected);
    if (name == "images" || name == "videos" || name == "audios") return "Hearth reads no images in chats";
  }
  return "";
}

Result factory_dataset(Importer& importer, const Entry& entry) {
  const std::vector<std::string> names = texts_of(entry.value);
  if (names.empty()) return importer.refuse("the value names no dataset", "data.path");
  const Value info = factory_dataset_info(importer, names[0]);
  const std::string folder = importer.config.text("dataset_dir", "data");
  Result result;
  if (info.is_object() && info.contains("file_name")) {
    result = set_data(importer, (fs::path(folder) / text_of(info["file_name"])).string());
    if (const std::string fault = factory_columns(importer, info); !fault.empty())
      return importer.refuse(fault, "data.path");
  } else {
    result = importer.set_text("data.path", names[0] + ".jsonl",
                               fmt::format("write the dataset {} to this file", names[0]));
  }
  if (names.size() == 1) return result;
  return importer.refuse(fmt::format("Hearth reads one file; join the {} datasets", names.size()),
                         "data.path");
}

/// Accepts a limit of at least the number of training records, because it changes nothing.
Result factory_max_samples(Importer& importer, const Entry& entry) {
  const std::vector<std::string> names = texts_of(Value(importer.config.text("dataset")));
  const Value info = names.empty() ? Value() : factory_dataset_info(importer, names[0]);
  if (names.size() == 1 && info.is_object() && info.contains("file_name")) {
    const fs::path file = fs::path(importer.config.text("dataset_dir", "data")) / text_of(info["file_name"]);
    const int64_t count = num_records(importer, file.string());
    if (count > 0 && static_cast<double>(count) <= number_of(entry.value, 0))
      return equal(fmt::format("the data have {} records", count));
  }
  return importer.refuse("Hearth reads all records; shorten the file: head -n " + text_of(entry.value),
                         "data.path");
}

Result factory_quantization(Importer& importer, const Entry& entry) {
  const double bits = number_of(entry.value, 0);
  if (bits == 4) return importer.set("adapter.quantize", "nf4");
  if (bits == 8)
    return importer.set("adapter.quantize", "int8", "Hearth rounds weights only, not activations");
  return importer.refuse("Hearth has quantization to 4 and 8 bits only", "adapter.quantize");
}

/// Refuses packing without neat_packing, where samples of a packed row attend to each other.
Result factory_packing(Importer& importer, const Entry& entry) {
  const bool packs = !is_off(entry.value);
  if (importer.config.text("stage") == "dpo") return no_effect("preference pairs are not packed");
  if (packs && !importer.config.is_true("neat_packing"))
    return importer.refuse("packed samples attend to each other in LLaMA-Factory, but not in Hearth",
                           "data.packing", "true");
  return importer.set("data.packing", packs ? "true" : "false");
}

Result factory_neat_packing(Importer& importer, const Entry& entry) {
  if (is_off(entry.value)) return equal("off");
  return importer.set("data.packing", "true");
}

Result factory_val_size(Importer& importer, const Entry& entry) {
  const double size = number_of(entry.value, 0);
  if (size < 1)
    return importer.set("data.val_share", number_text(size),
                        "Hearth holds out the last part of the data, not a random one");
  return importer.refuse("the value is a number of records, but data.val_share is a fraction",
                         "data.val_share");
}

Result factory_template(Importer& importer, const Entry& entry) {
  const std::string name = text_of(entry.value);
  if (importer.config.text("stage") == "pt") return no_effect("plain text has no template");
  if (name == "alpaca" || name == "default" || name == "empty")
    return importer.refuse("Hearth has no such template; write it to a Jinja file", "data.template");
  return convert_template(importer, entry);
}

/// Converts pure_bf16, which stores the weights in bf16.
Result factory_pure_bf16(Importer& importer, const Entry& entry) {
  if (is_off(entry.value)) return equal("off");
  return importer.set("precision", "bf16");
}

constexpr Rule kFactoryRules[] = {
    {.keys = "model_name_or_path", .kind = convert, .ours = "model.path", .convert = convert_model},
    {.keys = "adapter_name_or_path", .kind = take, .ours = "adapter.path"},
    {.keys = "stage",
     .kind = convert,
     .ours = "train.objective",
     .note = "sft, pt and dpo",
     .fallback = "sft",
     .convert = factory_stage},
    {.keys = "finetuning_type",
     .kind = convert,
     .ours = "adapter.name",
     .note = "lora and full",
     .fallback = "lora",
     .convert = factory_finetuning},
    {.keys = "lora_rank",
     .kind = convert,
     .ours = "adapter.rank",
     .fallback = "8",
     .convert = factory_adapter_key},
    {.keys = "lora_alpha",
     .kind = convert,
     .ours = "adapter.alpha",
     .fallback = "2 x lora_rank",
     .convert = factory_adapter_key},
    {.keys = "lora_dropout",
     .kind = convert,
     .ours = "adapter.dropout",
     .fallback = "0",
     .convert = factory_adapter_key},
    {.keys = "lora_target",
     .kind = convert,
     .ours = "adapter.targets",
     .fallback = "all",
     .convert = factory_adapter_key},
    {.keys = "use_rslora", .kind = convert, .ours = "adapter.rslora", .convert = factory_adapter_key},
    {.keys = "additional_target",
     .kind = convert,
     .ours = "adapter.modules_to_save",
     .convert = factory_adapter_key},
    {.keys = "quantization_bit",
     .kind = convert,
     .ours = "adapter.quantize",
     .note = "4: nf4; 8: int8",
     .convert = factory_quantization},
    {.keys = "quantization_method",
     .kind = accept,
     .ours = "adapter.quantize",
     .values = "bnb|bitsandbytes",
     .note = "Hearth has nf4 and int8"},
    {.keys = "quantization_type",
     .kind = accept,
     .ours = "adapter.quantize",
     .values = "nf4",
     .note = "Hearth has only nf4"},
    {.keys = "double_quantization quantization_device_map",
     .note = "storage of the scales of quantized weights"},
    {.keys = "dataset",
     .kind = convert,
     .ours = "data.path",
     .note = "one dataset; its file and columns are in dataset_info.json",
     .convert = factory_dataset},
    {.keys = "dataset_dir media_dir", .kind = part, .note = "see dataset"},
    {.keys = "max_samples",
     .kind = convert,
     .ours = "data.path",
     .note = "accepted if the data have no more records",
     .convert = factory_max_samples},
    {.keys = "eval_dataset",
     .kind = accept,
     .ours = "data.val_path",
     .note = "Hearth reads held-out text from a file"},
    {.keys = "template",
     .kind = convert,
     .ours = "data.template",
     .note = "chatml; others: the template of the tokenizer",
     .convert = factory_template},
    {.keys = "enable_thinking",
     .kind = accept,
     .values = "true|false",
     .note = "set the variable enable_thinking in data.variables"},
    {.keys = "default_system tool_format",
     .kind = accept,
     .note = "Hearth adds no system message and no tools; write them into the data"},
    {.keys = "cutoff_len", .kind = take, .ours = "data.context", .fallback = "2048"},
    {.keys = "packing",
     .kind = convert,
     .ours = "data.packing",
     .note = "only with neat_packing; without it, packed samples attend to each other",
     .fallback = "false",
     .convert = factory_packing},
    {.keys = "neat_packing", .kind = convert, .ours = "data.packing", .convert = factory_neat_packing},
    {.keys = "train_on_prompt", .kind = take, .ours = "data.train_on_prompt"},
    {.keys = "mask_history", .kind = accept, .note = "Hearth trains on all answers of a chat"},
    {.keys = "disable_shuffling", .kind = take, .ours = "data.shuffle", .values = "true=false false=true"},
    {.keys = "val_size",
     .kind = convert,
     .ours = "data.val_share",
     .fallback = "0",
     .convert = factory_val_size},
    {.keys = "mix_strategy",
     .kind = accept,
     .values = "concat",
     .note = "Hearth reads one file; join the datasets"},
    {.keys = "mixed_precision",
     .kind = take,
     .ours = "precision",
     .values = "bf16_mixed=bf16 fp16_mixed=fp16"},
    {.keys = "use_packed_sequences", .kind = accept, .ours = "data.packing", .note = "set data.packing=true"},
    {.keys = "pure_bf16", .kind = convert, .ours = "precision", .convert = factory_pure_bf16},
    {.keys = "pref_beta", .kind = take, .ours = "dpo.beta"},
    {.keys = "pref_loss", .kind = accept, .values = "sigmoid", .note = "Hearth has only the sigmoid loss"},
    {.keys = "dpo_label_smoothing", .kind = take, .ours = "dpo.label_smoothing"},
    {.keys = "learning_rate", .kind = take, .ours = "optimizer.lr", .fallback = "0.00005"},
    {.keys = "optim",
     .kind = take,
     .ours = "optimizer.name",
     .values = kTrainerOptimizers,
     .fallback = "adamw_torch"},
    kTrainerScheduler,
    kTrainerWarmup,
    {.keys = "per_device_train_batch_size", .kind = take, .ours = "train.batch", .fallback = "8"},
    kTrainerEpochs,
    {.keys =
         "tensor_model_parallel_size pipeline_model_parallel_size expert_model_parallel_size "
         "context_parallel_size sequence_parallel use_distributed_optimizer overlap_* bias_activation_fusion "
         "apply_rope_fusion recompute_granularity moe_token_dispatcher_type moe_grouped_gemm flash_attn "
         "use_unsloth use_unsloth_gc enable_liger_kernel use_v1_kernels use_fast_tokenizer "
         "upcast_layernorm "
         "upcast_lmhead_output use_kv_cache cache_dir offload_folder print_param_status model_revision "
         "infer_* "
         "compute_dtype block_diag_attn ignore_pad_token_for_loss use_kt kt_* _kt_*",
     .note = "implementation in PyTorch"},
    {.keys = "export_hf_on_finish overwrite_cache preprocessing_batch_size preprocessing_num_workers "
             "tokenized_path streaming "
             "buffer_size "
             "data_shared_file_system eval_num_beams adapter_folder create_new_adapter",
     .note = "preparation of the data"},
    {.keys = "image_* video_* audio_* crop_to_patches use_audio_in_video freeze_vision_tower "
             "freeze_multi_modal_projector "
             "freeze_language_model",
     .note = "only for models that read images; Hearth trains on text only"},
    {.keys = "export_* vllm_* sglang_*", .note = "export and inference; see hearth export"},
    {.keys = "use_dora pissa_* loraplus_* oft_* module_dropout freeze_trainable_layers "
             "freeze_trainable_modules freeze_extra_modules "
             "use_galore galore_* use_apollo apollo_* use_badam badam_* use_adam_mini use_muon use_llama_pro "
             "use_dft_loss use_asft_loss "
             "asft_alpha use_eaft_loss eaft_alpha pref_ftx pref_bco_weight simpo_gamma kto_* ppo_* "
             "ref_model* reward_model* ld_alpha "
             "rope_scaling shift_attn mixture_of_depths moe_aux_loss_coef train_from_scratch resize_vocab "
             "split_special_tokens add_tokens "
             "add_special_tokens new_special_tokens_config init_special_tokens interleave_probs use_mca "
             "use_megatron_bridge "
             "megatron_bridge_args use_hyper_parallel hyper_parallel_* preserve_thinking fp8_* use_reentrant",
     .kind = accept,
     .note = "Hearth has no such feature"},
};

}  // namespace

Tool llama_factory() {
  return {.name = "llama-factory",
          .title = "LLaMA-Factory YAML",
          .marks = "stage finetuning_type cutoff_len template dataset_dir",
          .tables = {kFactoryRules, trainer_rules()}};
}

}  // namespace hearth::convert
