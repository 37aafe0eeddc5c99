#include "cli/verb_bench_report.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "bench/report.h"
#include "cli/output.h"
#include "exec/device/gpu_choice.h"

namespace hearth::cli {
namespace {

struct Arguments {
  bench::ReportRequest request;
  std::string memory, format = "mad";
  bool models = false, json = false;
};

void print_models_as_json() {
  Json models = Json::array();
  for (const bench::ReportModel& model : bench::report_models()) {
    models.push_back({{"name", model.name},
                      {"length_unit", model.is_text() ? "tokens" : "pixels"},
                      {"length", model.length},
                      {"pretrain_batch", model.pretrain_batch},
                      {"finetune_batch", model.finetune_batch}});
  }
  print_json({{"models", models}});
}

Json to_json(const bench::ReportModeled& modeled) {
  return {{"gpu", modeled.gpu},
          {"step_seconds", modeled.step_seconds},
          {"samples_per_second", modeled.samples_per_second},
          {"flops_per_second", modeled.flops_per_second},
          {"mfu", modeled.mfu}};
}

Json to_json(const bench::ReportResult& result) {
  using run::Progress;
  const bench::ReportJob& job = result.job;
  const bench::BenchCase& bench = result.fit.bench;
  Json files = Json::array();
  for (const fs::path& file : result.files) files.push_back(file.string());
  return {{"model", job.model},
          {"mode", job.mode},
          {"precision", result.precision()},
          {"batch", bench.batch},
          {"length", bench.length * job.pixels_per_length},
          {"device", result.device},
          {"num_devices", job.num_devices},
          {"steps", job.steps},
          {"loss", result.steps.back().loss},
          {"step_seconds", result.step_seconds()},
          {"unit", result.steps.back().unit},
          {"samples_per_second", result.mean(&Progress::samples_per_second)},
          {"flops_per_second", result.mean(&Progress::tflops) * 1e12},
          {"mfu", result.mean(&Progress::mfu)},
          {"memory_bytes", result.steps.back().memory_bytes},
          {"modeled", result.modeled ? to_json(*result.modeled) : Json()},
          {"files", files}};
}

void print_models() {
  for (const bench::ReportModel& model : bench::report_models()) {
    say("{:<16} {} {}, batch {}{}\n", model.name, model.length, model.is_text() ? "tokens" : "pixels",
        model.denoiser.empty() ? model.pretrain_batch : model.finetune_batch,
        model.is_text() ? fmt::format(" (pretrain), {} (finetune)", model.finetune_batch) : "");
  }
}

void check(const char* flag, int64_t value, int64_t least, int64_t most) {
  if (value < least || value > most) user_error("expected {} to {} for {}, got {}", least, most, flag, value);
}

void run_bench_report(const CLI::App& verb, Arguments arguments) {
  if (arguments.models) return arguments.json ? print_models_as_json() : print_models();
  bench::ReportRequest& request = arguments.request;
  if (request.model.empty())
    user_error("-m is missing; give a model such as Llama-3.1-8B, or a folder with config.json");
  for (const char* flag : {"-s", "-b", "--steps"}) {
    const CLI::Option* option = verb.get_option(flag);
    if (option->count() > 0) check(flag, option->as<int64_t>(), 1, 1'000'000);
  }
  check("-n", request.num_devices, 1, 64);
  check("--threads", request.machine.num_threads, 1, 1024);
  if (request.machine.device != "cpu" && !exec::names_gpu(request.machine.device)) {
    user_error("expected cpu, gpu, gpu:0, gpu:0000:03:00.0 or emulated for --device, got '{}'",
               request.machine.device);
  }
  if (arguments.format != "mad" && arguments.format != "primus")
    user_error("expected mad or primus for --format, got '{}'", arguments.format);
  request.primus = arguments.format == "primus";
  if (!arguments.memory.empty()) {
    const std::optional<int64_t> bytes = parse_bytes(arguments.memory);
    if (!bytes || *bytes <= 0)
      user_error("expected a size like 20GiB for --memory, got '{}'", arguments.memory);
    request.memory_bytes = *bytes;
  }
  std::FILE* log = arguments.json ? stderr : stdout;
  const bench::ReportResult result = bench::run_report(request, [&](const std::string& text) {
    say(log, "{}", text);
    std::fflush(log);
  });
  if (arguments.json) print_json(to_json(result));
}

}  // namespace

void add_bench_report(CLI::App& bench) {
  const auto arguments = std::make_shared<Arguments>();
  bench::ReportRequest& request = arguments->request;
  request.machine.num_threads = num_available_cpus();
  CLI::App* verb = bench.add_subcommand("report",
                                        "Train a known model on random tokens or images and write the result "
                                        "files of AMD's training benchmark");
  verb->add_option(
      "-t,--mode", request.mode,
      "Training mode: pretrain (default), posttrain (Flux), finetune_fw, finetune_lora or finetune_qlora");
  verb->add_option("-m,--model", request.model,
                   "Model, e.g. Llama-3.1-8B or ResNet-50, or a folder with config.json");
  verb->add_option("-p,--precision", request.precision, "Precision: BF16 (default), FP32 or FP8");
  verb->add_option(
      "-s,--seq", request.length,
      "Sequence length in tokens, or side of the images in pixels (default: as in the benchmark)");
  verb->add_option("-b,--batch", request.batch, "Batch size per device (default: as in the benchmark)");
  verb->add_option("-n,--gpus", request.num_devices, "Number of GPUs, or of CPU processes (default 1)");
  verb->add_option("--steps", request.steps, "Number of training steps (default 50, for finetuning 20)");
  verb->add_option("--device", request.machine.device, "cpu (default), gpu, gpu:1, ... or emulated");
  verb->add_option("--threads", request.machine.num_threads,
                   "CPU threads of each process (default: all cores)");
  verb->add_option("--memory", arguments->memory,
                   "Plan for this amount of device memory, e.g. 20GiB (default: all of it)");
  verb->add_option(
      "--model-gpu", request.model_gpu,
      "GPU whose modeled results are printed next to the measured ones (default: the GPU that trains)");
  verb->add_option("--format", arguments->format,
                   "Format of the result table: mad (default, nine columns) or primus (three columns)");
  verb->add_option("--out", request.out, "Output folder (default: the current folder)");
  verb->add_flag("--models", arguments->models, "List the known models with their sizes");
  add_json(*verb, arguments->json);
  set_example(*verb, "hearth bench report -t pretrain -m Llama-15M -p BF16 -b 2 --steps 4 --out report");
  verb->callback([=] { run_bench_report(*verb, *arguments); });
}

}  // namespace hearth::cli
