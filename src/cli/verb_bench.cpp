#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "bench/case.h"
#include "bench/data.h"
#include "cli/links.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "cli/verb_bench_report.h"
#include "distributed/bench.h"
#include "distributed/mpi/mpi.h"
#include "exec/device/gpu_choice.h"
#include "planner/scaling_model.h"
#include "planner/step_model.h"
#include "run/from_recipe.h"
#include "run/resolve.h"

namespace hearth::cli {
namespace {

void check_range(const char* flag, int64_t value, int64_t least, int64_t most) {
  if (value < least || value > most) user_error("expected {} to {} for {}, got {}", least, most, flag, value);
}

void check_device(const std::string& device) {
  if (device != "cpu" && !exec::names_gpu(device))
    user_error("expected cpu, gpu, gpu:0, gpu:0000:03:00.0 or emulated for --device, got '{}'", device);
}

/// Arguments for predictions by the cost model: GPU name and link bandwidths.
struct ModelArguments {
  std::string gpu;
  LinkArguments links;
};

/// Returns the engine options of a recipe or of a benchmark case. `name` is a recipe if it ends with .yaml or
/// if there are overrides. A case updates weights in the backward pass only if the GPU has too little memory
/// for all gradients.
engine::EngineOptions model_options(const std::string& name, std::vector<std::string> overrides,
                                    int num_workers, const cost::Device& gpu) {
  if (name.ends_with(".yaml") || !overrides.empty()) {
    overrides.push_back(fmt::format("devices={}", num_workers));
    return run::engine_options(run::resolve_for_plan(tasks::Job(open_recipe(name, overrides))).job);
  }
  engine::EngineOptions options = bench::engine_options(bench::find_bench_case(name), {});
  options.optimizer.in_backward = false;
  if (num_workers > 1) {
    bench::set_data_parallel(options, num_workers);
  } else {
    options.optimizer.in_backward = planner::model_step(options, gpu).memory_bytes > gpu.memory_bytes;
  }
  return options;
}

Json to_json(const std::string& name, const planner::StepModel& model) {
  return {{"case", name},
          {"gpu", model.gpu->name},
          {"step_seconds", model.roofline.seconds},
          {"samples_per_step", model.num_samples},
          {"memory_bytes", model.memory_bytes},
          {"mfu", model.mfu()}};
}

void print_model(const std::string& name, const ModelArguments& arguments,
                 const std::vector<std::string>& overrides, int num_workers, bool as_json) {
  const cost::Device& gpu = cost::find_gpu(arguments.gpu);
  const planner::Links links = links_of(arguments.links);
  const engine::EngineOptions alone = model_options(name, overrides, 1, gpu);
  if (num_workers == 1) {
    const planner::StepModel model = planner::model_step(alone, gpu);
    if (as_json) return print_json(to_json(name, model));
    return say("{} {}", name, planner::to_table(model));
  }
  const planner::ScalingModel one = planner::model_scaling(alone, gpu, links);
  const planner::ScalingModel several =
      planner::model_scaling(model_options(name, overrides, num_workers, gpu), gpu, links);
  if (!as_json) say("{} {}", name, planner::to_text(several, one, gpu, links));
  say("{}\n", planner::to_json(several, one, gpu, links));
}

void print_table(int num_ranks, const distributed::CommBenchResult& result) {
  say("{} processes; each copies {:.2f} GB/s in its own memory\n", num_ranks,
      result.copy_bytes_per_second * 1e-9);
  say("{:<15} {:>10} {:>12} {:>8} {:>9} {:>10}\n", "collective", "bytes", "us", "GB/s", "bus GB/s",
      "of copying");
  for (const distributed::CommTiming& timing : result.timings) {
    say("{:<15} {:>10} {:>12.1f} {:>8.3f} {:>9.3f} {:>9.0f}%\n", timing.collective, timing.num_bytes,
        timing.seconds * 1e6, timing.bytes_per_second() * 1e-9, timing.bus_bytes_per_second(num_ranks) * 1e-9,
        100 * timing.bytes_per_second() / result.copy_bytes_per_second);
  }
}
void print_timings_as_json(const distributed::CommBenchResult& result) {
  Json timings = Json::array();
  for (const distributed::CommTiming& timing : result.timings) {
    timings.push_back(
        {{"collective", timing.collective}, {"bytes", timing.num_bytes}, {"seconds", timing.seconds}});
  }
  print_json({{"copy_bytes_per_second", result.copy_bytes_per_second}, {"timings", timings}});
}

int64_t bytes_option(const char* flag, const std::string& text) {
  const std::optional<int64_t> bytes = parse_bytes(text);
  if (!bytes) user_error("expected a size like 64KiB for {}, got '{}'", flag, text);
  return *bytes;
}

struct CommArguments {
  std::string transport = "shm", device = "gpu";
  int num_ranks = 2;
  std::string min = "1KiB", max = "256MiB", wire = "f32";
  bool json = false;
};

distributed::CommBenchOptions options_of(const CommArguments& arguments) {
  distributed::CommBenchOptions options{.min_bytes = bytes_option("--min", arguments.min),
                                        .max_bytes = bytes_option("--max", arguments.max)};
  check_range("--ranks", arguments.num_ranks, 2, 64);
  check_range("--min", options.min_bytes, 1, options.max_bytes);
  check_range("--max", options.max_bytes, 1, int64_t{4} << 30);
  if (arguments.device != "gpu" && arguments.device != "emulated")
    user_error("expected gpu or emulated for --device, got '{}'", arguments.device);
  if (arguments.wire != "f32" && arguments.wire != "bf16")
    user_error("expected f32 or bf16 for --wire, got '{}'", arguments.wire);
  options.wire = *dtype_from_name(arguments.wire);
  return options;
}

void run_bench_comm(const CommArguments& arguments) {
  const distributed::CommBenchOptions options = options_of(arguments);
  distributed::CommBenchResult result;
  int num_ranks = arguments.num_ranks;
  if (arguments.transport == "shm") {
    result = distributed::bench_shm(num_ranks, options);
  } else if (arguments.transport == "nccl") {
    result = distributed::bench_nccl(exec::list_gpus(arguments.device), num_ranks, options);
  } else if (arguments.transport == "mpi") {
    const std::unique_ptr<distributed::ProcessGroup> group = distributed::open_mpi();
    num_ranks = group->size();
    if (num_ranks < 2)
      user_error(
          "expected several ranks for --transport mpi, got 1; try mpirun -n 2 hearth bench comm --transport "
          "mpi");
    result = distributed::bench_group(*group, options);
    if (group->rank() > 0) return;
  } else {
    user_error("expected shm, nccl or mpi for --transport, got '{}'", arguments.transport);
  }
  arguments.json ? print_timings_as_json(result) : print_table(num_ranks, result);
}

void add_bench_comm(CLI::App& bench) {
  const auto arguments = std::make_shared<CommArguments>();
  CLI::App* verb =
      bench.add_subcommand("comm", "Measure collectives between processes, and memory copies for comparison");
  verb->add_option("--transport", arguments->transport,
                   "shm (default), nccl (NCCL or RCCL, between GPUs), or mpi (under mpirun)");
  verb->add_option("--device", arguments->device, "Devices for nccl: gpu (default) or emulated");
  verb->add_option("--ranks", arguments->num_ranks, "Processes (shm) or GPUs (nccl) (default 2)");
  CLI::Option* min = verb->add_option("--min", arguments->min, "Size of the smallest array (default 1KiB)");
  CLI::Option* max = verb->add_option("--max", arguments->max, "Size of the largest array (default 256MiB)");
  add_former_name(*verb, "--least", *min);
  add_former_name(*verb, "--most", *max);
  verb->add_option("--wire", arguments->wire, "Data type of transfers: f32 (default) or bf16");
  add_json(*verb, arguments->json);
  verb->callback([=] { run_bench_comm(*arguments); });
}

void add_bench_data(CLI::App& bench) {
  const auto options = std::make_shared<bench::DataBenchOptions>();
  CLI::App* verb = bench.add_subcommand("data", "Measure the input pipeline of a detector on one thread");
  verb->add_option("folder", options->folder, "Folder of images with boxes")->required();
  verb->add_option("--side", options->side, "Side of the training images in pixels (default 416)");
  verb->add_option("--rows", options->rows, "Number of images per measurement (default 200)");
  verb->add_flag_callback(
      "--json", [] {}, "Print JSON (default)");
  verb->callback([=] {
    check_range("--rows", options->rows, 1, 1'000'000);
    check_range("--side", options->side, 32, 4096);
    say("{}\n", bench::bench_data(*options));
  });
}

}  // namespace

void add_bench(CLI::App& app) {
  struct Arguments {
    std::string name;
    int64_t steps = 20;
    bench::BenchMachine machine{.num_threads = num_available_cpus()};
    int num_workers = 1;
    bool tiny = false;
    bool profile = false;
    bool json = false;
    ModelArguments model;
  };
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* verb = app.add_subcommand("bench",
                                      "Measure training steps, text generation or the kernels of a GPU on "
                                      "random data; the last line is JSON");
  verb->add_option("case", arguments->name,
                   "Benchmark case, e.g. simplecnn-b32-fp32; with --model-gpu also a recipe");
  add_bench_comm(*verb);
  add_bench_data(*verb);
  add_bench_report(*verb);
  verb->add_option("--steps", arguments->steps, "Number of measured steps (default 20)");
  verb->add_option("--threads", arguments->machine.num_threads, "CPU threads (default: all cores)");
  verb->add_option("--device", arguments->machine.device, "cpu (default), gpu, gpu:1, ... or emulated");
  verb->add_option("--workers", arguments->num_workers,
                   "Number of worker processes, each with a micro-batch and --threads threads (default 1)");
  verb->add_flag("--tiny", arguments->tiny, "Use small sizes, as in tests");
  verb->add_flag("--json", arguments->json, "Print only the last line, JSON");
  verb->add_flag("--profile", arguments->profile, "Also print the time of each op");
  CLI::Option* model = verb->add_option("--model-gpu", arguments->model.gpu,
                                        "Print the modeled step time on this GPU instead of measuring, e.g. "
                                        "rx7900xt; with --workers on several");
  add_former_name(*verb, "--model-card", *model);
  add_links(*verb, arguments->model.links);
  allow_overrides(*verb);
  set_example(*verb, "hearth bench mlp-b64-fp32 --steps 20");
  verb->callback([=] {
    if (!verb->get_subcommands().empty()) return;
    if (arguments->name.empty())
      user_error("expected a case, like hearth bench simplecnn-b32-fp32, comm, data or report");
    const std::vector<std::string> overrides = overrides_of(*verb);
    check_range("--workers", arguments->num_workers, 1, 64);
    if (!arguments->model.gpu.empty()) {
      print_model(arguments->name, arguments->model, overrides, arguments->num_workers, arguments->json);
      return;
    }
    if (!overrides.empty())
      user_error("'{}' is a recipe override, which needs a recipe and --model-gpu", overrides[0]);
    check_range("--steps", arguments->steps, 1, 1'000'000);
    check_range("--threads", arguments->machine.num_threads, 1, 1024);
    if (arguments->num_workers > 1 && arguments->profile)
      user_error("--profile works with one worker only, but --workers is {}", arguments->num_workers);
    check_device(arguments->machine.device);
    bench::BenchCase bench = bench::find_bench_case(arguments->name);
    if (arguments->tiny) bench = bench::tiny_case(bench);
    const bench::BenchResult result =
        arguments->num_workers > 1
            ? bench::run_group_bench(bench, arguments->steps, arguments->machine, arguments->num_workers)
            : bench::run_bench(bench, arguments->steps, arguments->machine, arguments->profile);
    if (!arguments->json) say("{}{}", result.profile, bench::to_line(bench, result));
    say("{}\n", bench::to_json(bench, result));
  });
}

}  // namespace hearth::cli
