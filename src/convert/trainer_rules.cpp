#include "convert/language.h"

namespace hearth::convert {
namespace {

using enum RuleKind;

/// Sets the interval of evaluations.
Result convert_eval_steps(Importer& importer, const Entry& entry) {
  const double steps = number_of(entry.value, 0);
  if (steps < 1) return importer.refuse("the interval is a fraction of all updates", "train.eval_every");
  return importer.set("train.eval_every", number_text(steps));
}

/// Sets the interval of checkpoints, which does not change the weights.
Result convert_save_steps(Importer& importer, const Entry& entry) {
  const double steps = number_of(entry.value, 0);
  if (steps < 1) return no_effect("checkpoints do not change the weights");
  return importer.set("train.checkpoint_every", number_text(steps));
}

Result convert_logging_steps(Importer& importer, const Entry& entry) {
  const double steps = number_of(entry.value, 0);
  if (steps < 1) return no_effect("log lines do not change the weights");
  return importer.set("train.log_every", number_text(steps));
}

Result convert_max_steps(Importer& importer, const Entry& entry) {
  const double steps = number_of(entry.value, 0);
  if (steps <= 0) return equal("train.epochs sets the length of the run");
  return importer.set("train.steps", number_text(steps));
}

constexpr Rule kTrainerRules[] = {
    {.keys = "max_steps",
     .kind = convert,
     .ours = "train.steps",
     .note = "-1: train.epochs sets the length of the run",
     .convert = convert_max_steps},
    {.keys = "lr_scheduler_kwargs.*", .kind = part, .note = "see lr_scheduler_type"},
    {.keys = "lr_scheduler_kwargs",
     .kind = accept,
     .note = "Hearth does not read these arguments; set the keys of schedule"},
    {.keys = "weight_decay",
     .kind = take,
     .ours = "optimizer.weight_decay",
     .note = "Hearth also decays norms and biases"},
    {.keys = "adam_beta1", .kind = take, .ours = "optimizer.beta1"},
    {.keys = "adam_beta2", .kind = take, .ours = "optimizer.beta2"},
    {.keys = "adam_epsilon adam_eps", .kind = take, .ours = "optimizer.eps"},
    {.keys = "max_grad_norm", .kind = take, .ours = "train.clip_norm", .fallback = "1"},
    {.keys = "gradient_accumulation_steps",
     .kind = take,
     .ours = "train.accumulate",
     .note = "for one device; multiply by the number of devices that the config was for"},
    {.keys = "bf16 fp16 float16 bfloat16",
     .kind = convert,
     .ours = "precision",
     .note = "bf16: auto becomes bf16; fp32 if all are false",
     .convert = convert_precision},
    {.keys = "seed", .kind = take, .ours = "seed", .note = "Hearth's random numbers are different"},
    {.keys = "save_total_limit", .kind = take, .ours = "train.keep_checkpoints"},
    {.keys = "save_steps", .kind = convert, .ours = "train.checkpoint_every", .convert = convert_save_steps},
    {.keys = "logging_steps", .kind = convert, .ours = "train.log_every", .convert = convert_logging_steps},
    {.keys = "eval_steps", .kind = convert, .ours = "train.eval_every", .convert = convert_eval_steps},
    {.keys = "eval_on_start", .kind = take, .ours = "train.eval_on_start"},
    {.keys = "early_stopping_patience early_stopping_steps", .kind = take, .ours = "train.early_stop"},
    {.keys = "label_smoothing_factor",
     .kind = accept,
     .note = "Hearth has no label smoothing for language models"},
    {.keys = "neftune_noise_alpha", .kind = accept, .note = "Hearth adds no noise to embeddings (NEFTune)"},
    {.keys = "optim_args optim_target_modules",
     .kind = accept,
     .note = "Hearth does not read these arguments; set the keys of optimizer"},
    {.keys = "adafactor", .kind = accept, .ours = "optimizer.name", .note = "set optimizer.name=adafactor"},
    {.keys = "fp8 fp8_*",
     .kind = accept,
     .ours = "matmul_precision",
     .note = "Hearth has another implementation of FP8"},
    {.keys = "resume_from_checkpoint", .kind = accept, .note = "hearth resume RUN continues a run of Hearth"},
    {.keys = "dataloader_drop_last",
     .kind = accept,
     .note = "Hearth trains on the last rows of an epoch, too"},
    {.keys = "train_sampling_strategy",
     .kind = accept,
     .values = "random|group_by_length",
     .note = "Hearth has no such order of rows"},
    {.keys = "average_tokens_across_devices",
     .kind = accept,
     .values = "true",
     .note = "Hearth's loss is the mean over all tokens of an update"},
    {.keys = "auto_find_batch_size",
     .kind = accept,
     .ours = "train.batch",
     .note = "hearth plan computes the largest micro-batch"},
    {.keys = "load_best_model_at_end metric_for_best_model greater_is_better",
     .note = "a run always stores the best and the last weights"},
    {.keys = "group_by_length length_column_name",
     .note = "changes the order of rows only; Hearth groups rows by length"},
    {.keys = "gradient_checkpointing gradient_checkpointing_kwargs.* gradient_checkpointing_kwargs "
             "activation_checkpointing activation_checkpointing_kwargs activation_offloading "
             "disable_gradient_checkpointing use_reentrant_gc torch_empty_cache_steps use_cache",
     .note = "changes memory only; Hearth recomputes activations to meet the key `memory`"},
    {.keys = "deepspeed deepspeed.* fsdp fsdp.* fsdp_* ddp_* ddp local_rank accelerator_config* "
             "parallelism_config* _n_gpu mp_parameters tpu_* ray_* ray_scope device_map max_memory "
             "num_processes",
     .note = "distribution of the work; see the keys devices and parallel"},
    {.keys =
         "output_dir overwrite_output_dir run_name project report_to logging_dir logging_strategy "
         "logging_first_step logging_nan_inf_filter log_level log_level_replica log_on_each_node "
         "disable_tqdm include_num_input_tokens_seen include_tokens_per_second skip_memory_metrics "
         "trackio_* wandb_* mlflow_* comet_* swanlab_* use_swanlab use_wandb use_mlflow use_comet "
         "use_tensorboard use_trackio hf_mlflow_log_artifacts plot_loss include_effective_tokens_per_second",
     .note = "output and logging; set the run folder by --out"},
    {.keys = "push_to_hub* hub_* hf_* hf_use_auth_token ms_hub_token om_hub_token",
     .note = "upload to a hub"},
    {.keys = "save_strategy save_safetensors save_only_model save_on_each_node save_first_step "
             "restore_callback_states_from_checkpoint ignore_data_skip enable_jit_checkpoint",
     .note = "checkpoints do not change the weights"},
    {.keys =
         "eval_strategy evaluation_strategy per_device_eval_batch_size per_gpu_eval_batch_size eval_delay "
         "eval_accumulation_steps eval_do_concat_batches eval_use_gather_object batch_eval_metrics "
         "include_for_metrics include_inputs_for_metrics prediction_loss_only bf16_full_eval "
         "fp16_full_eval do_eval jit_mode_eval compute_accuracy eval_on_each_dataset "
         "predict_with_generate use_legacy_prediction_loop",
     .note = "evaluations do not change the weights; set train.eval_every"},
    {.keys = "do_train", .kind = accept, .values = "true", .note = "only training can be imported"},
    {.keys = "do_predict", .kind = accept, .note = "only training can be imported; use hearth generate"},
    {.keys = "dataloader_* remove_unused_columns label_names past_index",
     .note = "changes the loading of data only"},
    {.keys = "tf32 torch_compile* torchdynamo full_determinism use_liger_kernel liger_kernel_config* no_cuda "
             "use_cpu use_mps_device half_precision_backend fp16_backend fp16_opt_level debug data_seed "
             "attn_implementation trust_remote_code low_cpu_mem_usage",
     .note = "implementation in PyTorch"},
};

}  // namespace

std::span<const Rule> trainer_rules() { return kTrainerRules; }

}  // namespace hearth::convert
