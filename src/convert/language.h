#pragma once

#include <span>

#include "convert/rule.h"

namespace hearth::convert {

// Conversions that several tools for language models share.

/// Returns the rules for the arguments of Hugging Face's Trainer, which other tools pass through.
std::span<const Rule> trainer_rules();

/// model.path from a folder, or from the name of a model on the Hugging Face hub.
Convert convert_model;
/// schedule.name, and schedule.min_lr from lr_scheduler_kwargs.
Convert convert_scheduler;
/// schedule.warmup_steps from a number of updates, or from a fraction of all updates.
Convert convert_warmup;
/// train.epochs; a fraction of an epoch is refused.
Convert convert_epochs;
/// precision from bf16 and fp16; false sets nothing.
Convert convert_precision;
/// adapter.quantize from load_in_4bit or load_in_8bit.
Convert convert_load_in_bits;
/// adapter.targets from a list or comma-separated names; "all" and "all-linear" mean all linear layers.
Convert convert_targets;
/// data.template: names that Hearth has, otherwise that of the tokenizer.
Convert convert_template;
/// A special token: equal if tokenizer_config.json of a local model has the same one.
Convert convert_special_token;

/// Values of optimizers by the names of transformers, for rules of kind take.
inline constexpr std::string_view kTrainerOptimizers =
    "adamw_torch=adamw adamw_torch_fused=adamw adamw_hf=adamw adamw_apex_fused=adamw paged_adamw=adamw "
    "paged_adamw_32bit=adamw adamw_bnb_8bit=adamw8bit adamw_8bit=adamw8bit paged_adamw_8bit=adamw8bit "
    "adamw_torch_8bit=adamw8bit lion_32bit=lion paged_lion_32bit=lion sgd=sgd";

/// Sets data.path to a file, or, for a dataset on the hub, to the file to which the user must download it.
Result set_data(Importer& importer, const std::string& path);
/// Returns the first record of a local JSON or JSON Lines file; null if there is none.
Value first_record(const Importer& importer, const std::string& path);
/// Returns the number of records of a local JSON Lines or JSON file; 0 if it is not local.
int64_t num_records(const Importer& importer, const std::string& path);
/// True if a local JSON or JSON Lines file has a record in which the field is not empty.
bool has_nonempty(const Importer& importer, const std::string& path, const std::string& field);

}  // namespace hearth::convert
