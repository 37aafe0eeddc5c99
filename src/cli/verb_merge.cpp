#include <nlohmann/json.hpp>

#include "base/threads.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "hub/export_denoiser.h"
#include "run/from_recipe.h"

namespace hearth::cli {

void add_merge(CLI::App& app) {
  struct Arguments {
    std::string adapter, out, model;
    bool json = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* verb = app.add_subcommand("merge", "Merge an adapter into the weights of its base model");
  verb->add_option("--adapter", arguments->adapter,
                   "Run folder (best weights, or last ones if it has no best), PEFT adapter, or weights file "
                   "of an adapter")
      ->required();
  verb->add_option("--out", arguments->out, "Output folder")->required();
  verb->add_option("--base,--model", arguments->model,
                   "Base model (default: the one in adapter_config.json)");
  add_json(*verb, arguments->json);
  set_example(*verb, "hearth merge --adapter runs/llama-lora --out merged");
  verb->callback([=] {
    const hub::FolderOptions options{.out = arguments->out, .num_threads = num_available_cpus()};
    const bool images = run::model_format(arguments->adapter) == tasks::ModelFormat::diffusers;
    const hub::ModelFolder model = images ? hub::find_denoiser(arguments->adapter, arguments->model)
                                          : hub::find_adapted_model(arguments->adapter, arguments->model);
    const int64_t changed =
        images ? hub::export_denoiser(model, options) : hub::export_folder(model, options);
    if (arguments->json) {
      return print_json(
          {{"out", arguments->out}, {"adapter", model.adapter.string()}, {"changed_weights", changed}});
    }
    say("{}: {} weights changed by {}\n", arguments->out, changed, model.adapter.string());
  });
}

}  // namespace hearth::cli
