#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "train/export.h"
#include "train/export_gguf.h"

namespace hearth::cli {
namespace {

struct ExportArguments {
  std::string model, base, out, type, shard_size;
  std::string format = "hf";
};

void to_folder(const train::ModelFolder& model, const ExportArguments& arguments) {
  train::FolderOptions options{.out = arguments.out, .num_threads = num_available_cpus()};
  if (!arguments.type.empty()) {
    options.type = dtype_from_name(arguments.type);
    if (!options.type) user_error("expected --type f32, f16 or bf16 for --format hf, got {}", arguments.type);
  }
  if (!arguments.shard_size.empty()) {
    options.shard_bytes = parse_bytes(arguments.shard_size).value_or(0);
    if (options.shard_bytes <= 0)
      user_error("expected a --shard-size like 5GB, got '{}'", arguments.shard_size);
  }
  const int64_t changed = train::export_folder(model, options);
  say("{}: a model folder{}\n", arguments.out,
      changed > 0 ? fmt::format(", {} weights changed by the adapter", changed) : "");
}

io::GgufType gguf_type(const std::string& name) {
  if (name == "f32") return io::GgufType::f32;
  if (name == "bf16") return io::GgufType::bf16;
  return name == "q8_0" ? io::GgufType::q8_0 : io::GgufType::f16;
}

void to_gguf(const train::ModelFolder& model, const ExportArguments& arguments) {
  if (!arguments.shard_size.empty()) user_error("expected --shard-size with --format hf alone, got gguf");
  const train::GgufResult result = train::export_gguf(
      model, {.out = arguments.out, .type = gguf_type(arguments.type), .num_threads = num_available_cpus()});
  say("{}: {} tensors{}\n", arguments.out, result.num_tensors,
      result.num_changed > 0 ? fmt::format(", {} changed by the adapter", result.num_changed) : "");
  for (const std::string& note : result.notes) say(stderr, "note: {}\n", note);
}

}  // namespace

void add_export(CLI::App& app) {
  const auto arguments = std::make_shared<ExportArguments>();
  CLI::App* verb =
      app.add_subcommand("export", "Write a language model for transformers or llama.cpp, adapters merged");
  verb->add_option("model", arguments->model, "model folder, folder of a run, or adapter")->required();
  verb->add_option("--format", arguments->format, "hf: a folder for transformers; gguf: a file for llama.cpp")
      ->check(CLI::IsMember({"hf", "gguf"}))
      ->capture_default_str();
  verb->add_option("--out", arguments->out, "folder or file to write")->required();
  verb->add_option("--type", arguments->type,
                   "of the weights: f32, f16, bf16, for gguf q8_0 too (default: as they are, for gguf f16)")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "q8_0"}));
  verb->add_option("--shard-size", arguments->shard_size, "hf: most bytes of a file, like 5GB");
  verb->add_option("--base", arguments->base, "base model (default: the one adapter_config.json names)");
  verb->callback([=] {
    const train::ModelFolder model = train::find_model(arguments->model, arguments->base);
    arguments->format == "hf" ? to_folder(model, *arguments) : to_gguf(model, *arguments);
  });
}

}  // namespace hearth::cli
