#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/run_files.h"
#include "base/threads.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "hub/prune.h"
#include "recipe/recipe_file.h"
#include "run/from_recipe.h"
#include "run/input_norms.h"
#include "run/prune_channels.h"

namespace hearth::cli {
namespace {

struct PruneArguments {
  std::string model, base, out, method = "magnitude";
  std::string pattern = std::string(name_of(PrunePattern::unstructured));
  std::string data;
  double sparsity = 0.5;
  int64_t rows = 128;
  std::string score = std::string(name_of(run::ChannelScore::norm));
  run::ChannelOptions channels;
  bool json = false;
};
constexpr const char* kChannels = "channels";
constexpr const char* kWanda = "wanda";

template <typename Enum>
std::vector<std::string> names_of() {
  return {kNames<Enum>.begin(), kNames<Enum>.end()};
}

/// Returns the recipe that describes the calibration data: the recipe of the model's run, otherwise the
/// defaults; then --data and the overrides are applied.
recipe::Recipe calibration_recipe(const PruneArguments& arguments, std::vector<std::string> overrides) {
  if (!arguments.data.empty()) overrides.push_back("data.path=" + fs::absolute(arguments.data).string());
  if (fs::exists(fs::path(arguments.model) / kRunRecipe)) return open_run(arguments.model, overrides);
  if (arguments.data.empty())
    user_error("--method wanda needs text to measure the inputs of layers; add --data FILE");
  recipe::Recipe recipe;
  recipe.model.path = ".";
  return recipe::with_overrides(std::move(recipe), "hearth prune", run::recipe_choices(), overrides);
}

void prune_weights(const CLI::App& verb, const PruneArguments& arguments) {
  const hub::PruneOptions options{.sparsity = arguments.sparsity,
                                  .pattern = *value_named<PrunePattern>(arguments.pattern)};
  const hub::FolderOptions folder{.out = arguments.out, .num_threads = num_available_cpus()};
  const hub::ModelFolder model = hub::find_model(arguments.model, arguments.base);
  hub::InputNorms norms;
  const bool by_wanda = arguments.method == kWanda;
  if (by_wanda) {
    norms =
        run::input_norms(calibration_recipe(arguments, overrides_of(verb)), model, options, arguments.rows);
  }
  const hub::PruneResult result = hub::prune_folder(model, folder, options, by_wanda ? &norms : nullptr);
  if (arguments.json) {
    return print_json({{"out", arguments.out},
                       {"weights", result.num_weights},
                       {"zeros", result.num_zeros},
                       {"layers", result.num_layers},
                       {"skipped_layers", result.num_left_out}});
  }
  say("{}: {:.1f}% of {} weights in {} linear layers are zero\n", arguments.out,
      100.0 * static_cast<double>(result.num_zeros) / static_cast<double>(result.num_weights),
      result.num_weights, result.num_layers);
  if (result.num_left_out > 0) {
    say(stderr,
        "note: {} linear layers are not pruned, because their number of inputs is not a multiple of {}\n",
        result.num_left_out, group_size(options.pattern));
  }
}

void prune_channels(const PruneArguments& arguments) {
  run::ChannelOptions options = arguments.channels;
  options.score = *value_named<run::ChannelScore>(arguments.score);
  const std::optional<recipe::Recipe> recipe = run::recipe_of_run(arguments.model);
  const bool is_image = run::model_format(arguments.model) == tasks::ModelFormat::built_in;
  const run::PrunedChannels pruned =
      is_image ? run::prune_channels(*recipe, arguments.model, arguments.out, options)
               : run::prune_decoder(hub::find_model(arguments.model), recipe ? &*recipe : nullptr,
                                    arguments.out, options);
  if (arguments.json) {
    return print_json({{"out", arguments.out},
                       {"weights", pruned.num_weights_after},
                       {"weights_before", pruned.num_weights_before},
                       {"flops", pruned.flops_after},
                       {"flops_before", pruned.flops_before}});
  }
  say("{}: {} of {} weights, {:.1f}% of the FLOPs of {}\n", arguments.out, pruned.num_weights_after,
      pruned.num_weights_before, 100 * pruned.flops_after / pruned.flops_before, pruned.weights.string());
  const std::string model =
      is_image ? (fs::path(arguments.out) / kRunRecipe).string() : "RECIPE model.path=" + arguments.out;
  say("fine-tune it: hearth train {} --out RUN\n", model);
}

/// Throws a UserError for a flag or a key that the method does not use.
void check_flags(const CLI::App& verb, const PruneArguments& arguments) {
  const auto refuse = [&](std::initializer_list<const char*> flags) {
    for (const char* flag : flags)
      if (verb.count(flag) > 0) user_error("{} is not for --method {}; remove it", flag, arguments.method);
  };
  if (arguments.method == kChannels) {
    refuse({"--sparsity", "--pattern", "--base"});
  } else {
    refuse({"--flops", "--score", "--multiple"});
  }
  if (arguments.method == kWanda) return;
  refuse({"--data", "--rows"});
  for (const std::string& key : overrides_of(verb))
    user_error("{} has no effect, because --method {} reads no text; remove it", key, arguments.method);
}

}  // namespace

void add_prune(CLI::App& app) {
  const auto arguments = std::make_shared<PruneArguments>();
  CLI::App* verb = app.add_subcommand("prune",
                                      "Set weights of a language model's linear layers to zero, or remove "
                                      "channels of a model");
  verb->add_option("model", arguments->model, "Model: model folder, run folder or adapter")->required();
  verb->add_option(
          "--method", arguments->method,
          "magnitude: set the smallest weights of each layer to zero; wanda: for each output, set the "
          "weights with the smallest |weight| x norm of the input to zero; channels: remove channels of an "
          "image model's run, or attention heads and MLP columns of a language model, which becomes smaller")
      ->check(CLI::IsMember({"magnitude", kWanda, kChannels}))
      ->capture_default_str();
  verb->add_option("--sparsity", arguments->sparsity, "Fraction of each layer's weights to set to zero")
      ->check(CLI::Range(0.0, 0.999).description("0 to 0.999"))
      ->capture_default_str();
  verb->add_option("--pattern", arguments->pattern,
                   "unstructured; 2:4, 4:8: prune half of each group of 4 (8) adjacent inputs")
      ->check(CLI::IsMember(names_of<PrunePattern>()))
      ->capture_default_str();
  verb->add_option("--data", arguments->data,
                   "wanda: text or records to measure the inputs of layers (default: the data of the run)");
  verb->add_option("--rows", arguments->rows, "wanda: number of rows of data.context tokens")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20).description("1 to 1048576"))
      ->capture_default_str();
  verb->add_option("--flops", arguments->channels.flops,
                   "channels: max fraction of the FLOPs of a prediction that the smaller model needs")
      ->check(CLI::Range(0.001, 1.0).description("0.001 to 1"))
      ->capture_default_str();
  verb->add_option(
          "--score", arguments->score,
          "channels: importance of a channel; norm: weights of batch norms (without them, l2); l1, l2: "
          "norm of its filters; taylor: change of the loss on training data")
      ->check(CLI::IsMember(names_of<run::ChannelScore>()))
      ->capture_default_str();
  verb->add_option("--multiple", arguments->channels.multiple,
                   "channels: numbers of channels are rounded up to a multiple of this")
      ->check(CLI::Range(int64_t{1}, int64_t{256}).description("1 to 256"))
      ->capture_default_str();
  verb->add_option("--base", arguments->base,
                   "Base model of an adapter (default: the one in adapter_config.json)");
  verb->add_option("--out", arguments->out, "Output folder")->required();
  add_json(*verb, arguments->json);
  allow_overrides(*verb);
  set_example(*verb, "hearth prune MODEL --method wanda --data FILE.txt --out pruned");
  verb->callback([=] {
    check_flags(*verb, *arguments);
    arguments->method == kChannels ? prune_channels(*arguments) : prune_weights(*verb, *arguments);
  });
}

}  // namespace hearth::cli
