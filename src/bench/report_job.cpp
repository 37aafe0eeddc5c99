#include "bench/report_job.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/process.h"
#include "base/run_files.h"
#include "base/text.h"
#include "bench/open_workload.h"
#include "engine/plan_builder.h"
#include "exec/device/gpu_choice.h"
#include "planner/memory_fit.h"
#include "run/device_rates.h"

namespace hearth::bench {
namespace {

constexpr auto kModes = std::to_array<std::string_view>(
    {"pretrain", "posttrain", "finetune_fw", "finetune_lora", "finetune_qlora"});
/// FLUX's autoencoder: image pixels per latent along each axis, and channels of a latent.
constexpr int64_t kPixelsPerLatent = 8, kLatentChannels = 16;
/// Number of steps that AMD's benchmark runs.
constexpr int64_t kPretrainSteps = 50, kFinetuneSteps = 20;
/// LoRA rank on every linear layer, as in torchtune's recipes.
constexpr int64_t kRank = 8;
constexpr int64_t kMinLength = 16, kMinSide = 16, kMaxSide = 1024;
constexpr int64_t kNumClasses = 1000, kNumChannels = 3;
constexpr int64_t kMaxBatch = 65536;
/// Fraction of the free host memory that offloaded values may use.
constexpr double kHostShare = 0.9;

std::string_view mode_of(const std::string& name) {
  const auto* const found = std::ranges::find(kModes, name);
  if (found == kModes.end()) user_error("expected {} for -t, got '{}'", fmt::join(kModes, ", "), name);
  return *found;
}

/// Sets the precisions of a case. FP8: matmuls of transformer blocks in E4M3, the rest in bf16.
void set_precision(BenchCase& bench, std::string name) {
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  if (name != "BF16" && name != "FP32" && name != "FP8")
    user_error("expected BF16, FP32 or FP8 for -p, got '{}'", name);
  bench.precision = name == "FP32" ? DType::f32 : DType::bf16;
  if (name == "FP8") bench.matmul_precision = MatmulPrecision::fp8;
}

[[noreturn]] void refuse_model(const std::string& name) {
  std::vector<std::string> names;
  for (const ReportModel& model : report_models()) names.emplace_back(model.name);
  user_error(
      "there is no model '{}' and no such folder{}; hearth bench report --models lists the names, any folder "
      "with a config.json will do",
      name, did_you_mean(name, names));
}

/// Returns the folder's name, in which characters that are unsuitable for file names or CSV are replaced by
/// `_`.
std::string file_name_of(const fs::path& folder) {
  std::string name = fs::canonical(folder).filename().string();
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-') c = '_';
  }
  return name;
}

/// Returns the row length and batches for a model folder: those of Llama-3.1-8B in AMD's benchmark, with the
/// row length limited to the model's max number of positions.
ReportModel shape_of_folder(const models::DecoderConfig& decoder) {
  ReportModel shape = *find_report_model("Llama-3.1-8B");
  shape.length = std::min(shape.length, decoder.max_positions);
  return shape;
}

void check(const char* flag, int64_t value, int64_t min_value, int64_t max_value, const std::string& model) {
  if (value < min_value || value > max_value)
    user_error("expected {} to {} for {} of {}, got {}", min_value, max_value, flag, model, value);
}

void take_text(const ReportRequest& request, const ReportModel& shape, ReportJob& job) {
  BenchCase& bench = job.requested;
  if (job.mode == "posttrain") {
    user_error("expected pretrain, finetune_fw, finetune_lora or finetune_qlora for -t of {}, got '{}'",
               job.model, job.mode);
  }
  bench.decoder = job.decoder.get();
  bench.length = request.length > 0 ? request.length : shape.length;
  check("-s", bench.length, kMinLength, job.decoder->max_positions, job.model);
  if (job.mode == "finetune_lora" || job.mode == "finetune_qlora") bench.rank = kRank;
  if (job.mode == "finetune_qlora") bench.quantized = ops::Quantization::nf4;
  if (job.mode == "finetune_qlora" && bench.matmul_precision != MatmulPrecision::same)
    user_error("expected BF16 or FP32 for -p of -t finetune_qlora, whose weights are nf4, got FP8");
}

void take_images(const ReportRequest& request, const ReportModel& model, ReportJob& job) {
  if (job.mode != "pretrain") user_error("expected -t pretrain for {}, got {}", model.name, job.mode);
  if (request.primus) user_error("expected a language model for --format primus, got {}", model.name);
  BenchCase& bench = job.requested;
  if (bench.matmul_precision != MatmulPrecision::same)
    user_error("expected BF16 or FP32 for -p of {}, whose convolutions have no FP8 kernels, got FP8",
               model.name);
  bench.model = model.image_model;
  bench.channels = kNumChannels;
  bench.num_classes = kNumClasses;
  bench.length = request.length > 0 ? request.length : model.length;
  check("-s", bench.length, kMinSide, kMaxSide, job.model);
}

void take_latents(const ReportRequest& request, const ReportModel& model, ReportJob& job) {
  if (job.mode != "posttrain") user_error("expected -t posttrain for {}, got {}", model.name, job.mode);
  if (request.primus) user_error("expected a language model for --format primus, got {}", model.name);
  BenchCase& bench = job.requested;
  bench.model = model.denoiser;
  bench.channels = kLatentChannels;
  const int64_t pixels = request.length > 0 ? request.length : model.length;
  check("-s", pixels, 2 * kPixelsPerLatent, 2 * kMaxSide, job.model);
  if (pixels % (2 * kPixelsPerLatent) != 0)
    user_error("expected a multiple of {} for -s of {}, got {}", 2 * kPixelsPerLatent, job.model, pixels);
  job.pixels_per_length = kPixelsPerLatent;
  bench.length = pixels / kPixelsPerLatent;
}

engine::EngineOptions options_of(const ReportJob& job, const BenchCase& bench) {
  engine::EngineOptions options = engine_options(bench, job.machine);
  run::set_device_rates(options, job.machine.group);
  return options;
}

planner::PlanReport plan_unmodified(const ReportJob& job, const BenchCase& bench) {
  return planner::make_plan_report(
      engine::measure_plan(options_of(job, bench), std::span(&bench.batch, 1), {}));
}

/// Memory available to each device (worker) of a job.
struct MemoryLimits {
  int64_t device_bytes = 0;
  int64_t host_bytes = 0;  ///< host memory for offloaded values
};

/// Returns the memory available to each device. Of a GPU's share of host memory, the copy of weights and
/// states that the host keeps is subtracted. On the CPU and on integrated GPUs, which compute in host memory,
/// offloading gains nothing, so host_bytes is 0.
MemoryLimits memory_limits_of(const ReportJob& job, int64_t memory_bytes, const planner::PlanReport& plan) {
  const exec::GpuRequest wish{.device = job.machine.device};
  if (!exec::names_gpu(wish.device) || gpu::is_integrated(exec::find_gpu(wish.device)))
    return {memory_bytes, 0};
  const int64_t kept_bytes = plan.peak_bytes - plan.arena_bytes - plan.staging_bytes;
  const auto free = static_cast<int64_t>(kHostShare * static_cast<double>(available_memory_bytes()));
  return {memory_bytes, std::max<int64_t>(0, free / job.num_devices - kept_bytes)};
}

std::optional<ReportFit> fit_case(const ReportJob& job, BenchCase bench, const MemoryLimits& limits) {
  planner::MemoryFits fits(options_of(job, bench), limits.device_bytes, limits.host_bytes);
  const std::optional<planner::MemoryFit> found = fits.cheapest();
  if (!found) return std::nullopt;
  bench.arena_bytes = found->budget_bytes;
  bench.offload = found->offload;
  return ReportFit{.bench = bench, .plan = found->report, .how = planner::describe(*found), .refused = {}};
}

/// Returns the fit with the largest batch in [min_value, bench.batch), found by bisection; nothing if none
/// fits.
std::optional<ReportFit> fit_smaller(const ReportJob& job, BenchCase bench, int64_t min_value,
                                     const MemoryLimits& limits) {
  int64_t too_large = bench.batch;
  std::optional<ReportFit> best;
  for (int64_t fits = min_value - 1; fits + 1 < too_large;) {
    bench.batch = (fits + too_large) / 2;
    if (auto found = fit_case(job, bench, limits)) {
      best = std::move(found);
      fits = bench.batch;
    } else {
      too_large = bench.batch;
    }
  }
  return best;
}

std::string purposes_of(const planner::PlanReport& plan) {
  return fmt::format("weights {}, optimizer and state {}, arena {}",
                     human_bytes(plan.weight_bytes + plan.frozen_bytes), human_bytes(plan.optimizer_bytes),
                     human_bytes(plan.arena_bytes));
}

}  // namespace

std::string ReportJob::shape_of(const BenchCase& bench) const {
  const int64_t side = bench.length * pixels_per_length;
  if (!is_text) return fmt::format("batch {} of {} x {} pixels", bench.batch, side, side);
  return fmt::format("batch {} of {} tokens", bench.batch, bench.length);
}

ReportJob open_job(const ReportRequest& request) {
  ReportJob job{
      .mode = mode_of(request.mode), .num_devices = request.num_devices, .machine = request.machine};
  job.requested = {.name = "report"};
  set_precision(job.requested, request.precision);
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
        models::read_decoder_config(fs::path(request.model) / kModelConfig));
    shape = shape_of_folder(*job.decoder);
  }
  job.is_text = job.decoder != nullptr;
  if (job.is_text) {
    take_text(request, shape, job);
  } else if (!shape.denoiser.empty()) {
    take_latents(request, shape, job);
  } else {
    take_images(request, shape, job);
  }
  job.requested.batch = request.batch > 0     ? request.batch
                        : job.is_finetuning() ? shape.finetune_batch
                                              : shape.pretrain_batch;
  check("-b", job.requested.batch, job.min_batch(), kMaxBatch, job.model);
  job.steps = request.steps > 0 ? request.steps : job.is_finetuning() ? kFinetuneSteps : kPretrainSteps;
  return job;
}

ReportFit fit_job(const ReportJob& job, int64_t memory_bytes) {
  const planner::PlanReport refused = plan_unmodified(job, job.requested);
  const MemoryLimits limits = memory_limits_of(job, memory_bytes, refused);
  if (auto found = fit_case(job, job.requested, limits)) return *found;
  const int64_t min_value = job.min_batch();
  BenchCase bench = job.requested;
  std::optional<ReportFit> found;
  if (bench.batch > min_value) found = fit_smaller(job, bench, min_value, limits);
  bench.batch = min_value;
  while (!found && job.is_text && bench.length / 2 >= kMinLength) {
    bench.length /= 2;
    found = fit_case(job, bench, limits);
  }
  if (!found) {
    user_error(
        "the device has {0}, but {1} needs {2} for {3} ({4}), and nothing smaller fits; try a smaller model",
        human_bytes(memory_bytes), job.model, human_bytes(refused.peak_bytes), job.shape_of(job.requested),
        purposes_of(refused));
  }
  found->refused = refused;
  return *found;
}

}  // namespace hearth::bench
