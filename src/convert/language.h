#pragma once

#include <span>

#include "convert/rule.h"

namespace hearth::convert {

// Conversions for several tools that train language models.

/// Returns the rules for the arguments of Hugging Face's Trainer, which several tools have.
std::span<const Rule> trainer_rules();

/// Sets model.path from a folder, or from the name of a model on the Hugging Face hub.
Convert convert_model;
/// Sets schedule.name, and schedule.min_lr from lr_scheduler_kwargs.
Convert convert_scheduler;
/// Sets schedule.warmup_steps from a number of updates, or from a fraction of all updates.
Convert convert_warmup;
/// Sets train.epochs. Refuses a fraction of an epoch.
Convert convert_epochs;
/// Sets precision from bf16 and fp16, unless the value is false.
Convert convert_precision;
/// Sets adapter.quantize from load_in_4bit or load_in_8bit.
Convert convert_load_in_bits;
/// Sets adapter.targets from a list or comma-separated names; "all" and "all-linear" mean all linear layers.
Convert convert_targets;
/// Sets data.template to a name that Hearth has or to a file, otherwise to the template of the tokenizer.
Convert convert_template;
/// Accepts a special token if tokenizer_config.json of a local model contains the same token.
Convert convert_special_token;

/// Names of optimizers in transformers and in Hearth (Rule::values).
inline constexpr std::string_view kTrainerOptimizers =
    "adamw_torch=adamw adamw_torch_fused=adamw adamw_hf=adamw adamw_apex_fused=adamw paged_adamw=adamw "
    "paged_adamw_32bit=adamw adamw_bnb_8bit=adamw8bit adamw_8bit=adamw8bit paged_adamw_8bit=adamw8bit "
    "adamw_torch_8bit=adamw8bit lion_32bit=lion paged_lion_32bit=lion sgd=sgd";

/// Rules of arguments that have the same names and defaults in several tools.
inline constexpr Rule kTrainerScheduler = {
    .keys = "lr_scheduler_type",
    .kind = RuleKind::convert,
    .ours = "schedule.name",
    .note = "cosine, cosine_with_min_lr, constant, constant_with_warmup",
    .fallback = "linear",
    .convert = convert_scheduler};
inline constexpr Rule kTrainerWarmup = {.keys = "warmup_ratio warmup_steps",
                                        .kind = RuleKind::convert,
                                        .ours = "schedule.warmup_steps",
                                        .note = "a fraction needs the number of updates",
                                        .convert = convert_warmup};
inline constexpr Rule kTrainerEpochs = {.keys = "num_train_epochs",
                                        .kind = RuleKind::convert,
                                        .ours = "train.epochs",
                                        .fallback = "3",
                                        .convert = convert_epochs};

/// Sets data.path to a file. For a dataset on the hub, this is the file to which the user must write it.
Result set_data(Importer& importer, const std::string& path);
/// Returns the first record of a local JSON or JSON Lines file; null if there is none.
Value first_record(const Importer& importer, const std::string& path);
/// Returns the number of records of a local JSON or JSON Lines file; 0 if there is no such file.
int64_t num_records(const Importer& importer, const std::string& path);
/// True if a local JSON or JSON Lines file has a record in which the field is not empty.
bool has_nonempty(const Importer& importer, const std::string& path, const std::string& field);

}  // namespace hearth::convert
