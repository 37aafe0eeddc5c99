#include "bench/report_job.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "bench/open_workload.h"
#include "exec/device/gpu_choice.h"
#include "planner/memory_fit.h"
#include "run/device_rates.h"

namespace hearth::bench {
namespace {

constexpr std::array<std::string_view, 4> kModes = {"pretrain", "finetune_fw", "finetune_lora",
                                                    "finetune_qlora"};
/// Of AMD's benchmark.
constexpr int64_t kPretrainSteps = 50, kFinetuneSteps = 20;
/// Of a LoRA on every linear layer, as torchtune's recipes have it.
constexpr int64_t kRank = 8;
constexpr int64_t kLeastLength = 16, kLeastSide = 32, kMostSide = 1024;
constexpr int64_t kNumClasses = 1000, kNumChannels = 3;
constexpr int64_t kMostBatch = 65536;

std::string_view mode_of(const std::string& name) {
  const auto* const found = std::ranges::find(kModes, name);
  if (found == kModes.end()) user_error("expected {} for -t, got '{}'", fmt::join(kModes, ", "), name);
  return *found;
}

DType precision_of(std::string name) {
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  if (name == "BF16") return DType::bf16;
  if (name == "FP32") return DType::f32;
  if (name == "FP8")
    user_error("expected BF16 or FP32 for -p, got FP8: Hearth has no training in 8 bits; try -p BF16");
  user_error("expected BF16 or FP32 for -p, got '{}'", name);
}

[[noreturn]] void refuse_model(const std::string& name) {
  std::vector<std::string> names;
  for (const ReportModel& model : report_models()) names.emplace_back(model.name);
  user_error(
      "there is no model '{}' and no such folder{}; hearth bench report --models lists the names, any folder "
      "with a config.json will do",
      name, did_you_mean(name, names));
}

/// A folder's name, as it may stand in the name of a file and in a table with commas.
std::string file_name_of(const fs::path& folder) {
  std::string name = fs::canonical(folder).filename().string();
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-') c = '_';
  }
  return name;
}

/// Those of a folder have the shape that AMD's benchmark gives Llama-3.1-8B.
ReportModel shape_of_folder(const models::DecoderConfig& decoder) {
  ReportModel shape = *find_report_model("Llama-3.1-8B");
  shape.length = std::min(shape.length, decoder.max_positions);
  return shape;
}

void check(const char* flag, int64_t value, int64_t least, int64_t most, const std::string& model) {
  if (value < least || value > most)
    user_error("expected {} to {} for {} of {}, got {}", least, most, flag, model, value);
}

void take_text(const ReportRequest& request, const ReportModel& shape, ReportJob& job) {
  BenchCase& bench = job.asked;
  bench.decoder = job.decoder.get();
  bench.length = request.length > 0 ? request.length : shape.length;
  check("-s", bench.length, kLeastLength, job.decoder->max_positions, job.model);
  if (job.mode == "finetune_lora" || job.mode == "finetune_qlora") bench.rank = kRank;
  if (job.mode == "finetune_qlora") bench.quantized = ops::Quantization::nf4;
}

void take_images(const ReportRequest& request, const ReportModel& model, ReportJob& job) {
  if (job.tunes()) user_error("expected -t pretrain for {}, got {}", model.name, job.mode);
  if (request.primus) user_error("expected a language model for --format primus, got {}", model.name);
  BenchCase& bench = job.asked;
  bench.model = model.image_model;
  bench.channels = kNumChannels;
  bench.num_classes = kNumClasses;
  bench.length = request.length > 0 ? request.length : model.length;
  check("-s", bench.length, kLeastSide, kMostSide, job.model);
}

engine::EngineOptions options_of(const ReportJob& job, const BenchCase& bench) {
  engine::EngineOptions options = engine_options(bench, job.machine);
  run::use_device_rates(options, job.machine.group);
  return options;
}

std::optional<ReportFit> fit_case(const ReportJob& job, BenchCase bench, int64_t memory_bytes) {
  planner::MemoryFits fits(options_of(job, bench), memory_bytes, exec::names_gpu(job.machine.device));
  const std::optional<planner::MemoryFit> found = fits.cheapest();
  if (!found) return std::nullopt;
  bench.arena_bytes = found->budget_bytes;
  bench.offload = found->offload;
  return ReportFit{.bench = bench, .plan = found->report, .how = planner::describe(*found), .refused = {}};
}

/// The largest batch below that of `bench`, from `least` on.
std::optional<ReportFit> fit_smaller(const ReportJob& job, BenchCase bench, int64_t least,
                                     int64_t memory_bytes) {
  const int64_t most = bench.batch - 1;
  bench.batch = least;
  planner::MemoryFits fits(options_of(job, bench), memory_bytes, exec::names_gpu(job.machine.device));
  const std::optional<planner::PlanReport> largest = fits.largest_by_every_means();
  if (!largest) return std::nullopt;
  for (bench.batch = std::min(most, largest->batch); bench.batch >= least; --bench.batch) {
    if (auto found = fit_case(job, bench, memory_bytes)) return found;
  }
  return std::nullopt;
}

planner::PlanReport plan_as_it_is(const ReportJob& job, const BenchCase& bench) {
  return planner::make_plan_report(engine::measure(options_of(job, bench), std::span(&bench.batch, 1), {}));
}

}  // namespace

std::string ReportJob::shape_of(const BenchCase& bench) const {
  if (!is_text) return fmt::format("batch {} of {} x {} pixels", bench.batch, bench.length, bench.length);
  return fmt::format("batch {} of {} tokens", bench.batch, bench.length);
}

ReportJob open_job(const ReportRequest& request) {
  ReportJob job{
      .mode = mode_of(request.mode), .num_devices = request.num_devices, .machine = request.machine};
  job.asked = {.name = "report", .precision = precision_of(request.precision)};
  const ReportModel* named = find_report_model(request.model);
  ReportModel shape;
  if (named != nullptr) {
    shape = *named;
    job.model = named->name;
    if (named->is_text()) job.decoder = std::make_shared<models::DecoderConfig>(decoder_config(*named));
  } else {
    if (!fs::is_directory(request.model)) refuse_model(request.model);
    job.model = file_name_of(request.model);
    job.decoder = std::make_shared<models::DecoderConfig>(
        models::read_decoder_config(fs::path(request.model) / "config.json"));
    shape = shape_of_folder(*job.decoder);
  }
  job.is_text = job.decoder != nullptr;
  if (job.is_text) {
    take_text(request, shape, job);
  } else {
    take_images(request, shape, job);
  }
  job.asked.batch = request.batch > 0 ? request.batch
                    : job.tunes()     ? shape.finetune_batch
                                      : shape.pretrain_batch;
  // Batch norm over a single image of one pixel has no variance.
  check("-b", job.asked.batch, job.is_text ? 1 : 2, kMostBatch, job.model);
  job.steps = request.steps > 0 ? request.steps : job.tunes() ? kFinetuneSteps : kPretrainSteps;
  return job;
}

ReportFit fit_job(const ReportJob& job, int64_t memory_bytes) {
  if (auto found = fit_case(job, job.asked, memory_bytes)) return *found;
  const planner::PlanReport refused = plan_as_it_is(job, job.asked);
  const int64_t least = job.is_text ? 1 : 2;
  BenchCase bench = job.asked;
  std::optional<ReportFit> found;
  if (bench.batch > least) found = fit_smaller(job, bench, least, memory_bytes);
  bench.batch = least;
  while (!found && job.is_text && bench.length / 2 >= kLeastLength) {
    bench.length /= 2;
    found = fit_case(job, bench, memory_bytes);
  }
  if (!found) {
    user_error(
        "expected a plan of at most {} for {}, got {} for {} and nothing smaller that fits:\n{}try a smaller "
        "model",
        human_bytes(memory_bytes), job.model, human_bytes(refused.peak_bytes), job.shape_of(job.asked),
        planner::to_table(refused));
  }
  found->refused = refused;
  return *found;
}

}  // namespace hearth::bench
