#include <fmt/format.h>

#include "convert/images.h"
#include "convert/language.h"

namespace hearth::convert {
namespace {

using enum RuleKind;

constexpr std::string_view kProcess = "config.process.";

/// Removes the prefix "config.process." from the keys.
void toolkit_prepare(Config& config, const ImportOptions&) {
  for (Entry& entry : config.entries())
    if (entry.key.starts_with(kProcess)) entry.key = entry.key.substr(kProcess.size());
}

Result toolkit_type(Importer& importer, const Entry& entry) {
  const std::string type = text_of(entry.value);
  if (type == "sd_trainer" || type == "diffusion_trainer" || type == "ui_trainer") {
    importer.set("data.kind", "captions");
    return importer.set("train.objective", "flow");
  }
  return importer.refuse("Hearth has no process " + type);
}

Result toolkit_network(Importer& importer, const Entry& entry) {
  if (text_of(entry.value) != "lora")
    return importer.refuse("Hearth has no network " + text_of(entry.value), "adapter.name", "lora");
  importer.set("adapter.name", "lora");
  return set_flux_targets(importer,
                          "proj_out also matches the last layer, which therefore has an adapter, too");
}

Result toolkit_model(Importer& importer, const Entry& entry) {
  const std::string name = text_of(entry.value);
  Result result = convert_model(importer, entry);
  const bool is_flux =
      importer.config.is_true("model.is_flux") || importer.config.text("model.arch").starts_with("flux");
  if (is_flux || importer.exists(name)) return result;
  return importer.refuse("Hearth can import only FLUX.1 and FLUX.2", "model.path");
}

Result toolkit_arch(Importer& importer, const Entry& entry) {
  const std::string arch = text_of(entry.value);
  if (arch == "flux" || arch == "flux2" || arch == "flux2_klein_4b" || arch == "flux2_klein_9b")
    return equal("Hearth reads the architecture from config.json of the model");
  return importer.refuse("Hearth has no architecture " + arch, "model.path");
}

/// Converts the resolution of the first dataset. ai-toolkit trains every image at each resolution.
Result toolkit_resolution(Importer& importer, const Entry& entry) {
  if (entry.path.find("datasets[0]") == std::string::npos)
    return importer.refuse("Hearth reads one folder", "data.image_size");
  return convert_resolution(importer, entry);
}

Result toolkit_folder(Importer& importer, const Entry& entry) {
  if (entry.path.find("datasets[0]") == std::string::npos)
    return importer.refuse("Hearth reads one folder; move the images into subfolders such as 10_name of it",
                           "data.path");
  return importer.set_text("data.path", text_of(entry.value));
}

Result toolkit_ema(Importer& importer, const Entry& entry) {
  if (!importer.config.is_true("train.ema_config.use_ema")) return equal("off");
  const double decay = importer.config.number("train.ema_config.ema_decay", 0.999);
  if (entry.key.ends_with("use_ema") && importer.config.find("train.ema_config.ema_decay") != nullptr)
    return no_effect("see ema_decay");
  return importer.set("train.ema", number_text(decay));
}

Result toolkit_timesteps(Importer& importer, const Entry& entry) {
  const std::string type = text_of(entry.value);
  if (type == "sigmoid" || type == "flux_shift") return importer.set("diffuse.sampling", type);
  if (type == "linear") return importer.set("diffuse.sampling", "uniform");
  if (type == "shift")
    return importer.set("diffuse.sampling", "flux_shift", "the shift depends on the number of tokens");
  return importer.refuse("Hearth has no timesteps of type " + type, "diffuse.sampling", "sigmoid");
}

Result toolkit_quantize(Importer& importer, const Entry& entry) {
  if (is_off(entry.value)) return equal("off");
  const std::string type = importer.config.text("model.qtype", "qfloat8");
  if (type == "qfloat8" || type == "float8") return importer.set("adapter.quantize", "fp8");
  if (type == "qint8" || type == "int8") return importer.set("adapter.quantize", "int8");
  return importer.refuse("Hearth has no quantization to " + type, "adapter.quantize", "fp8");
}

Result toolkit_accumulate(Importer& importer, const Entry& entry) {
  if (number_of(entry.value, 0) <= 1) return equal("one micro-batch per update");
  return importer.set("train.accumulate", text_of(entry.value));
}

/// Replaces the variable [trigger] in prompts.
Result toolkit_prompts(Importer& importer, const Entry& entry) {
  std::vector<std::string> prompts = texts_of(entry.value);
  for (std::string& prompt : prompts)
    if (const size_t at = prompt.find("[trigger]"); at != std::string::npos)
      prompt.replace(at, 9, importer.config.text("trigger_word"));
  return importer.set_list("diffuse.prompts", prompts);
}

Result toolkit_caption_ext(Importer& importer, const Entry& entry) {
  const std::string extension = text_of(entry.value);
  if (extension == "txt" || extension == ".txt" || extension == "caption")
    return equal("Hearth reads these files");
  return importer.refuse("Hearth reads .txt and .caption files");
}

constexpr Rule kToolkitRules[] = {
    {.keys = "type", .kind = convert, .ours = "data.kind", .note = "sd_trainer", .convert = toolkit_type},
    {.keys = "job", .kind = accept, .values = "extension|train", .note = "only training can be imported"},
    {.keys = "config.name meta.* training_folder device performance_log_every config.device log_dir "
             "logging.* sqlite_db_path",
     .note = "output and logging; see --out and device"},
    {.keys = "trigger_word datasets.trigger_word", .kind = take, .ours = "diffuse.trigger"},
    {.keys = "network.type",
     .kind = convert,
     .ours = "adapter.targets",
     .note = "lora: the linear layers of FLUX's blocks",
     .convert = toolkit_network},
    {.keys = "network.linear network.rank", .kind = take, .ours = "adapter.rank", .fallback = "4"},
    {.keys = "network.linear_alpha network.alpha", .kind = take, .ours = "adapter.alpha", .fallback = "1"},
    {.keys = "network.conv network.conv_alpha", .note = "FLUX has no convolutions"},
    {.keys = "network.transformer_only",
     .kind = accept,
     .values = "true",
     .note = "Hearth has adapters in the blocks only"},
    {.keys = "datasets.folder_path",
     .kind = convert,
     .ours = "data.path",
     .note = "one folder",
     .convert = toolkit_folder},
    {.keys = "datasets.caption_ext", .kind = convert, .note = "txt, caption", .convert = toolkit_caption_ext},
    {.keys = "datasets.caption_dropout_rate", .kind = take, .ours = "diffuse.dropout", .fallback = "0"},
    {.keys = "datasets.resolution",
     .kind = convert,
     .ours = "data.image_size",
     .note = "the largest one; several different ones are refused",
     .fallback = "512",
     .convert = toolkit_resolution},
    {.keys = "datasets.cache_* datasets.num_workers datasets.prefetch_factor "
             "datasets.load_image_when_caching_latents datasets.fast_image_size datasets.debug",
     .note = "Hearth caches latents and embeddings"},
    {.keys = "datasets.buckets",
     .kind = accept,
     .values = "true",
     .note = "Hearth always keeps aspect ratios"},
    {.keys = "datasets.bucket_tolerance",
     .kind = accept,
     .values = "64",
     .note = "sides of Hearth's buckets are multiples of 64"},
    {.keys = "datasets.num_repeats datasets.network_weight datasets.scale datasets.loss_multiplier "
             "datasets.num_frames",
     .kind = accept,
     .values = "1",
     .note = "Hearth has no such feature; for 10 repeats rename the folder to 10_name"},
    {.keys = "datasets.shrink_video_to_frames datasets.fps datasets.replay_transforms datasets.keep_tokens "
             "datasets.full_size_control_images datasets.type",
     .note = "only for videos, control images or shuffled captions"},
    {.keys = "(validation)",
     .kind = take,
     .ours = "data.val_share",
     .note = "ai-toolkit holds out no images",
     .fallback = "0"},
    {.keys = "train.steps", .kind = take, .ours = "train.steps", .fallback = "1000"},
    {.keys = "train.batch_size", .kind = take, .ours = "train.batch", .fallback = "1"},
    {.keys = "train.gradient_accumulation train.gradient_accumulation_steps",
     .kind = convert,
     .ours = "train.accumulate",
     .convert = toolkit_accumulate},
    {.keys = "train.lr train.unet_lr", .kind = take, .ours = "optimizer.lr", .fallback = "0.000001"},
    {.keys = "train.optimizer",
     .kind = take,
     .ours = "optimizer.name",
     .values = "adamw=adamw adamw8bit=adamw8bit adamw8=adamw8bit lion=lion",
     .fallback = "adamw"},
    {.keys = "train.optimizer_params.weight_decay",
     .kind = take,
     .ours = "optimizer.weight_decay",
     .fallback = "0.01"},
    {.keys = "train.optimizer_params.eps", .kind = take, .ours = "optimizer.eps", .fallback = "0.000001"},
    {.keys = "train.lr_scheduler",
     .kind = convert,
     .ours = "schedule.name",
     .note = "constant, constant_with_warmup, cosine",
     .fallback = "constant",
     .convert = convert_scheduler},
    {.keys = "train.noise_scheduler",
     .kind = accept,
     .values = "flowmatch",
     .note = "Hearth trains FLUX by flow matching",
     .fallback = "ddpm"},
    {.keys = "train.timestep_type",
     .kind = convert,
     .ours = "diffuse.sampling",
     .note = "sigmoid, flux_shift, linear, shift",
     .fallback = "sigmoid",
     .convert = toolkit_timesteps},
    {.keys = "train.dtype",
     .kind = take,
     .ours = "precision",
     .values = "bf16=bf16 bfloat16=bf16 fp16=fp16 float16=fp16 fp32=fp32 float32=fp32 float=fp32",
     .fallback = "fp32"},
    {.keys = "train.max_grad_norm", .kind = take, .ours = "train.clip_norm", .fallback = "1"},
    {.keys = "train.ema_config.use_ema train.ema_config.ema_decay",
     .kind = convert,
     .ours = "train.ema",
     .convert = toolkit_ema},
    {.keys = "train.train_unet", .kind = accept, .values = "true", .note = "Hearth trains the denoiser"},
    {.keys = "train.content_or_style",
     .kind = accept,
     .values = "balanced",
     .note = "Hearth samples timesteps without this bias"},
    {.keys = "train.loss_type", .kind = accept, .values = "mse", .note = "Hearth has only the squared error"},
    {.keys = "train.min_denoising_steps",
     .kind = accept,
     .values = "0",
     .note = "Hearth trains at all timesteps"},
    {.keys = "train.max_denoising_steps",
     .kind = accept,
     .values = "999|1000",
     .note = "Hearth trains at all timesteps"},
    {.keys = "train.bypass_guidance_embedding", .kind = accept, .note = "Hearth trains at guidance 1"},
    {.keys = "train.gradient_checkpointing train.cache_text_embeddings train.unload_text_encoder "
             "train.disable_sampling train.skip_first_sample "
             "train.force_first_sample train.sdp train.xformers train.attention_backend train.unet_lr_*",
     .note = "only the implementation differs"},
    {.keys = "train.text_encoder_lr train.refiner_lr train.embedding_lr train.adapter_lr train.train_refiner",
     .note = "only for parts that are not trained"},
    {.keys = "model.name_or_path", .kind = convert, .ours = "model.path", .convert = toolkit_model},
    {.keys = "model.is_flux", .kind = accept, .values = "true", .note = "Hearth has FLUX only"},
    {.keys = "model.arch",
     .kind = convert,
     .ours = "model.path",
     .note = "flux, flux2",
     .convert = toolkit_arch},
    {.keys = "model.quantize",
     .kind = convert,
     .ours = "adapter.quantize",
     .note = "fp8 for qfloat8",
     .convert = toolkit_quantize},
    {.keys = "model.qtype", .kind = part, .note = "see model.quantize"},
    {.keys = "model.low_vram model.quantize_te model.qtype_te model.text_encoder_bits model.te_* model.vae_* "
             "model.layer_offloading* model.auto_memory "
             "model.dtype model.compile* model.block_compile model.split_model_over_gpus model.attn_masking "
             "model.quantize_kwargs*",
     .note = "storage of parts that are not trained"},
    {.keys = "save.save_every", .kind = take, .ours = "train.checkpoint_every"},
    {.keys = "save.max_step_saves_to_keep", .kind = take, .ours = "train.keep_checkpoints"},
    {.keys = "save.*", .note = "output; see hearth export"},
    {.keys = "sample.sample_every", .kind = take, .ours = "train.eval_every"},
    {.keys = "sample.prompts", .kind = convert, .ours = "diffuse.prompts", .convert = toolkit_prompts},
    {.keys = "sample.guidance_scale", .kind = take, .ours = "diffuse.guidance"},
    {.keys = "sample.sample_steps", .kind = take, .ours = "diffuse.steps"},
    {.keys = "sample.*", .note = "generated images; set diffuse.prompts"},
    {.keys = "network.* datasets.* train.* model.* slider.* adapter.* embedding.* decorator.* guidance.* "
             "generate.* config.* "
             "output_path output_folder filename mode linear conv dtype input_path replace_meta scale_target "
             "save_dtype current_weight "
             "target_weight is_xl is_v2 do_lorm torch_profiler",
     .kind = accept,
     .note = "Hearth has no such feature"},
};

}  // namespace

Tool ai_toolkit() {
  return {.name = "ai-toolkit",
          .title = "ai-toolkit YAML",
          .marks = "config.process",
          .tables = {kToolkitRules},
          .prepare = toolkit_prepare};
}

}  // namespace hearth::convert
