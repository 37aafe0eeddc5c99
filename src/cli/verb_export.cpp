#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "hub/denoiser_adapter.h"
#include "hub/export_denoiser.h"
#include "hub/export_gguf.h"
#include "hub/export_onnx.h"
#include "run/from_recipe.h"
#include "tasks/task_def.h"

namespace hearth::cli {
namespace {

constexpr const char* kGgufExtension = ".gguf";
constexpr const char* kOnnxExtension = ".onnx";
constexpr const char* kLoraExtension = ".safetensors";

struct ExportArguments {
  std::string model, base, out, format, type, shard_size;
};

/// Returns the value of --format, by default the format that the extension of --out implies. Throws a
/// UserError if the two contradict.
std::string format_of(const ExportArguments& arguments) {
  const fs::path ending = fs::path(arguments.out).extension();
  const std::string named = ending == kGgufExtension ? "gguf" : ending == kOnnxExtension ? "onnx" : "hf";
  if (arguments.format == "hf" && named != "hf") {
    user_error(
        "--format hf writes a folder, but --out '{}' is the name of a file; use --format {}, or another name",
        arguments.out, named);
  }
  std::string format = arguments.format.empty() ? named : arguments.format;
  if (format != "hf" && !ending.empty() && ending != "." + format)
    user_error("expected --out NAME.{0} for --format {0}, got '{1}'", format, arguments.out);
  return format;
}

/// Returns words for the source of the exported weights: a file, or an adapter that changed `num_changed`
/// weights.
std::string origin(const hub::ModelFolder& model, int64_t num_changed) {
  if (model.adapter.empty()) return "weights of " + model.weights.string();
  return fmt::format("{} weights changed by {}", num_changed, model.adapter.string());
}

hub::FolderOptions folder_options(const ExportArguments& arguments) {
  hub::FolderOptions options{.out = arguments.out, .num_threads = num_available_cpus()};
  if (!arguments.type.empty()) {
    options.type = dtype_from_name(arguments.type);
    if (!options.type) {
      user_error("expected --type f32, f16 or bf16 for a folder, got {}; try --out NAME{}", arguments.type,
                 kGgufExtension);
    }
  }
  if (!arguments.shard_size.empty()) {
    options.shard_bytes = parse_bytes(arguments.shard_size).value_or(0);
    if (options.shard_bytes <= 0)
      user_error("expected a --shard-size like 5GB, got '{}'", arguments.shard_size);
  }
  return options;
}

void to_folder(const ExportArguments& arguments) {
  const hub::FolderOptions options = folder_options(arguments);
  const hub::ModelFolder model = hub::find_model(arguments.model, arguments.base);
  const int64_t changed = hub::export_folder(model, options);
  say("{}: a model folder, {}\n", arguments.out, origin(model, changed));
}

/// Exports only the LoRA of a denoiser, with the tensor names of diffusers or of kohya's scripts.
void to_lora(const ExportArguments& arguments, const std::string& format) {
  const std::string flag = !arguments.type.empty()         ? "--type"
                           : !arguments.shard_size.empty() ? "--shard-size"
                           : !arguments.base.empty()       ? "--base"
                                                           : "";
  if (!flag.empty()) user_error("{} is not supported for a LoRA, which is exported in f32", flag);
  if (!hub::is_denoiser_adapter(arguments.model))
    user_error("--format {} is for LoRAs, but '{}' is a full model; use --out FOLDER", format,
               arguments.model);
  const hub::DenoiserAdapter adapter(arguments.model);
  format == "kohya" ? hub::write_kohya_lora(adapter, arguments.out)
                    : hub::write_diffusers_lora(adapter, arguments.out);
  say("{}: LoRA of {} modules with the keys of {}, from {}\n", arguments.out, adapter.modules().size(),
      format, adapter.path().string());
}

void export_denoiser_model(const ExportArguments& arguments) {
  const fs::path ending = fs::path(arguments.out).extension();
  const bool is_file = ending == kLoraExtension;
  const std::string named = is_file                    ? "diffusers"
                            : ending == kGgufExtension ? "gguf"
                            : ending == kOnnxExtension ? "onnx"
                                                       : "hf";
  const std::string format = arguments.format.empty() ? named : arguments.format;
  if (format == "gguf" || format == "onnx")
    user_error(
        "'{}' generates images: export it as a folder (--out FOLDER) or, for a LoRA, as NAME.safetensors "
        "(--format diffusers or kohya), not as {}",
        arguments.model, format);
  if ((format == "hf") == is_file)
    user_error("expected --out {} for --format {}, got '{}'", is_file ? "FOLDER" : "NAME.safetensors", format,
               arguments.out);
  if (format != "hf") return to_lora(arguments, format);
  const hub::FolderOptions options = folder_options(arguments);
  const hub::ModelFolder model = hub::find_denoiser(arguments.model, arguments.base);
  const int64_t changed = hub::export_denoiser(model, options);
  say("{}: a folder for diffusers, {}\n", arguments.out, origin(model, changed));
}

void to_onnx(const ExportArguments& arguments) {
  if (!arguments.type.empty() && arguments.type != "f32")
    user_error("expected --type f32 for --format onnx, got {}", arguments.type);
  const recipe::Recipe recipe = open_run(arguments.model, {});
  const fs::path weights = hub::run_weights(arguments.model, false);
  hub::OnnxOptions options = run::onnx_options(recipe, arguments.model);
  options.out = arguments.out;
  hub::export_onnx(*tasks::task_of(recipe).objective(tasks::Job(recipe)), weights, options);
  say("{}: ONNX of {} ({}, batch norms folded), input 'images' [N, {}, {}, {}]; its metadata has mean, std "
      "and class names\n",
      arguments.out, recipe.model.name, weights.string(), recipe.data.channels, recipe.data.image_size.height,
      recipe.data.image_size.width);
}

/// Exports the run of an image model, to ONNX or to a folder that hearth predict reads.
void export_images(const ExportArguments& arguments) {
  const std::string format = format_of(arguments);
  const std::string flag = format == "gguf"                ? "--format gguf"
                           : !arguments.shard_size.empty() ? "--shard-size"
                           : !arguments.base.empty()       ? "--base"
                                                           : "";
  if (!flag.empty())
    user_error("{} is for a language model, but '{}' is the run of an image model", flag, arguments.model);
  if (format == "onnx") return to_onnx(arguments);
  hub::FolderOptions options = folder_options(arguments);
  options.metadata = run::onnx_options(open_run(arguments.model, {}), arguments.model).metadata;
  const fs::path weights = hub::export_image_run(arguments.model, options);
  say("{}: model.safetensors ({}, under torch's names) and config.yaml, the recipe with model, image size, "
      "mean, std and class names, which are also in the metadata of model.safetensors; use it with hearth "
      "predict\n",
      arguments.out, weights.string());
}

io::GgufType gguf_type(const std::string& name) {
  if (name == "f32") return io::GgufType::f32;
  if (name == "bf16") return io::GgufType::bf16;
  if (name == "q4_0") return io::GgufType::q4_0;
  return name == "q8_0" ? io::GgufType::q8_0 : io::GgufType::f16;
}

void to_gguf(const ExportArguments& arguments) {
  if (!arguments.shard_size.empty()) user_error("--shard-size is for --format hf, but the format is gguf");
  const hub::ModelFolder model = hub::find_model(arguments.model, arguments.base);
  const hub::GgufResult result = hub::export_gguf(
      model, {.out = arguments.out, .type = gguf_type(arguments.type), .num_threads = num_available_cpus()});
  say("{}: {} tensors, {}\n", arguments.out, result.num_tensors, origin(model, result.num_changed));
  for (const std::string& note : result.notes) say(stderr, "note: {}\n", note);
}

}  // namespace

void add_export(CLI::App& app) {
  const auto arguments = std::make_shared<ExportArguments>();
  CLI::App* verb = app.add_subcommand("export",
                                      "Export a model, merged with its adapter, for transformers, diffusers, "
                                      "llama.cpp or ONNX; or the LoRA of an image generation model");
  verb->add_option("model", arguments->model,
                   "Model folder, run folder (best weights, or last ones if it has no best), or adapter")
      ->required();
  verb->add_option("--format", arguments->format,
                   "hf: folder for transformers or diffusers; gguf: file for llama.cpp; onnx: file of an "
                   "image model; diffusers, kohya: file with the LoRA of an image generation model, with "
                   "these keys (default: by the ending of --out)")
      ->check(CLI::IsMember({"hf", "gguf", "onnx", "diffusers", "kohya"}));
  verb->add_option("--out", arguments->out,
                   "Output folder, or output file NAME.gguf, NAME.onnx or NAME.safetensors")
      ->required();
  verb->add_option("--type", arguments->type,
                   "Data type of the weights: f32, f16, bf16, or q4_0 or q8_0 for gguf (default: unchanged, "
                   "for gguf f16)")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "q4_0", "q8_0"}));
  verb->add_option("--shard-size", arguments->shard_size,
                   "hf: max size of a weights file, e.g. 5GB (default: the same files as the model)");
  verb->add_option("--base", arguments->base,
                   "Base model of an adapter (default: the one in adapter_config.json)");
  set_example(*verb, "hearth export runs/llama-lora --out model.gguf");
  verb->callback([=] {
    const tasks::ModelFormat model = run::model_format(arguments->model);
    if (model == tasks::ModelFormat::diffusers) return export_denoiser_model(*arguments);
    if (const std::string& format = arguments->format; format == "diffusers" || format == "kohya")
      user_error("--format {} is for LoRAs of image generation models, but '{}' is not one", format,
                 arguments->model);
    if (model == tasks::ModelFormat::built_in) return export_images(*arguments);
    const std::string format = format_of(*arguments);
    if (format == "onnx") {
      hub::find_model(arguments->model);  // UserError if there is none.
      user_error("--format onnx is for runs of image models, but '{}' is not one", arguments->model);
    }
    format == "hf" ? to_folder(*arguments) : to_gguf(*arguments);
  });
}

}  // namespace hearth::cli
