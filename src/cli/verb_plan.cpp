#include <fmt/format.h>

#include <cstdio>
#include <fstream>

#include "base/error.h"
#include "base/text.h"
#include "cli/verb.h"
#include "ir/text.h"
#include "ops/op_list.h"
#include "plan/csv.h"
#include "plan/draw.h"
#include "plan/validate.h"
#include "train/bench_case.h"
#include "train/plan_report.h"
#include "train/recipe.h"

namespace hearth::cli {
namespace {

struct PlanArguments {
  std::string recipe;
  std::string memory;
  std::string svg = "plan.svg";
  bool json = false;
};

void print_fit(const train::EngineOptions& options, int64_t memory) {
  const auto best = train::largest_batch(options, memory);
  if (!best) {
    fmt::print(
        "not even one sample fits {} as it is; recomputation may (below), a smaller model or row would\n",
        human_bytes(memory));
    return;
  }
  fmt::print("largest micro-batch within {}: {} (peak {})\n", human_bytes(memory), best->batch,
             human_bytes(best->peak_bytes));
}

void print_offers(const train::EngineOptions& options) {
  fmt::print("what recomputation buys at this batch:\n");
  for (const train::RecomputeOffer& offer : train::recompute_offers(options)) {
    fmt::print("  arena held to {:3.0f}%: {:>10} (peak {}), {:+.1f}% work{}\n", 100 * offer.budget_share,
               human_bytes(offer.report.arena_bytes), human_bytes(offer.report.peak_bytes),
               100 * offer.extra_flops_share, offer.report.recompute.fits ? "" : " (as low as it goes)");
  }
}

/// The report as JSON, and with a budget what fits it.
std::string plan_json(const train::PlanReport& report, const train::EngineOptions& options,
                      std::optional<int64_t> memory) {
  std::string text = train::to_json(report);
  if (!memory) return text;
  const auto best = train::largest_batch(options, *memory);
  std::vector<std::string> offers;
  for (const train::RecomputeOffer& offer : train::recompute_offers(options)) {
    offers.push_back(fmt::format("{{\"arena_bytes\":{},\"extra_flops_share\":{:.4f},\"fits\":{}}}",
                                 offer.report.arena_bytes, offer.extra_flops_share,
                                 offer.report.recompute.fits));
  }
  text.pop_back();
  return text + fmt::format(
                    ",\"memory_bytes\":{},\"largest_batch\":{},\"largest_batch_peak_bytes\":{},"
                    "\"recompute\":[{}]}}",
                    *memory, best ? best->batch : 0, best ? best->peak_bytes : 0, fmt::join(offers, ","));
}

void run_plan(const CLI::App& verb, const PlanArguments& arguments) {
  const auto memory = arguments.memory.empty() ? std::nullopt : parse_bytes(arguments.memory);
  if (!arguments.memory.empty() && (!memory || *memory <= 0))
    user_error("expected a size like 20GiB for --memory, got '{}'", arguments.memory);
  const train::Recipe recipe = open_recipe(arguments.recipe, overrides_of(verb));
  const train::EngineOptions options = train::engine_options(recipe);
  std::unique_ptr<train::Engine> engine;
  const train::PlanReport report = train::make_plan_report(options, &engine);
  const exec::Program& program = engine->train_program();
  write_file_atomically(arguments.svg, plan::draw_svg(program.plan_problem(), program.plan_solution()));
  if (arguments.json) {
    fmt::print("{}\n", plan_json(report, options, memory));
  } else {
    fmt::print("{} at micro-batch {}, {}\n{}", train::model_name(recipe), recipe.batch, recipe.precision,
               train::to_table(report));
    fmt::print("picture of the arena: {}\n", arguments.svg);
  }
  if (!memory || arguments.json) return;
  print_fit(options, *memory);
  print_offers(options);
}

struct DumpArguments {
  std::string recipe;
  std::string after;
  bool list = false;
};

void run_dump(const CLI::App& verb, const DumpArguments& arguments) {
  if (arguments.list || arguments.recipe.empty()) {
    for (const passes::Pass& pass : passes::pass_list()) fmt::print("  {:<18} {}\n", pass.name, pass.doc);
    return;
  }
  const train::Recipe recipe = open_recipe(arguments.recipe, overrides_of(verb));
  train::EngineOptions options = train::engine_options(recipe);
  std::vector<std::string> names;
  for (const passes::Pass& pass : passes::pass_list()) names.emplace_back(pass.name);
  const std::string wanted = arguments.after.empty() ? names.back() : arguments.after;
  if (std::find(names.begin(), names.end(), wanted) == names.end()) {
    user_error("there is no pass '{}'{}", wanted, did_you_mean(wanted, names));
  }
  std::string text;
  options.after_pass = [&](std::string_view pass, const ir::Graph& graph, double) {
    if (pass == wanted && text.empty()) text = ir::print(graph);
  };
  train::make_plan_report(options);
  fmt::print("{}", text);
}

struct PackArguments {
  std::string file;
  std::string out;
  int64_t capacity = -1;
  double seconds = 5;
};

void run_pack(const PackArguments& arguments) {
  if (!(arguments.seconds >= 0)) user_error("expected 0 or more for --seconds, got {}", arguments.seconds);
  if (arguments.capacity < -1) user_error("expected 0 or more for --capacity, got {}", arguments.capacity);
  const plan::Problem problem = plan::read_csv(arguments.file);
  plan::SolveOptions options{.seconds = arguments.seconds};
  if (arguments.capacity >= 0) options.capacity = arguments.capacity;
  const plan::Solution solution = plan::solve(problem, options);
  if (const auto error = plan::validate(problem, solution))
    internal_error("the packing is wrong: {}", *error);
  const int64_t bound = solution.lower_bound;
  const double gap =
      bound == 0 ? 0 : 100 * static_cast<double>(solution.height - bound) / static_cast<double>(bound);
  fmt::print("height {}  bound {}  gap {:.3f}%  seconds {:.3f}{}\n", solution.height, bound, gap,
             solution.seconds, solution.proven_optimal ? "  optimal" : "");
  if (!arguments.out.empty()) write_file_atomically(arguments.out, plan::write_csv(problem, solution));
  if (arguments.capacity < 0 || solution.height <= arguments.capacity) return;
  if (bound > arguments.capacity) {
    user_error("{} cannot fit {} bytes: {} are alive at once", arguments.file, arguments.capacity, bound);
  }
  user_error("{} does not fit {} bytes {}; the lowest found is {}", arguments.file, arguments.capacity,
             solution.proven_bound > arguments.capacity ? "in any arrangement" : "as far as was searched",
             solution.height);
}

}  // namespace

void add_plan(CLI::App& app) {
  const auto arguments = std::make_shared<PlanArguments>();
  CLI::App* verb = app.add_subcommand("plan", "Show what a recipe needs in memory, without running it");
  verb->add_option("recipe", arguments->recipe, "recipe file")->required();
  verb->add_option("--memory", arguments->memory, "a budget like 20GiB: the largest micro-batch that fits");
  verb->add_option("--svg", arguments->svg, "where to write the picture of the arena");
  verb->add_flag("--json", arguments->json, "print JSON");
  allow_overrides(*verb);
  verb->callback([=] { run_plan(*verb, *arguments); });
}

void add_dump(CLI::App& app) {
  const auto arguments = std::make_shared<DumpArguments>();
  CLI::App* verb = app.add_subcommand("dump", "Print a recipe's training graph behind a pass");
  verb->add_option("recipe", arguments->recipe, "recipe file");
  verb->add_option("--after", arguments->after, "name of the pass (default: the last)");
  verb->add_flag("--list", arguments->list, "list the passes");
  allow_overrides(*verb);
  verb->callback([=] { run_dump(*verb, *arguments); });
}

void add_ops(CLI::App& app) {
  app.add_subcommand("ops", "List the operations")->callback([] {
    for (const ir::OpDef* op : ops::op_list()) {
      fmt::print("  {:<26} {:<9} {}\n", op->name, op->vjp != nullptr ? "gradient" : "", op->doc);
    }
  });
}

void add_pack(CLI::App& app) {
  const auto arguments = std::make_shared<PackArguments>();
  CLI::App* verb =
      app.add_subcommand("pack", "Pack buffers of a CSV file (id,lower,upper,size) into an arena");
  verb->add_option("file", arguments->file, "CSV file")->required();
  verb->add_option("--capacity", arguments->capacity,
                   "stop at the first answer within it; exit code 2 if there is none");
  verb->add_option("--seconds", arguments->seconds, "time for the search (default 5)");
  verb->add_option("--out", arguments->out, "write id,lower,upper,size,offset");
  verb->callback([=] { run_pack(*arguments); });
}

namespace {

void check_range(const char* flag, int64_t value, int64_t most) {
  if (value < 1 || value > most) user_error("expected 1 to {} for {}, got {}", most, flag, value);
}

}  // namespace

void add_bench(CLI::App& app) {
  struct Arguments {
    std::string name;
    int64_t steps = 20;
    int threads = num_available_cpus();
    bool profile = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* verb =
      app.add_subcommand("bench", "Time training steps or answers on random data; prints one line of JSON");
  verb->add_option("case", arguments->name, "for example simplecnn-b32-fp32")->required();
  verb->add_option("--steps", arguments->steps, "timed steps");
  verb->add_option("--threads", arguments->threads, "threads");
  verb->add_flag("--profile", arguments->profile, "also print where the step's time goes, op by op");
  verb->callback([=] {
    check_range("--steps", arguments->steps, 1'000'000);
    check_range("--threads", arguments->threads, 1024);
    const train::BenchCase& bench = train::find_bench_case(arguments->name);
    const train::BenchResult result =
        train::run_bench(bench, arguments->steps, arguments->threads, arguments->profile);
    fmt::print("{}{}\n", result.profile, train::to_json(bench, result));
  });
}

}  // namespace hearth::cli
