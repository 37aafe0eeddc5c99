#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/yaml.h"
#include "convert/images.h"
#include "convert/language.h"

namespace hearth::convert {
namespace {

using enum RuleKind;

/// Gives all keys of a dataset the prefix "dataset.", whatever their level, and removes section names from
/// other keys, which sd-scripts ignores. Keys of datasets take precedence, so they are moved to the end.
void kohya_shorten(std::vector<Entry>& entries) {
  for (Entry& entry : entries) {
    const size_t dot = entry.key.rfind('.');
    const bool is_dataset = entry.key.starts_with("general.") || entry.key.starts_with("datasets.");
    if (dot != std::string::npos) entry.key = (is_dataset ? "dataset." : "") + entry.key.substr(dot + 1);
  }
  // std::ranges::stable_partition does not compile with clang 14.
  std::stable_partition(entries.begin(), entries.end(),
                        [](const Entry& entry) { return !entry.key.starts_with("dataset."); });
}

void kohya_prepare(Config& config, const ImportOptions& options) {
  kohya_shorten(config.entries());
  const std::string name = config.text("dataset_config");
  if (name.empty() || !options.reads_files || !path_exists(name)) return;
  Config dataset(read_file(name, kMaxYamlBytes), fs::path(name));
  kohya_shorten(dataset.entries());
  for (Entry& entry : dataset.entries()) config.entries().push_back(std::move(entry));
}

Result kohya_dataset_config(Importer& importer, const Entry& entry) {
  if (importer.exists(text_of(entry.value))) return no_effect("the keys of this file are imported, too");
  return importer.refuse("there is no such file; correct the path", "data.path");
}

Result kohya_model(Importer& importer, const Entry& entry) {
  const std::string name = text_of(entry.value);
  if (!name.ends_with(".safetensors") && !name.ends_with(".sft")) return convert_model(importer, entry);
  return importer.refuse("Hearth needs a diffusers folder, with text encoders and autoencoder", "model.path",
                         name);
}

Result kohya_module(Importer& importer, const Entry& entry) {
  if (text_of(entry.value) != "networks.lora_flux")
    return importer.refuse("Hearth has LoRA of FLUX only", "adapter.name");
  importer.set("adapter.name", "lora");
  return set_flux_targets(importer,
                          "one adapter each for q, k, v and MLP, for which sd-scripts has one together");
}

/// Sets data.path to the folder of training images, or diffuse.prior to the folder for prior preservation.
Result kohya_image_dir(Importer& importer, const Entry& entry) {
  const std::string prefix = entry.path.substr(0, entry.path.rfind('.') + 1);
  for (const Entry& other : importer.config.entries())
    if (other.path == prefix + "is_reg" && !is_off(other.value))
      return importer.set_text("diffuse.prior", text_of(entry.value));
  if (!importer.value_of("data.path").empty())
    return importer.refuse("Hearth reads one folder; move the images into subfolders such as 10_name of it",
                           "data.path");
  return importer.set_text("data.path", text_of(entry.value));
}

/// Multiplies train.epochs by the repeats: with one folder, repeats only make an epoch longer.
Result kohya_repeats(Importer& importer, const Entry& entry) {
  const double repeats = number_of(entry.value, 1);
  size_t num_folders = 0;
  for (const Entry& other : importer.config.entries()) num_folders += other.key == "dataset.image_dir";
  if (repeats == 1) return equal("images are used once per epoch");
  if (num_folders > 1)
    return importer.refuse(
        fmt::format("rename the folder to {}_name and move it into one folder with the others",
                    number_text(repeats)),
        "data.path");
  const double epochs = importer.config.number("max_train_epochs", 0);
  if (epochs < 1) return no_effect("the number of updates is set");
  return importer.set("train.epochs", number_text(std::round(epochs * repeats)),
                      "max_train_epochs x num_repeats");
}

Result kohya_epochs(Importer& importer, const Entry& entry) {
  const double repeats = importer.config.number("dataset.num_repeats", 1);
  return importer.set("train.epochs", number_text(std::round(number_of(entry.value, 0) * repeats)));
}

Result kohya_steps(Importer& importer, const Entry& entry) {
  if (importer.config.number("max_train_epochs", 0) > 0) return no_effect("max_train_epochs is set");
  return importer.set("train.steps", text_of(entry.value));
}

/// Converts the caption of images without a caption file.
Result kohya_class_tokens(Importer& importer, const Entry& entry) {
  const std::string folder = importer.config.text("dataset.image_dir");
  if (!importer.exists(folder) || !fs::is_directory(folder))
    return importer.refuse(
        "a caption for images without one, but Hearth puts diffuse.trigger before all captions",
        "diffuse.trigger");
  for (const auto& file : fs::directory_iterator(folder))
    if (file.path().extension() == ".txt" || file.path().extension() == ".caption")
      return no_effect("the images have captions");
  return importer.set_text("diffuse.trigger", text_of(entry.value));
}

Result kohya_bucket_side(Importer& importer, const Entry& entry) {
  const double side = number_of(entry.value, 0), size = importer.config.number("dataset.resolution", side);
  const bool cuts = entry.key.ends_with("min_bucket_reso") ? side > size : side < size;
  if (cuts) return importer.refuse("Hearth's buckets have the area of data.image_size", "data.image_size");
  return no_effect("only limits extreme aspect ratios");
}

Result kohya_rate(Importer& importer, const Entry& entry) {
  if (entry.key == "learning_rate" && importer.config.find("unet_lr") != nullptr)
    return no_effect("unet_lr is set");
  return importer.set("optimizer.lr", text_of(entry.value));
}

/// Refuses to train CLIP's text encoder, which sd-scripts trains unless a key excludes it.
Result kohya_denoiser_only(Importer& importer, const Entry& entry) {
  const bool is_excluded = !is_off(entry.value) || importer.config.is_true("cache_text_encoder_outputs") ||
                           importer.config.is_true("cache_text_encoder_outputs_to_disk");
  if (is_excluded) return equal("Hearth trains the denoiser only");
  return importer.refuse("sd-scripts trains the text encoder, too; Hearth trains the denoiser only");
}

/// Converts arguments such as ["weight_decay=0.01", "betas=0.9,0.99"].
Result kohya_optimizer_args(Importer& importer, const Entry& entry) {
  std::string detail;
  for (const Value& argument : entry.value.is_array() ? entry.value : Value::array({entry.value})) {
    const std::string text = text_of(argument);
    const size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    const std::string value = equals == text.npos ? "" : std::string(trimmed(text.substr(equals + 1)));
    const std::vector<std::string> parts = texts_of(Value(value));
    Result result;
    if (name == "weight_decay" || name == "eps") {
      result = importer.set("optimizer." + name, value);
    } else if (name == "betas" && parts.size() == 2) {
      const auto strip = [](const std::string& part) {
        return std::string(trimmed(std::string_view(part).substr(part.find_first_not_of("( "))));
      };
      importer.set("optimizer.beta1", strip(parts[0]));
      result = importer.set("optimizer.beta2", parts[1].substr(0, parts[1].find(')')));
    } else {
      return importer.refuse("Hearth has no such argument: " + text);
    }
    if (result.fate == Fate::refused) return result;
    detail += (detail.empty() ? "" : ", ") + result.detail;
  }
  return {Fate::taken, detail};
}

/// Sets AdamW's default weight decay, unless optimizer_args sets it.
Result kohya_weight_decay(Importer& importer, const Entry& entry) {
  const std::string arguments = importer.config.text("optimizer_args");
  if (arguments.find("weight_decay") != std::string::npos) return no_effect("set by optimizer_args");
  return importer.set("optimizer.weight_decay", text_of(entry.value));
}

Result kohya_precision(Importer& importer, const Entry& entry) {
  const std::string name = text_of(entry.value);
  return importer.set("precision", name == "no" ? "fp32" : name);
}

constexpr Rule kKohyaRules[] = {
    {.keys = "pretrained_model_name_or_path",
     .kind = convert,
     .ours = "model.path",
     .note = "a diffusers folder",
     .convert = kohya_model},
    {.keys = "clip_l t5xxl ae", .note = "parts of the diffusers folder in model.path"},
    {.keys = "model_type", .kind = accept, .values = "flux", .note = "Hearth has FLUX only"},
    {.keys = "network_module",
     .kind = convert,
     .ours = "adapter.targets",
     .note = "networks.lora_flux",
     .fallback = "networks.lora_flux",
     .convert = kohya_module},
    {.keys = "network_dim", .kind = take, .ours = "adapter.rank", .fallback = "4"},
    {.keys = "network_alpha", .kind = take, .ours = "adapter.alpha", .fallback = "1"},
    {.keys = "network_train_unet_only",
     .kind = convert,
     .note = "Hearth trains the denoiser only",
     .fallback = "false",
     .convert = kohya_denoiser_only},
    {.keys = "dataset_config",
     .kind = convert,
     .note = "the keys of this file are imported, too",
     .convert = kohya_dataset_config},
    {.keys = "train_data_dir",
     .kind = take,
     .ours = "data.path",
     .note = "images in a subfolder such as 10_name are repeated 10 times"},
    {.keys = "reg_data_dir", .kind = take, .ours = "diffuse.prior"},
    {.keys = "(data)", .kind = take, .ours = "data.kind", .fallback = "captions"},
    {.keys = "(objective)", .kind = take, .ours = "train.objective", .fallback = "flow"},
    {.keys = "dataset.image_dir",
     .kind = convert,
     .ours = "data.path",
     .note = "one folder; with is_reg: diffuse.prior",
     .convert = kohya_image_dir},
    {.keys = "dataset.is_reg", .kind = part, .note = "see image_dir"},
    {.keys = "dataset.num_repeats dataset_repeats",
     .kind = convert,
     .ours = "train.epochs",
     .note = "one folder: max_train_epochs x num_repeats; several folders: names such as 10_name",
     .convert = kohya_repeats},
    {.keys = "dataset.class_tokens",
     .kind = convert,
     .ours = "diffuse.trigger",
     .note = "if no image has a caption",
     .convert = kohya_class_tokens},
    {.keys = "dataset.resolution resolution",
     .kind = convert,
     .ours = "data.image_size",
     .note = "only squares",
     .fallback = "512",
     .convert = convert_resolution},
    {.keys = "dataset.batch_size train_batch_size", .kind = take, .ours = "train.batch", .fallback = "1"},
    {.keys = "dataset.enable_bucket enable_bucket",
     .kind = accept,
     .values = "true",
     .note = "Hearth always keeps aspect ratios"},
    {.keys = "dataset.min_bucket_reso dataset.max_bucket_reso min_bucket_reso max_bucket_reso",
     .kind = convert,
     .note = "accepted if it only limits extreme aspect ratios",
     .convert = kohya_bucket_side},
    {.keys = "dataset.bucket_reso_steps bucket_reso_steps",
     .kind = accept,
     .values = "64",
     .note = "sides of Hearth's buckets are multiples of 64"},
    {.keys = "dataset.bucket_no_upscale bucket_no_upscale",
     .kind = accept,
     .note = "Hearth enlarges small images"},
    {.keys = "dataset.caption_extension caption_extension caption_extention",
     .kind = accept,
     .values = ".txt|txt|.caption|caption",
     .note = "Hearth reads .txt and .caption"},
    {.keys = "dataset.caption_dropout_rate caption_dropout_rate",
     .kind = take,
     .ours = "diffuse.dropout",
     .fallback = "0"},
    {.keys = "dataset.validation_split validation_split",
     .kind = take,
     .ours = "data.val_share",
     .fallback = "0"},
    {.keys = "dataset.prior_loss_weight prior_loss_weight", .kind = take, .ours = "diffuse.prior_weight"},
    {.keys = "dataset.keep_tokens keep_tokens dataset.keep_tokens_separator dataset.caption_separator "
             "caption_separator "
             "dataset.secondary_separator dataset.validation_seed validation_seed dataset.cache_info "
             "cache_info",
     .note = "only for shuffled captions or for the cache"},
    {.keys = "dataset.network_multiplier",
     .kind = accept,
     .values = "1",
     .note = "Hearth has no such feature"},
    {.keys = "max_train_steps",
     .kind = convert,
     .ours = "train.steps",
     .note = "unless max_train_epochs is set",
     .fallback = "1600",
     .convert = kohya_steps},
    {.keys = "max_train_epochs",
     .kind = convert,
     .ours = "train.epochs",
     .note = "max_train_epochs x num_repeats",
     .convert = kohya_epochs},
    {.keys = "learning_rate unet_lr",
     .kind = convert,
     .ours = "optimizer.lr",
     .fallback = "0.000002",
     .convert = kohya_rate},
    {.keys = "text_encoder_lr", .kind = part, .note = "see network_train_unet_only"},
    {.keys = "optimizer_type",
     .kind = take,
     .ours = "optimizer.name",
     .values = "adamw=adamw adamw8bit=adamw8bit pagedadamw=adamw pagedadamw32bit=adamw "
               "pagedadamw8bit=adamw8bit lion=lion",
     .fallback = "adamw"},
    {.keys = "use_8bit_adam",
     .kind = accept,
     .ours = "optimizer.name",
     .note = "set optimizer.name=adamw8bit"},
    {.keys = "optimizer_args",
     .kind = convert,
     .ours = "optimizer.weight_decay",
     .note = "weight_decay, betas, eps",
     .convert = kohya_optimizer_args},
    {.keys = "(weight_decay)",
     .kind = convert,
     .ours = "optimizer.weight_decay",
     .fallback = "0.01",
     .convert = kohya_weight_decay},
    {.keys = "lr_scheduler",
     .kind = convert,
     .ours = "schedule.name",
     .note = "constant, constant_with_warmup, cosine",
     .fallback = "constant",
     .convert = convert_scheduler},
    {.keys = "lr_scheduler_num_cycles", .kind = part, .note = "see lr_scheduler"},
    {.keys = "lr_warmup_steps",
     .kind = convert,
     .ours = "schedule.warmup_steps",
     .note = "a fraction needs the number of updates",
     .convert = convert_warmup},
    {.keys = "mixed_precision",
     .kind = convert,
     .ours = "precision",
     .fallback = "no",
     .convert = kohya_precision},
    {.keys = "gradient_accumulation_steps", .kind = take, .ours = "train.accumulate"},
    {.keys = "max_grad_norm", .kind = take, .ours = "train.clip_norm", .fallback = "1"},
    {.keys = "seed", .kind = take, .ours = "seed", .note = "Hearth's random numbers are different"},
    {.keys = "timestep_sampling",
     .kind = take,
     .ours = "diffuse.sampling",
     .values = "uniform=uniform sigmoid=sigmoid shift=shift flux_shift=flux_shift",
     .fallback = "sigma"},
    {.keys = "sigmoid_scale", .kind = take, .ours = "diffuse.std"},
    {.keys = "discrete_flow_shift", .kind = take, .ours = "diffuse.shift"},
    {.keys = "model_prediction_type",
     .kind = accept,
     .values = "raw",
     .note = "Hearth trains on the raw prediction",
     .fallback = "sigma_scaled"},
    {.keys = "weighting_scheme logit_mean logit_std mode_scale",
     .note = "only for model_prediction_type=sigma_scaled"},
    {.keys = "guidance_scale",
     .kind = accept,
     .values = "1",
     .note = "Hearth trains at guidance 1",
     .fallback = "3.5"},
    {.keys = "t5xxl_max_token_length", .kind = take, .ours = "diffuse.text_tokens"},
    {.keys = "fp8_base fp8_base_unet",
     .kind = accept,
     .ours = "adapter.quantize",
     .note = "set adapter.quantize=fp8"},
    {.keys = "min_timestep", .kind = accept, .values = "0", .note = "Hearth trains at all timesteps"},
    {.keys = "max_timestep", .kind = accept, .values = "1000", .note = "Hearth trains at all timesteps"},
    {.keys = "loss_type", .kind = accept, .values = "l2", .note = "Hearth has only the squared error"},
    {.keys = "save_every_n_steps", .kind = take, .ours = "train.checkpoint_every"},
    {.keys = "sample_every_n_steps", .kind = take, .ours = "train.eval_every"},
    {.keys = "sample_prompts sample_at_first sample_every_n_epochs sample_sampler",
     .note = "generated images; set diffuse.prompts"},
    {.keys = "output_dir output_name save_* log_* logging_dir wandb_* training_comment no_metadata "
             "huggingface_* metadata_* "
             "async_upload save_state_to_huggingface console_log*",
     .note = "output and logging; set the run folder by --out"},
    {.keys = "cache_* vae_batch_size text_encoder_batch_size skip_cache_check skip_latents_validity_check "
             "vae_chunk_size "
             "vae_disable_cache tokenizer_cache_dir",
     .note = "Hearth caches latents and embeddings"},
    {.keys = "gradient_checkpointing cpu_offload_checkpointing blocks_to_swap unsloth_offload_checkpointing "
             "lowram highvram sdpa xformers "
             "mem_eff_attn torch_compile dynamo_backend attn_mode split_mode persistent_data_loader_workers "
             "max_data_loader_n_workers "
             "ddp_* deepspeed zero_stage offload_* no_half_vae disable_mmap_load_safetensors full_bf16 "
             "text_encoder_cpu vae "
             "max_token_length fused_backward_pass config_file output_config debug_dataset validate_every_* "
             "max_validation_steps",
     .note = "implementation in PyTorch"},
    {.keys = "network_args network_weights dim_from_weights network_dropout network_train_text_encoder_only "
             "base_weights* scale_weight_norms "
             "lr_scheduler_type lr_scheduler_args lr_scheduler_power lr_scheduler_timescale "
             "lr_scheduler_min_lr_ratio lr_decay_steps use_lion_optimizer "
             "apply_t5_attn_mask fp8_scaled full_fp16 resume* initial_* skip_until_initial_step "
             "noise_offset* adaptive_noise_scale ip_noise_gamma* "
             "multires_noise_* perlin_noise zero_terminal_snr v2 v_parameterization min_snr_gamma "
             "scale_v_pred_loss* debiased_estimation_loss "
             "huber_* masked_loss clip_skip weighted_captions controlnet_* conditioning_data_dir in_json "
             "dataset_class training_shift flow_shift "
             "dataset.shuffle_caption shuffle_caption dataset.enable_wildcard dataset.color_aug color_aug "
             "dataset.flip_aug flip_aug "
             "dataset.face_crop_aug_range dataset.random_crop random_crop dataset.caption_prefix "
             "caption_prefix dataset.caption_suffix "
             "caption_suffix dataset.caption_dropout_every_n_epochs dataset.caption_tag_dropout_rate "
             "dataset.token_warmup_* dataset.alpha_mask "
             "dataset.metadata_file dataset.conditioning_data_dir dataset.custom_attributes "
             "dataset.resize_interpolation dataset.interpolation_type "
             "optimizer_schedulefree_wrapper schedulefree_*",
     .kind = accept,
     .note = "Hearth has no such feature"},
};

}  // namespace

Tool kohya() {
  return {.name = "kohya",
          .title = "TOML of kohya's sd-scripts",
          .marks = "network_module pretrained_model_name_or_path datasets dataset_config model_arguments",
          .tables = {kKohyaRules},
          .prepare = kohya_prepare};
}

}  // namespace hearth::convert
