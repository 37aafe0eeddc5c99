#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "base/stack.h"
#include "base/text.h"
#include "base/version.h"
#include "cli/hub.h"
#include "cli/terminal.h"
#include "cli/verb.h"

namespace hearth::cli {

/// Adds a command with its options, help and callback. To add a command, write such a function in
/// verb_NAME.cpp and add its name here and in kVerbs.
using AddVerb = void(CLI::App& app);
AddVerb add_train, add_resume, add_eval, add_predict, add_plan, add_dump, add_ops, add_pack, add_bench,
    add_ls, add_cp, add_import, add_validate, add_tokenize, add_merge, add_export, add_generate, add_distill,
    add_prune, add_checkpoints, add_doctor, add_topology, add_watch, add_ui, add_completions, add_download,
    add_upload, add_serve;

namespace {

/// Functions that add the commands, in the order of the help.
constexpr AddVerb* kVerbs[] = {
    add_train,    add_resume,   add_eval,  add_predict, add_plan,        add_dump,     add_ops,
    add_pack,     add_bench,    add_ls,    add_cp,      add_import,      add_validate, add_tokenize,
    add_generate, add_serve,    add_merge, add_export,  add_distill,     add_prune,    add_checkpoints,
    add_doctor,   add_topology, add_watch, add_ui,      add_completions, add_download, add_upload};

/// Text that hearth prints without arguments.
constexpr const char* kGreeting =
    R"(Hearth trains neural networks on the machine you own: classifiers, segmenters, detectors, language models
and image LoRAs, on AMD and NVIDIA GPUs or the CPU.

  hearth train demo              train a small classifier on generated images: about a minute
  hearth train DATA              inspect data (a folder or a JSONL file) and print the command that trains on it
  hearth predict RUN IMAGE       predict with a trained model; language models and image LoRAs: hearth generate RUN
  hearth plan RECIPE             memory and time of a run before it starts, also for GPUs that you do not have
  hearth doctor                  check GPUs and drivers of this machine and print fixes for problems

All commands: hearth --help. One command: hearth train --help. Recipes: hearth ls.
)";

/// Text that hearth --help prints before the list of commands.
constexpr const char* kExamples = R"(Hearth trains neural networks on the machine you own.

  hearth train recipes/demo.yaml                 train the demo (generated images, about a minute)
  hearth train recipes/demo.yaml train.epochs=3  train the demo with a changed key
  hearth train PHOTOS                            inspect data and print the command that trains on it
  hearth plan recipes/demo.yaml                  plan memory and time before training
  hearth predict runs/demo IMAGE.png             predict with a trained model
  hearth ls                                      list recipes and models

Language models (MODEL: a Hugging Face folder; FILE.jsonl: conversations, prompts with completions, or texts):

  hearth validate recipes/llama-lora.yaml model=MODEL data=FILE.jsonl   check samples, bad lines and memory
  hearth train recipes/llama-lora.yaml model=MODEL data=FILE.jsonl      LoRA; llama-full: all weights, llama-dpo: DPO
  hearth eval runs/llama-lora                                           compute loss and perplexity
  hearth generate runs/llama-lora --prompt "Once upon a time"           continue a text; --chat asks a question
  hearth export runs/llama-lora --out model.gguf                        export for llama.cpp; --out DIR: for transformers
)";

std::vector<std::string> verb_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) names.push_back(verb->get_name());
  return names;
}

/// Returns why a value is invalid for an option of this CLI11 type, whatever its allowed range; empty if it
/// is valid. Needed because CLI11 accepts NaN in every range, and wraps around negative or too large
/// integers.
std::string fault_of(const std::string& type, const std::string& value) {
  if (value.empty()) return "expected a value, got an empty one";
  if (type != "FLOAT" && type != "INT" && type != "UINT") return "";
  char* end = nullptr;
  errno = 0;
  const double number = std::strtod(value.c_str(), &end);
  if (*end != 0 || !std::isfinite(number)) return fmt::format("expected a number, got '{}'", value);
  const bool is_whole = type != "FLOAT";
  if (is_whole && std::abs(number) >= 0x1p63) return fmt::format("expected a 64-bit number, got '{}'", value);
  if (type == "UINT" && value.find('-') != std::string::npos)
    return fmt::format("expected 0 or more, got '{}'", value);
  return "";
}

void check_values(CLI::App& app) {
  for (CLI::App* verb : app.get_subcommands(nullptr)) {
    for (CLI::Option* option : verb->get_options()) {
      if (option->get_items_expected_max() == 0 || option->get_lnames().empty() || takes_text(*option))
        continue;
      option->check([type = option->get_type_name()](const std::string& value) {
        return fault_of(type.substr(0, type.find_first_of(":[ ")), value);
      });
    }
    check_values(*verb);
  }
}

int run(int argc, char** argv) {
  CLI::App app(kExamples, "hearth");
  app.set_version_flag("--version", fmt::format("hearth {}", kVersion));
  for (AddVerb* add : kVerbs) add(app);
  check_values(app);
  for (CLI::App* verb : app.get_subcommands(nullptr)) {
    const bool takes_names = verb->get_name() == "download" || verb->get_name() == "upload";
    if (!takes_names) verb->parse_complete_callback([verb] { download_named(*verb); });
  }
  if (argc < 2) {
    std::fputs(kGreeting, stdout);
    return 0;
  }
  const std::vector<std::string> names = verb_names(app);
  const std::string verb = argv[1];
  if (verb[0] != '-' && std::find(names.begin(), names.end(), verb) == names.end()) {
    user_error("there is no command '{}'{}; hearth --help lists them", verb, did_you_mean(verb, names));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    user_error("{}; try hearth {}--help", error.what(), verb[0] == '-' ? "" : verb + " ");
  }
  return exit_code();
}

}  // namespace

int& exit_code() {
  static int code = 0;
  return code;
}

}  // namespace hearth::cli

int main(int argc, char** argv) {
  // With SIGXFSZ ignored, writing beyond the file size limit (ulimit -f) fails with a message instead of
  // killing the process.
  std::signal(SIGXFSZ, SIG_IGN);
  hearth::install_sigbus_handler();
  const auto run = [&] { return hearth::cli::run(argc, argv); };
  return hearth::cli::print_error(hearth::run::exit_status_of([&] { return hearth::with_stack(run); }));
}
