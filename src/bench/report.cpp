#include "bench/report.h"

#include <algorithm>
#include <new>

#include "arena/draw.h"
#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "bench/open_workload.h"
#include "bench/report_files.h"
#include "distributed/shm/shm.h"
#include "exec/device/gpu.h"
#include "planner/step_model.h"
#include "run/device_rates.h"
#include "run/step_line.h"

namespace hearth::bench {
namespace {

using Say = std::function<void(const std::string&)>;

/// Usable fraction of free memory. Plans do not account for fragmentation, which takes part of the rest.
constexpr double kUsableShare = 0.97;

/// Returns the prefix of the names of all files of a report.
std::string stem_of(const ReportJob& job) { return fmt::format("{}-{}", job.model, job.mode); }

/// Output files that are written while the job runs.
class ReportFiles {
 public:
  ReportFiles(const ReportRequest& request, const ReportJob& job, const Say& say) : say_(say) {
    make_folder(request.out);
    paths_ = {request.out / (stem_of(job) + ".log")};
    log_.emplace(paths_.back());
    if (!job.is_text || !job.is_finetuning()) return;
    const fs::path path = request.out / (stem_of(job) + ".txt");
    torchtune_.emplace(path);
    paths_.push_back(path);
    put(fmt::format("Writing logs to {}\n", path.string()));
  }
  /// Writes `text`, one or more complete lines, to the log and to the user.
  void put(const std::string& text) {
    log_->write(text);
    say_(text);
  }
  void put_step(const run::Progress& step) {
    char line[320];
    const size_t size = run::write_step_line(line, sizeof(line), step);
    put(std::string(line, std::min(size, sizeof(line))));
    if (torchtune_) torchtune_->write(to_torchtune_line(step));
  }
  void close() {
    log_->sync_and_close();
    if (torchtune_) torchtune_->sync_and_close();
  }
  const std::vector<fs::path>& paths() const { return paths_; }

 private:
  const Say& say_;
  std::optional<FileWriter> log_, torchtune_;
  std::vector<fs::path> paths_;
};

int rank_of(const ReportJob& job) { return job.machine.group == nullptr ? 0 : job.machine.group->rank(); }

/// Returns the memory in bytes that each device can use for a job: the minimum over all workers.
int64_t usable_bytes(const ReportRequest& request, const ReportJob& job) {
  distributed::ProcessGroup* group = job.machine.group;
  int64_t bytes = 0;
  if (exec::names_gpu(job.machine.device)) {
    const exec::Gpu gpu({.device = job.machine.device, .number = rank_of(job)});
    bytes = gpu.usable_bytes(0) - exec::Gpu::kSlackBytes;
  } else {
    bytes = available_memory_bytes() / job.num_devices;
  }
  bytes = static_cast<int64_t>(kUsableShare * static_cast<double>(bytes));
  if (request.memory_bytes > 0) bytes = std::min(bytes, request.memory_bytes);
  if (group == nullptr) return bytes;
  std::vector<int64_t> all(static_cast<size_t>(group->size()));
  group->all_gather(std::as_bytes(std::span(&bytes, 1)), std::as_writable_bytes(std::span(all)));
  return *std::ranges::min_element(all);
}

/// Returns the FLOP per step and device that `tflops` is computed from: torchtitan's count for text modes
/// without LoRA; otherwise this program's count.
double counted_flops(const ReportResult& result) {
  const BenchCase& bench = result.fit.bench;
  if (!result.job.is_text || bench.rank > 0) return result.flops_per_step;
  return static_cast<double>(bench.batch) *
         torchtitan_flops(*result.job.decoder, result.fit.plan.num_parameters, bench.length);
}

/// Returns the cost model's prediction for the requested GPU, by default the one that trains; nothing if that
/// GPU is unknown.
std::optional<ReportModeled> model_of(const ReportRequest& request, const ReportJob& job,
                                      const BenchCase& bench, const gpu::DeviceInfo* gpu) {
  const cost::Device* device = gpu == nullptr ? nullptr : cost::find_gpu_by_driver_name(gpu->name);
  if (!request.model_gpu.empty()) device = &cost::find_gpu(request.model_gpu);
  if (device == nullptr) return std::nullopt;
  BenchMachine machine = job.machine;
  machine.device = "cpu";
  const planner::StepModel model = planner::model_step(engine_options(bench, machine), *device);
  const double flops = model.roofline.flops - model.recomputed_flops;
  return ReportModeled{.gpu = device->name,
                       .step_seconds = model.roofline.seconds,
                       .samples_per_second = model.samples_per_second() / job.num_devices,
                       .flops_per_second = flops / model.roofline.seconds,
                       .mfu = model.mfu()};
}

std::string device_of(const ReportJob& job) {
  if (!exec::names_gpu(job.machine.device)) return "cpu";
  return exec::find_gpu(job.machine.device, rank_of(job)).name;
}

std::string describe(const ReportResult& result, int64_t memory_bytes) {
  const ReportFit& fit = result.fit;
  std::string text;
  if (fit.refused) {
    text = fmt::format("{} was requested, but needs {} of the {} that {} has for it:\n{}",
                       result.job.shape_of(result.job.requested), human_bytes(fit.refused->peak_bytes),
                       human_bytes(memory_bytes), result.device, planner::to_table(*fit.refused));
  }
  return text + fmt::format("{} runs on {} ({}), {}:\n{}", result.job.shape_of(fit.bench), result.device,
                            human_bytes(memory_bytes), fit.how, planner::to_table(fit.plan));
}

void train(ReportResult& result, Workload& work, ReportFiles* files) {
  const gpu::DeviceInfo* gpu = work.gpu();
  const int64_t memory_bytes = gpu != nullptr ? work.gpu_bytes() : work.plan()->memory_bytes();
  const int64_t device_bytes = gpu != nullptr ? gpu->memory_bytes : total_memory_bytes();
  result.flops_per_step = work.flops() / result.job.num_devices;
  const double flops = counted_flops(result);
  double total = 0;
  for (int64_t step = 1; step <= result.job.steps; ++step) {
    const double seconds = work.run(step - 1);
    total += seconds;
    result.steps.push_back(
        {.step = step,
         .total_steps = result.job.steps,
         .loss = work.last().loss,
         .learning_rate = kBenchRate,
         .grad_norm = work.last().grad_norm,
         .samples_per_second = static_cast<double>(result.samples_per_step()) / seconds,
         .unit = result.job.is_text ? "tokens" : "images",
         .tflops = flops / seconds * 1e-12,
         .memory_bytes = memory_bytes,
         .device_bytes = device_bytes,
         .mfu = run::fraction_of_peak(flops / seconds, gpu, result.job.requested.precision,
                                      result.job.requested.matmul_precision),
         .eta_seconds = total / static_cast<double>(step) * static_cast<double>(result.job.steps - step)});
    if (files != nullptr) files->put_step(result.steps.back());
  }
}

void write_results(const ReportRequest& request, ReportResult& result) {
  const auto write = [&](const std::string& name, const std::string& text) {
    result.files.push_back(request.out / name);
    write_file_atomically(result.files.back(), text);
  };
  if (request.primus) {
    write("primus_perf_output.csv", to_primus_csv(result));
  } else {
    write(fmt::format("perf_{}.csv", result.job.model), to_csv(result));
  }
  if (!result.job.is_text) write("runs_summary.csv", to_runs_summary(result));
  write(stem_of(result.job) + ".html", to_page(result));
}

std::unique_ptr<Workload> open_fitting(const ReportResult& result) {
  try {
    return open_workload(result.fit.bench, result.job.machine);
  } catch (const std::bad_alloc&) {
    user_error(
        "host memory is too small for the weights and states of {}, which are needed in addition to those on "
        "{}; try a smaller model",
        result.job.model, result.device);
  }
}

/// Runs one worker and returns its result. Only rank 0 writes files, calls `say` and completes the result.
ReportResult run_worker(const ReportRequest& request, const ReportJob& job, const Say& say) {
  const bool leads = rank_of(job) == 0;
  const int64_t memory_bytes = usable_bytes(request, job);
  ReportResult result{.job = job, .fit = fit_job(job, memory_bytes), .device = device_of(job)};
  std::optional<ReportFiles> files;
  if (leads) files.emplace(request, job, say);
  if (leads) files->put(describe(result, memory_bytes));
  const std::unique_ptr<Workload> work = open_fitting(result);
  result.on_gpu = work->gpu() != nullptr;
  train(result, *work, leads ? &*files : nullptr);
  if (!leads) return result;
  result.modeled = model_of(request, job, result.fit.bench, work->gpu());
  if (job.machine.group == nullptr) result.profile = work->profile(1);
  const exec::Program& program = work->plan()->train_program();
  result.arena_svg = arena::draw_svg(program.problem, program.solution);
  if (job.is_text && job.is_finetuning()) files->put(to_torchtune_summary(result));
  files->put(to_table(result) + to_performance_line(result));
  files->close();
  result.files = files->paths();
  write_results(request, result);
  return result;
}

void check_group(const ReportJob& job) {
  const std::string& device = job.machine.device;
  if (!exec::names_gpu(device)) return;
  if (device.find(':') != std::string::npos)
    user_error("expected --device gpu or emulated for -n {}, got {}", job.num_devices, device);
  const int64_t found = std::ssize(exec::list_gpus(device));
  if (found < job.num_devices)
    user_error("expected {} GPUs for -n {}, got {}", job.num_devices, job.num_devices, found);
}

}  // namespace

ReportResult run_report(const ReportRequest& request, const Say& say) {
  const ReportJob job = open_job(request);
  if (!request.model_gpu.empty()) cost::find_gpu(request.model_gpu);
  if (job.num_devices == 1) return run_worker(request, job, say);
  std::optional<ReportResult> result;
  distributed::run_ranks(job.num_devices, [&](distributed::ProcessGroup& group) {
    // Called after forking, because a process that has loaded a GPU driver must not fork.
    check_group(job);
    ReportJob own = job;
    own.machine.group = &group;
    result = run_worker(request, own, say);
  });
  result->job.machine.group = nullptr;
  return *std::move(result);
}

}  // namespace hearth::bench
