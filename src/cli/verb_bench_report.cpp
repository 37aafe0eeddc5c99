#include "cli/verb_bench_report.h"

#include <memory>
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
  bool models = false;
};

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
  if (arguments.models) return print_models();
  bench::ReportRequest& request = arguments.request;
  if (request.model.empty())
    user_error("expected -m, a model such as Llama-3.1-8B or a folder with config.json, got none");
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
  bench::run_report(request, [](const std::string& text) {
    say("{}", text);
    std::fflush(stdout);
  });
}

}  // namespace

void add_bench_report(CLI::App& bench) {
  const auto arguments = std::make_shared<Arguments>();
  bench::ReportRequest& request = arguments->request;
  request.machine.num_threads = num_available_cpus();
  CLI::App* verb = bench.add_subcommand(
      "report",
      "Train a known model on random tokens or pictures and write the files of AMD's training benchmark");
  verb->add_option("-t,--mode", request.mode,
                   "pretrain (default), posttrain (Flux), finetune_fw, finetune_lora or finetune_qlora");
  verb->add_option("-m,--model", request.model,
                   "such as Llama-3.1-8B or ResNet-50, or a folder with config.json");
  verb->add_option("-p,--precision", request.precision, "BF16 (default) or FP32");
  verb->add_option("-s,--seq", request.length,
                   "tokens of a row, or the side of an image (default: the benchmark's)");
  verb->add_option("-b,--batch", request.batch, "rows of each device (default: the benchmark's)");
  verb->add_option("-n,--gpus", request.num_devices, "devices, or processes of the CPU (default 1)");
  verb->add_option("--steps", request.steps, "training steps (default 50, of finetuning 20)");
  verb->add_option("--device", request.machine.device, "cpu (default), gpu, gpu:1, ... or emulated");
  verb->add_option("--threads", request.machine.num_threads, "threads of each process");
  verb->add_option("--memory", arguments->memory,
                   "plan as if a device had no more than this, for example 20GiB");
  verb->add_option("--model-gpu", request.model_gpu,
                   "a GPU whose modeled figures stand beside the measured (default: the one that trains)");
  verb->add_option("--format", arguments->format,
                   "of the results: mad (default, nine columns) or primus (three)");
  verb->add_option("--out", request.out, "folder of the files (default: this one)");
  verb->add_flag("--models", arguments->models, "list the models that have names, with their shapes");
  set_example(*verb, "hearth bench report -t pretrain -m Llama-15M -p BF16 -b 2 --steps 4 --out report");
  verb->callback([=] { run_bench_report(*verb, *arguments); });
}

}  // namespace hearth::cli
