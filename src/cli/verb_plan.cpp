#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <future>
#include <nlohmann/json.hpp>

#include "arena/csv.h"
#include "arena/draw.h"
#include "arena/solve.h"
#include "arena/validate.h"
#include "base/error.h"
#include "base/output.h"
#include "base/text.h"
#include "cli/links.h"
#include "cli/output.h"
#include "cli/plan_serve.h"
#include "cli/verb.h"
#include "engine/plan_builder.h"
#include "ir/text.h"
#include "ops/op_list.h"
#include "planner/memory_fit.h"
#include "planner/ways_to_share.h"
#include "recipe/recipe.h"
#include "run/device_rates.h"
#include "run/from_recipe.h"
#include "run/resolve.h"

namespace hearth::cli {
namespace {

/// Min number of bytes accepted as a memory budget. A smaller number probably lacks its unit, such as GiB.
constexpr int64_t kMinMemory = 1024;
constexpr int64_t kMaxGpus = 64;

struct PlanArguments {
  std::string recipe;
  std::string memory;
  std::string svg = "plan.svg";
  bool json = false;
  std::string gpu;          ///< GPU whose rates the cost model uses
  std::string planned_gpu;  ///< GPU whose memory is the budget, too
  LinkArguments links;
};

/// Returns a recipe's engine options for a plan. Prints notes on values that were filled in, such as
/// defaults.
engine::EngineOptions plan_options(const recipe::Recipe& recipe) {
  const run::Resolved resolved = run::resolve_for_plan(tasks::Job(recipe));
  for (const std::string& note : resolved.notes) say(stderr, "{}\n", note);
  return run::engine_options(resolved.job);
}

/// Sets the device whose rates the cost model uses: the GPU of --model-gpu, by default the device of the
/// recipe.
void choose_rates(const PlanArguments& arguments, engine::EngineOptions& options) {
  if (!arguments.gpu.empty()) {
    options.device = cost::find_gpu(arguments.gpu);
  } else if (const std::string unknown = run::set_device_rates(options); !unknown.empty()) {
    say(stderr, "{}\n", unknown);
  }
}

/// Returns the GPU for which memory budgets and times are modeled: the GPU of the options, or the default GPU
/// if the options have none.
const cost::Device& gpu_of(const engine::EngineOptions& options) {
  const bool is_known = cost::find_gpu_by_driver_name(options.device.full_name) != nullptr;
  return is_known ? options.device : cost::default_gpu();
}

/// Plans that fit a memory budget.
struct BudgetPlans {
  std::optional<planner::PlanReport> free;
  std::optional<planner::MemoryFit> cheapest;
  std::optional<planner::PlanReport> largest;
};

/// Starts a search for the largest micro-batch with recompute and offload, in a separate thread, because it
/// takes longer than the other plans.
std::future<std::optional<planner::PlanReport>> search_with_offload(const engine::EngineOptions& options,
                                                                    int64_t memory) {
  return std::async(std::launch::async, [options, memory] {
    return planner::MemoryFits(options, memory).largest_with_offload();
  });
}

void print_fits(const BudgetPlans& fits, int64_t batch, int64_t memory, const cost::Device& gpu) {
  const std::string budget = human_bytes(memory);
  if (fits.free) {
    say("largest micro-batch within {}: {} (peak {})\n", budget, fits.free->batch,
        human_bytes(fits.free->peak_bytes));
  } else {
    say("batch size 1 does not fit {} without recompute or offload\n", budget);
  }
  if (!fits.cheapest) {
    say("micro-batch {} does not fit {}, even with recompute and offload; try a smaller micro-batch, shorter "
        "rows or QLoRA\n",
        batch, budget);
    return;
  }
  const planner::PlanReport& report = fits.cheapest->report;
  say("fastest plan for micro-batch {}: {}\n", batch, planner::describe(*fits.cheapest));
  say("  peak {}, in host memory {}, {:.2f} s per micro-batch on {} (modeled; expected {:.2f} to {:.2f} s)\n",
      human_bytes(report.peak_bytes), human_bytes(report.host_bytes), report.time.seconds, gpu.full_name,
      report.time.expected.low, report.time.expected.high);
  if (report.encoded.num_encoded > 0) say("  {}\n", planner::describe(report.encoded));
  say("largest micro-batch with recompute and offload: {} (peak {})\n", fits.largest->batch,
      human_bytes(fits.largest->peak_bytes));
}

/// Returns the report as JSON, and with it the plans that fit the memory budget, if one was given.
std::string plan_json(const planner::PlanReport& report, const std::optional<BudgetPlans>& fits,
                      int64_t memory) {
  std::string text = planner::to_json(report);
  if (!fits) return text;
  text.pop_back();
  text += fmt::format(",\"memory_bytes\":{},\"largest_batch\":{},\"largest_batch_peak_bytes\":{}", memory,
                      fits->free ? fits->free->batch : 0, fits->free ? fits->free->peak_bytes : 0);
  if (!fits->cheapest) return text + ",\"fit\":null}";
  const planner::MemoryFit& fit = *fits->cheapest;
  return text + fmt::format(
                    ",\"fit\":{{\"way\":\"{}\",\"peak_bytes\":{},\"host_bytes\":{},\"extra_flops\":{:.0f},"
                    "\"modeled_seconds\":{:.6f},\"largest_batch\":{}}}}}",
                    planner::describe(fit), fit.report.peak_bytes, fit.report.host_bytes,
                    fit.report.recompute.extra_flops, fit.report.time.seconds, fits->largest->batch);
}

/// Returns the memory budget in bytes: that of --memory, or the memory of --gpu without the recipe's reserve;
/// 0 without these flags.
int64_t memory_of(const PlanArguments& arguments, const recipe::Recipe& recipe) {
  if (arguments.memory.empty())
    return arguments.planned_gpu.empty() ? 0 : cost::find_gpu(arguments.gpu).memory_bytes - recipe.reserve;
  const int64_t bytes = parse_bytes(arguments.memory).value_or(0);
  if (bytes < kMinMemory) user_error("expected a size like 20GiB for --memory, got '{}'", arguments.memory);
  return bytes;
}

/// Parses "2x20GiB" or "16GiB" and appends the bytes of each GPU. Returns false for other text.
bool add_gpus(std::string_view text, std::vector<int64_t>& gpus) {
  int64_t count = 1;
  if (const size_t times = text.find('x'); times != std::string_view::npos) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + times, count);
    if (error != std::errc() || end != text.data() + times) return false;
    text.remove_prefix(times + 1);
  }
  const int64_t bytes = parse_bytes(text).value_or(0);
  if (count < 1 || count > kMaxGpus || bytes < kMinMemory) return false;
  gpus.insert(gpus.end(), static_cast<size_t>(count), bytes);
  return true;
}

/// Finds an override such as devices=2x20GiB or devices=20GiB,16GiB and replaces it by devices=2. Returns the
/// memory of each GPU in bytes; empty if there is no such override.
std::vector<int64_t> take_gpu_bytes(std::vector<std::string>& overrides) {
  constexpr std::string_view kKey = "devices=";
  const auto found = std::ranges::find_if(overrides, [&](const std::string& text) {
    return text.starts_with(kKey) && text.find_first_of("xB") != std::string::npos;
  });
  if (found == overrides.end()) return {};
  const std::string given = found->substr(kKey.size());
  std::vector<int64_t> gpus;
  for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = given.find(',', begin);
    if (!add_gpus(std::string_view(given).substr(begin, end - begin), gpus))
      user_error("expected 1 to {} GPUs like 2x20GiB or 20GiB,16GiB for devices, got '{}'", kMaxGpus, given);
  }
  *found = fmt::format("{}{}", kKey, gpus.size());
  return gpus;
}

/// Prints the memory and the modeled time of each parallelism strategy on several GPUs.
void print_parallel_plans(const PlanArguments& arguments, const std::vector<std::string>& overrides,
                          std::span<const int64_t> gpu_bytes) {
  const planner::Links links = links_of(arguments.links);
  const recipe::Recipe recipe = open_recipe(arguments.recipe, overrides);
  engine::EngineOptions used = plan_options(recipe);
  choose_rates(arguments, used);
  const cost::Device& gpu = gpu_of(used);
  std::vector<planner::ParallelPlan> ways;
  const auto add = [&](const std::vector<std::string>& settings) {
    std::vector<std::string> all = overrides;
    all.insert(all.end(), settings.begin(), settings.end());
    const engine::EngineOptions options = plan_options(open_recipe(arguments.recipe, all));
    ways.push_back(planner::plan_parallelism(fmt::format("{}", fmt::join(settings, " ")), options, gpu_bytes,
                                             gpu, links));
  };
  add({"devices=1", "parallel=data"});
  for (const std::string_view way : kNames<Parallel>)
    add({fmt::format("devices={}", recipe.devices), fmt::format("parallel={}", way)});
  if (arguments.json) {
    say("{}\n", planner::to_json(ways));
    return;
  }
  std::vector<std::string> sizes;
  for (const int64_t num_bytes : gpu_bytes) {
    if (sizes.empty() || sizes.back() != human_bytes(num_bytes)) sizes.push_back(human_bytes(num_bytes));
  }
  say("{}, updates of {} x {}, {}, on GPUs of {}; time by a model of {}: simulated, not measured\n{}",
      recipe::model_name(recipe), recipe.train.accumulate, recipe.train.batch, recipe::precision_name(recipe),
      fmt::join(sizes, " and "), gpu.full_name, planner::to_table(ways));
}

void run_plan(const CLI::App& verb, const PlanArguments& arguments) {
  std::vector<std::string> overrides = overrides_of(verb);
  if (const std::vector<int64_t> gpus = take_gpu_bytes(overrides); !gpus.empty())
    return print_parallel_plans(arguments, overrides, gpus);
  check_writable_file(arguments.svg);
  const recipe::Recipe recipe = open_recipe(arguments.recipe, overrides);
  const int64_t memory = memory_of(arguments, recipe);
  engine::EngineOptions options = plan_options(recipe);
  choose_rates(arguments, options);
  engine::EngineOptions on_gpu = options;
  on_gpu.device = gpu_of(options);
  std::future<std::optional<planner::PlanReport>> largest;
  if (memory > 0) largest = search_with_offload(on_gpu, memory);
  const engine::Plan plan = engine::make_plan(options, std::span(&options.batch, 1), {});
  planner::PlanReport report = planner::make_plan_report(plan);
  report.kept_bytes = recipe.data.keep_images;
  const exec::Program& program = plan.train_program();
  write_file_atomically(arguments.svg, arena::draw_svg(program.problem, program.solution));
  std::optional<BudgetPlans> fits;
  if (memory > 0) {
    planner::MemoryFits search(on_gpu, memory);
    fits = {.free = search.largest_unmodified(), .cheapest = search.cheapest(), .largest = largest.get()};
    if (!fits->largest && fits->cheapest) fits->largest = fits->cheapest->report;
  }
  if (arguments.json) {
    say("{}\n", plan_json(report, fits, memory));
  } else {
    say("{} at micro-batch {}, {}\n{}", recipe::model_name(recipe), recipe.train.batch,
        recipe::precision_name(recipe), planner::to_table(report));
    say("drawing of the arena: {}\n", arguments.svg);
  }
  if (fits && !arguments.json) print_fits(*fits, options.batch, memory, on_gpu.device);
}

struct DumpArguments {
  std::string recipe;
  std::string after;
  bool list = false, json = false;
};

void list_passes(bool as_json) {
  Json passes = Json::array();
  for (const passes::Pass& pass : passes::pass_list()) {
    passes.push_back({{"name", pass.name}, {"doc", pass.doc}});
    if (!as_json) say("  {:<18} {}\n", pass.name, pass.doc);
  }
  if (as_json) print_json({{"passes", passes}});
}

void run_dump(const CLI::App& verb, const DumpArguments& arguments) {
  if (arguments.list || arguments.recipe.empty()) return list_passes(arguments.json);
  const recipe::Recipe recipe = open_recipe(arguments.recipe, overrides_of(verb));
  engine::EngineOptions options = plan_options(recipe);
  choose_rates({}, options);
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
  engine::make_plan(options, std::span(&options.batch, 1), {});
  if (arguments.json) return print_json({{"recipe", arguments.recipe}, {"after", wanted}, {"graph", text}});
  say("{}", text);
}

struct PackArguments {
  std::string file;
  std::string out;
  int64_t capacity = -1;
  double seconds = 5;
  bool json = false;
};

void run_pack(const PackArguments& arguments) {
  if (!arguments.out.empty()) check_writable_file(arguments.out);
  const arena::Problem problem = arena::read_csv(arguments.file);
  arena::SolveOptions options{.seconds = arguments.seconds};
  if (arguments.capacity >= 0) options.capacity = arguments.capacity;
  const arena::Solution solution = arena::solve(problem, options);
  if (const auto error = arena::validate(problem, solution))
    internal_error("the packing is wrong: {}", *error);
  const int64_t bound = solution.lower_bound;
  const double gap =
      bound == 0 ? 0 : 100 * static_cast<double>(solution.height - bound) / static_cast<double>(bound);
  if (arguments.json) {
    print_json({{"height", solution.height},
                {"bound", bound},
                {"seconds", solution.seconds},
                {"optimal", solution.proven_optimal}});
  } else {
    say("height {}  bound {}  gap {:.3f}%  seconds {:.3f}{}\n", solution.height, bound, gap, solution.seconds,
        solution.proven_optimal ? "  optimal" : "");
  }
  if (!arguments.out.empty()) write_file_atomically(arguments.out, arena::write_csv(problem, solution));
  if (arguments.capacity < 0 || solution.height <= arguments.capacity) return;
  if (bound > arguments.capacity) {
    user_error("{} does not fit into {} bytes, because {} bytes are in use at the same time", arguments.file,
               arguments.capacity, bound);
  }
  user_error("{} does not fit into {} bytes {}; the smallest arrangement found needs {}", arguments.file,
             arguments.capacity,
             solution.proven_bound > arguments.capacity ? "in any arrangement" : "as far as was searched",
             solution.height);
}

}  // namespace

void add_plan(CLI::App& app) {
  const auto arguments = std::make_shared<PlanArguments>();
  CLI::App* verb =
      app.add_subcommand("plan", "Plan the memory and model the step time of a recipe, without running it");
  // Not marked as required, because CLI11 would then read the command `serve` as the recipe.
  verb->add_option("recipe", arguments->recipe, "Recipe file or name");
  verb->add_option("--memory", arguments->memory,
                   "Find the largest micro-batch that fits this budget, e.g. 20GiB");
  CLI::Option* planned = verb->add_option("--gpu", arguments->planned_gpu,
                                          "Find what fits the memory of this GPU, and model its times, e.g. "
                                          "rx9070xt (docs/gpus.md lists the names)");
  verb->add_option("--svg", arguments->svg, "Output file for the drawing of the arena (default plan.svg)");
  add_json(*verb, arguments->json);
  CLI::Option* model =
      verb->add_option("--model-gpu", arguments->gpu,
                       "GPU for modeled times, e.g. h200 (default: the GPU of the recipe, or rx7900xt)");
  add_former_name(*verb, "--model-card", *model);
  planned->excludes(model);
  add_links(*verb, arguments->links);
  allow_overrides(*verb);
  set_example(*verb, "hearth plan recipes/demo.yaml --gpu rx7900xt");
  CLI::App* serve = add_plan_serve(*verb);
  verb->callback([=] {
    if (serve->parsed()) return;
    if (arguments->recipe.empty()) user_error("recipe is required; try hearth plan --help");
    if (!arguments->planned_gpu.empty()) arguments->gpu = arguments->planned_gpu;
    run_plan(*verb, *arguments);
  });
}

void add_dump(CLI::App& app) {
  const auto arguments = std::make_shared<DumpArguments>();
  CLI::App* verb = app.add_subcommand("dump", "Print the training graph of a recipe after a pass");
  verb->add_option("recipe", arguments->recipe, "Recipe file or name");
  verb->add_option("--after", arguments->after, "Name of the pass (default: the last one)");
  verb->add_flag("--list", arguments->list, "List the passes");
  add_json(*verb, arguments->json);
  allow_overrides(*verb);
  set_example(*verb, "hearth dump recipes/demo.yaml --after=backward");
  verb->callback([=] { run_dump(*verb, *arguments); });
}

void add_ops(CLI::App& app) {
  const auto json = std::make_shared<bool>(false);
  CLI::App* verb = app.add_subcommand("ops", "List the ops");
  add_json(*verb, *json);
  set_example(*verb, "hearth ops");
  verb->callback([=] {
    Json ops = Json::array();
    for (const ir::OpDef* op : ops::op_list()) {
      if (*json) {
        ops.push_back({{"name", op->name},
                       {"doc", op->doc},
                       {"inputs", op->inputs},
                       {"has_gradient", op->vjp != nullptr}});
        continue;
      }
      say("  {:<26} {:<9} {}\n", op->name, op->vjp != nullptr ? "gradient" : "", op->doc);
      say("    {}\n",
          op->inputs.empty() ? "no inputs" : fmt::format("inputs: {}", fmt::join(op->inputs, ", ")));
    }
    if (*json) print_json({{"ops", ops}});
  });
}

void add_pack(CLI::App& app) {
  const auto arguments = std::make_shared<PackArguments>();
  CLI::App* verb = app.add_subcommand(
      "pack", "Pack buffers with lifetimes into an arena; CSV columns: id,lower,upper,size");
  verb->add_option("file", arguments->file, "CSV file")->required();
  verb->add_option("--capacity", arguments->capacity,
                   "Size limit in bytes: stop at the first packing within it; exit code 2 if there is none")
      ->check(CLI::Range(int64_t{0}, arena::kMaxProblemBytes));
  verb->add_option("--seconds", arguments->seconds, "Max duration of the search in seconds (default 5)")
      ->check(CLI::Range(0.0, 1e6));
  verb->add_option("--out", arguments->out, "Output CSV file with columns id,lower,upper,size,offset");
  add_json(*verb, arguments->json);
  set_example(*verb, "hearth pack buffers.csv --out packed.csv");
  verb->callback([=] { run_pack(*arguments); });
}

}  // namespace hearth::cli
