#include "cli/plan_serve.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "infer/batch_generator.h"
#include "run/open_text_session.h"

namespace hearth::cli {
namespace {

struct PlanServeArguments {
  std::string model, base, memory;
  infer::BatchOptions options;
  bool json = false;
};

void run_plan_serve(const CLI::App& verb, const PlanServeArguments& arguments) {
  infer::BatchOptions options = arguments.options;
  run::set_compute(overrides_of(verb), "hearth plan serve", options.compute, options.precision);
  int64_t available = available_memory_bytes();
  if (!arguments.memory.empty()) available = parse_bytes(arguments.memory).value_or(0);
  if (available <= 0)
    user_error("--memory is '{}', which is not a size; use for example --memory 20GiB", arguments.memory);
  const infer::DecoderMemory memory =
      infer::plan_batch(hub::find_model(arguments.model, arguments.base), options);
  const int64_t num_tokens = options.num_slots * options.tokens_per_slot;
  if (arguments.json) {
    say("{{\"weight_bytes\":{},\"cache_bytes\":{},\"workspace_bytes\":{},\"total_bytes\":{},"
        "\"available_bytes\":{}}}\n",
        memory.weights, memory.cache, memory.workspace, memory.total(), available);
  } else {
    say("weights     {:>10}\nKV cache    {:>10}  {} slots of {} tokens, {} per token\nworkspace   {:>10}\n"
        "total       {:>10}  of {} available\n",
        human_bytes(memory.weights), human_bytes(memory.cache), options.num_slots, options.tokens_per_slot,
        human_bytes(memory.cache / num_tokens), human_bytes(memory.workspace), human_bytes(memory.total()),
        human_bytes(available));
  }
  infer::check_fits(memory, options, available);
}

}  // namespace

CLI::App* add_plan_serve(CLI::App& plan) {
  const auto arguments = std::make_shared<PlanServeArguments>();
  CLI::App* verb = plan.add_subcommand(
      "serve", "Plan the memory of a language model that answers several requests at the same time");
  verb->add_option("model", arguments->model, "Model folder, GGUF file, run or adapter")->required();
  verb->add_option("--base", arguments->base, "Base model of an adapter");
  verb->add_option("--slots", arguments->options.num_slots,
                   "Max number of requests that are answered at the same time")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}).description("1 to 4096"))
      ->capture_default_str();
  verb->add_option("--context", arguments->options.tokens_per_slot,
                   "Max tokens of prompt and answer together")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24).description("1 to 16777216"))
      ->capture_default_str();
  verb->add_option("--memory", arguments->memory,
                   "Memory to fit into, e.g. 20GiB (default: the free memory of this machine)");
  verb->add_flag("--json", arguments->json, "Print JSON");
  allow_overrides(*verb);
  set_example(*verb, "hearth plan serve MODEL --slots 8 --context 4096");
  verb->callback([=] { run_plan_serve(*verb, *arguments); });
  return verb;
}

}  // namespace hearth::cli
