#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "hub/denoiser_adapter.h"
#include "hub/export_denoiser.h"
#include "hub/export_gguf.h"
#include "hub/export_onnx.h"
#include "hub/export_quantized.h"
#include "run/calibrate.h"
#include "run/from_recipe.h"
#include "tasks/task_def.h"
#include "tasks/widths.h"

namespace hearth::cli {
namespace {

constexpr const char* kGgufExtension = ".gguf";
constexpr const char* kOnnxExtension = ".onnx";
constexpr const char* kLoraExtension = ".safetensors";
constexpr const char* kCompressedTensors = "compressed-tensors";
constexpr const char* kInt8 = "int8";

struct ExportArguments {
  std::string model, base, out, format, type, shard_size, scheme;
  int64_t group = 0;
  std::string data, ranges;  ///< for int8: calibration images, and the choice of ranges; empty: defaults
  int64_t calibration_images = 256;
  bool json = false;
};

/// Returns the value of --format, by default the format that the extension of --out implies. Throws a
/// UserError if the two contradict.
std::string format_of(const ExportArguments& arguments) {
  const fs::path ending = fs::path(arguments.out).extension();
  const std::string named = ending == kGgufExtension ? "gguf" : ending == kOnnxExtension ? "onnx" : "hf";
  const bool writes_folder = arguments.format == "hf" || arguments.format == kCompressedTensors;
  if (writes_folder && named != "hf") {
    user_error(
        "--format {} writes a folder, but --out '{}' is the name of a file; use --format {}, or another name",
        arguments.format, arguments.out, named);
  }
  std::string format = arguments.format.empty() ? named : arguments.format;
  if (!writes_folder && format != "hf" && !ending.empty() && ending != "." + format)
    user_error("expected --out NAME.{0} for --format {0}, got '{1}'", format, arguments.out);
  return format;
}

/// Returns words for the source of the exported weights: a file, or an adapter that changed `num_changed`
/// weights.
std::string origin(const hub::ModelFolder& model, int64_t num_changed) {
  if (model.adapter.empty()) return "weights of " + model.weights.string();
  return fmt::format("{} weights changed by {}", num_changed, model.adapter.string());
}

/// Prints the result of an export: `text`, or JSON with the source of the weights and the members of `more`.
void say_result(const ExportArguments& arguments, const std::string& format, const fs::path& weights,
                const std::string& text, const Json& more = Json::object()) {
  if (!arguments.json) return say("{}: {}\n", arguments.out, text);
  Json json = {{"out", arguments.out}, {"format", format}, {"weights", weights.string()}};
  json.update(more);
  print_json(json);
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
  say_result(arguments, "hf", model.named_weights(), "a model folder, " + origin(model, changed),
             {{"changed_weights", changed}});
}

/// Max length of the list of layers in a note.
constexpr size_t kMaxNoteBytes = 200;
/// Schemes of compressed-tensors, named as vLLM names them.
constexpr std::pair<const char*, QatScheme> kSchemes[] = {{"w4a16", QatScheme::int4},
                                                          {"w4a8", QatScheme::int8_int4},
                                                          {"w8a8", QatScheme::w8a8},
                                                          {"fp8", QatScheme::fp8}};

/// Throws a UserError for flags of compressed-tensors with another format, and for missing ones.
QatRounding rounding_of(const ExportArguments& arguments, const std::string& format) {
  const bool is_quantized = format == kCompressedTensors;
  if (!is_quantized && !arguments.scheme.empty())
    user_error("--scheme is for --format {}, but the format is {}", kCompressedTensors, format);
  if (is_quantized && arguments.scheme.empty())
    user_error("--format {} needs a --scheme: w4a16, w4a8, w8a8 or fp8", kCompressedTensors);
  const auto* found =
      std::ranges::find(kSchemes, arguments.scheme, [](const auto& scheme) { return scheme.first; });
  QatRounding rounding{.group = arguments.group};
  if (is_quantized) rounding.scheme = found->second;
  if (arguments.group > 0 && !has_group(rounding.scheme))
    user_error("--group is for --scheme w4a16 and w4a8; remove it");
  return rounding;
}

void to_compressed_tensors(const ExportArguments& arguments, const QatRounding& rounding) {
  const hub::FolderOptions options = folder_options(arguments);
  const hub::ModelFolder model = hub::find_model(arguments.model, arguments.base);
  const hub::QuantizedResult result = hub::export_quantized(model, options, rounding);
  say_result(arguments, kCompressedTensors, model.named_weights(),
             fmt::format("a model folder with {} layers in {}, {}", result.num_quantized, arguments.scheme,
                         origin(model, result.num_changed)),
             {{"changed_weights", result.num_changed}, {"quantized_layers", result.num_quantized}});
  if (!result.kept.empty())
    say(stderr, "note: {} layers are not quantized, because {} needs a multiple of {} inputs: {}\n",
        result.kept.size(), arguments.scheme, rounding.formats().group,
        shortened(fmt::format("{}", fmt::join(result.kept, ", ")), kMaxNoteBytes));
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
  const size_t count = adapter.modules().size();
  say_result(
      arguments, format, adapter.path(),
      fmt::format("LoRA of {} modules with the keys of {}, from {}", count, format, adapter.path().string()),
      {{"modules", count}});
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
  say_result(arguments, "hf", model.named_weights(), "a folder for diffusers, " + origin(model, changed),
             {{"changed_weights", changed}});
}

/// Throws a UserError if a flag of int8 is used without --type int8.
void check_int8_flags(const ExportArguments& arguments) {
  const std::string flag = !arguments.data.empty() ? "--data" : !arguments.ranges.empty() ? "--ranges" : "";
  if (arguments.type != kInt8 && !flag.empty())
    user_error("{} chooses the ranges of --type int8, but --type is {}", flag,
               arguments.type.empty() ? "not set" : arguments.type);
}

/// Measures the ranges of activations for an int8 model.
std::map<std::string, nn::ActivationRange> measured_ranges(const ExportArguments& arguments) {
  std::vector<std::string> overrides;
  if (!arguments.data.empty()) overrides.push_back("data=" + arguments.data);
  const run::RangeChoice choice =
      arguments.ranges == "minmax" ? run::RangeChoice::min_max : run::RangeChoice::smallest_error;
  return run::calibrate(open_run(arguments.model, overrides), arguments.model, arguments.calibration_images,
                        choice);
}

void to_onnx(const ExportArguments& arguments) {
  if (!arguments.type.empty() && arguments.type != "f32" && arguments.type != kInt8)
    user_error("expected --type f32 or int8 for --format onnx, got {}", arguments.type);
  recipe::Recipe recipe = open_run(arguments.model, {});
  recipe.distill = {};
  const fs::path weights = hub::run_weights(arguments.model, false);
  hub::OnnxOptions options = run::onnx_options(recipe, arguments.model);
  options.out = arguments.out;
  if (arguments.type == kInt8) options.ranges = measured_ranges(arguments);
  hub::export_onnx(*tasks::objective_of(tasks::Job(recipe)), weights, options);
  const Extent size = recipe.data.image_size;
  say_result(
      arguments, "onnx", weights,
      fmt::format("ONNX of {} ({}, batch norms folded{}), input 'images' [N, {}, {}, {}]; its metadata has "
                  "mean, std and class names",
                  recipe.model.name, weights.string(), options.ranges.empty() ? "" : ", int8",
                  recipe.data.channels, size.height, size.width),
      {{"input", {recipe.data.channels, size.height, size.width}}});
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
  if (arguments.type == kInt8)
    user_error("--type int8 is for ONNX, but '{}' is a folder; use --out NAME.onnx", arguments.out);
  hub::FolderOptions options = folder_options(arguments);
  options.metadata = run::onnx_options(open_run(arguments.model, {}), arguments.model).metadata;
  const fs::path weights = hub::export_image_run(arguments.model, options);
  say_result(
      arguments, "hf", weights,
      fmt::format(
          "model.safetensors ({}, under torch's names) and config.yaml, the recipe with model, image size, "
          "mean, std and class names, which are also in the metadata of model.safetensors; use it with "
          "hearth predict",
          weights.string()));
}

constexpr std::pair<const char*, io::GgufType> kGgufTypes[] = {
    {"f32", io::GgufType::f32},   {"f16", io::GgufType::f16},   {"bf16", io::GgufType::bf16},
    {"q4_0", io::GgufType::q4_0}, {"q4_K", io::GgufType::q4_K}, {"q5_0", io::GgufType::q5_0},
    {"q5_K", io::GgufType::q5_K}, {"q6_K", io::GgufType::q6_K}, {"q8_0", io::GgufType::q8_0}};

io::GgufType gguf_type(const std::string& name) {
  const auto* found = std::ranges::find(kGgufTypes, name, [](const auto& type) { return type.first; });
  return found == std::ranges::end(kGgufTypes) ? io::GgufType::f16 : found->second;
}

std::vector<std::string> scheme_names() {
  std::vector<std::string> names;
  for (const auto& [name, scheme] : kSchemes) names.emplace_back(name);
  return names;
}

std::vector<std::string> type_names() {
  std::vector<std::string> names;
  for (const auto& [name, type] : kGgufTypes) names.emplace_back(name);
  names.emplace_back(kInt8);
  return names;
}

void to_gguf(const ExportArguments& arguments) {
  if (!arguments.shard_size.empty()) user_error("--shard-size is for --format hf, but the format is gguf");
  const hub::ModelFolder model = hub::find_model(arguments.model, arguments.base);
  const hub::GgufResult result = hub::export_gguf(
      model, {.out = arguments.out, .type = gguf_type(arguments.type), .num_threads = num_available_cpus()});
  say_result(arguments, "gguf", model.named_weights(),
             fmt::format("{} tensors, {}", result.num_tensors, origin(model, result.num_changed)),
             {{"changed_weights", result.num_changed}, {"tensors", result.num_tensors}});
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
                   "hf: folder for transformers or diffusers; gguf: file for llama.cpp; compressed-tensors: "
                   "folder with quantized layers for vLLM or transformers; onnx: file of an image model; "
                   "diffusers, kohya: file with the LoRA of an image generation model, with tensor names of "
                   "these programs (default: by the ending of --out)")
      ->check(CLI::IsMember({"hf", "gguf", kCompressedTensors, "onnx", "diffusers", "kohya"}));
  verb->add_option("--out", arguments->out,
                   "Output folder, or output file NAME.gguf, NAME.onnx or NAME.safetensors")
      ->required();
  verb->add_option(
          "--type", arguments->type,
          "Data type of the weights: f32, f16, bf16; for gguf also q4_0, q4_K, q5_0, q5_K, q6_K, q8_0; "
          "for onnx also int8 (default: unchanged, for gguf f16)")
      ->check(CLI::IsMember(type_names()));
  verb->add_option("--data", arguments->data,
                   "onnx int8: data whose validation images choose the ranges of activations (default: the "
                   "run's data)");
  verb->add_option("--calibration-images", arguments->calibration_images,
                   "onnx int8: max number of these images")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20).description("1 to 1048576"))
      ->capture_default_str();
  verb->add_option("--ranges", arguments->ranges,
                   "onnx int8: mse: range of the smallest rounding error; minmax: range of all values "
                   "(default: mse)")
      ->check(CLI::IsMember({"mse", "minmax"}));
  verb->add_option(
          "--scheme", arguments->scheme,
          "compressed-tensors: w4a16 (weights in int4), w4a8 (and inputs in int8), w8a8 (int8) or fp8")
      ->check(CLI::IsMember(scheme_names()));
  verb->add_option(
          "--group", arguments->group,
          "w4a16, w4a8: number of adjacent weights that share a scale (default: 128 for w4a16, 32 for "
          "w4a8)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 16));
  verb->add_option("--shard-size", arguments->shard_size,
                   "hf: max size of a weights file, e.g. 5GB (default: the same files as the model)");
  verb->add_option("--base", arguments->base,
                   "Base model of an adapter (default: the one in adapter_config.json)");
  add_json(*verb, arguments->json);
  set_example(*verb, "hearth export runs/llama-lora --out model.gguf");
  verb->callback([=] {
    check_int8_flags(*arguments);
    const tasks::ModelFormat model = run::model_format(arguments->model);
    const bool is_quantized =
        arguments->format == kCompressedTensors || !arguments->scheme.empty() || arguments->group > 0;
    if (is_quantized && model != tasks::ModelFormat::transformers)
      user_error("--format {} is for language models, but '{}' is not one", kCompressedTensors,
                 arguments->model);
    if (model == tasks::ModelFormat::diffusers) return export_denoiser_model(*arguments);
    if (const std::string& format = arguments->format; format == "diffusers" || format == "kohya")
      user_error("--format {} is for LoRAs of image generation models, but '{}' is not one", format,
                 arguments->model);
    if (model == tasks::ModelFormat::built_in) return export_images(*arguments);
    if (arguments->type == kInt8)
      user_error(
          "--type int8 is for ONNX files of image models, but '{}' is not one; use --type q8_0 --out "
          "NAME.gguf",
          arguments->model);
    const std::string format = format_of(*arguments);
    if (format == "onnx") {
      hub::find_model(arguments->model);  // UserError if there is none.
      user_error("--format onnx is for runs of image models, but '{}' is not one", arguments->model);
    }
    const QatRounding rounding = rounding_of(*arguments, format);
    if (format == kCompressedTensors) return to_compressed_tensors(*arguments, rounding);
    format == "hf" ? to_folder(*arguments) : to_gguf(*arguments);
  });
}

}  // namespace hearth::cli
