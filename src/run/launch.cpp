// Start of a run. Three cases: (1) train_supervised(): this process becomes a supervisor, which forks the
// workers and restarts them. (2) train_alone(): this process is the only worker, or one of the workers that
// mpirun started. (3) A check (only_checks) on one device runs in this process. In every case run_worker()
// constructs the Trainer. The supervisor must fork before any thread or GPU context exists, so nothing here
// may create one before.
#include "run/launch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/output.h"
#include "base/run_files.h"
#include "base/text.h"
#include "cost/seconds.h"
#include "distributed/nccl/nccl.h"
#include "distributed/probe.h"
#include "exec/device/display.h"
#include "exec/device/gpu_choice.h"
#include "hub/adapter.h"
#include "hub/weights.h"
#include "io/run_lock.h"
#include "loggers/processes.h"
#include "planner/long_wait.h"
#include "planner/plan_report.h"
#include "recipe/resume.h"
#include "run/device_rates.h"
#include "run/ending.h"
#include "run/from_recipe.h"
#include "run/launched.h"
#include "run/resolve.h"
#include "run/stage_devices.h"
#include "run/trainer.h"
#include "supervise/device_probe.h"
#include "supervise/supervisor.h"

namespace hearth::run {
namespace {

std::atomic<bool> stop_requested{false};

/// Signal handler. The first signal requests that the run ends after the current step with a checkpoint. The
/// second one exits immediately, except for SIGHUP, which may arrive twice when a terminal closes (from the
/// shell and the kernel).
void on_interrupt(int signal) {
  if (stop_requested.exchange(true) && signal != SIGHUP) _exit(130);
}

/// Returns a sentence with the predicted time of an update if it is long (planner::long_wait), otherwise "".
std::string wait_of(const engine::Engine& engine) {
  const engine::EngineOptions& options = engine.plan().options;
  const double seconds = cost::simulate(engine.plan().train_program().graph, options.device).seconds;
  return planner::long_wait("an update", seconds * static_cast<double>(options.accumulate) /
                                             static_cast<double>(options.num_workers));
}

void warn(const tasks::Task& task, Reporter& reporter) {
  for (const std::string& warning : {task.warning(), task.training_warning()})
    if (!warning.empty()) reporter.message(warning);
}

/// Prints the class names of an image model; if there are many, only the first ones.
void print_classes(const recipe::Recipe& recipe, Reporter& reporter) {
  constexpr size_t kMaxShown = 12;
  const std::vector<std::string>& names = recipe.model.class_names;
  if (names.empty()) return;
  reporter.message(fmt::format("{} classes: {}", names.size(), listed(names, kMaxShown)));
}

void print_start(const Trainer& trainer, engine::Engine& engine, const LaunchOptions& options,
                 Reporter& reporter) {
  const recipe::Recipe& recipe = options.job.recipe;
  reporter.message("run folder: " + options.out);
  for (const std::string& note : options.notes) reporter.message(note);
  print_classes(trainer.recipe(), reporter);
  int64_t parameters = 0, all = 0;
  for (const nn::Tensor& tensor : engine.plan().tensors) {
    const int64_t count = tensor.layout.file_shape.num_elements();
    all += count;
    if (tensor.trainable) parameters += count;
  }
  reporter.message(fmt::format("{}: {} parameters, {} on {} threads; {}", recipe::model_name(recipe),
                               parameters, recipe::precision_name(recipe), engine.threads().size(),
                               trainer.task().describe()));
  warn(trainer.task(), reporter);
  if (hub::has_adapter(engine)) {
    reporter.message(fmt::format("trainable params: {} || all params: {} || trainable%: {:.4f}", parameters,
                                 all, 100 * static_cast<double>(parameters) / static_cast<double>(all)));
  }
  reporter.message(fmt::format("global batch {} = {} x {}; planned: arena {}, weights and state {}",
                               recipe.train.batch * recipe.train.accumulate, recipe.train.batch,
                               recipe.train.accumulate, human_bytes(engine.plan().arena_bytes),
                               human_bytes(engine.plan().kept_bytes())));
  if (const std::vector<int64_t> stages = engine.plan().stage_parameters; !stages.empty())
    reporter.message(fmt::format(
        "pipeline: stages of {} weights{}", fmt::join(stages, " and "),
        engine.plan().options.row_lengths.size() > 1
            ? "; with rows of several lengths only one stage works at a time; set data.packing=true"
            : ""));
  if (const std::string wait = engine.device().gpu ? "" : wait_of(engine); !wait.empty())
    reporter.message(wait);
  const std::string warning = exec::override_warning(std::getenv("HSA_OVERRIDE_GFX_VERSION"));
  if (engine.device().gpu != nullptr && !warning.empty()) reporter.message("warning: " + warning);
  const engine::DeviceReport device = engine.device();
  if (const gpu::DeviceInfo* gpu = device.gpu) {
    const exec::Program& program = engine.plan().train_program();
    reporter.message(
        fmt::format("on {} ({}): {} of {} nodes of a step have no kernel for this GPU and run on the CPU",
                    gpu->name, gpu->pci_address, program.num_host_nodes, program.graph.nodes.size()));
    for (const auto& [kernel, what] : device.failed_kernels)
      reporter.message(fmt::format("kernel not used, because it failed its self-test: {}: {}", kernel, what));
    for (const std::string& way : device.rejected_matmuls)
      reporter.message("matmul implementation not used: " + way);
    for (const std::string& note : device.replaced_matmuls) reporter.message(note);
    if (const std::string freeze = exec::display_warning(*gpu, program); !freeze.empty())
      reporter.message("warning: " + freeze);
  }
}

void print_end(const RunSummary& summary, const LaunchOptions& options, const engine::Engine& engine,
               Reporter& reporter) {
  if (summary.interrupted) {
    reporter.message(
        fmt::format("stopped at step {}; resume with: hearth resume {}", summary.steps, options.out));
    return;
  }
  reporter.message(fmt::format("done: {} steps in {:.1f} s, best validation {}", summary.steps,
                               summary.seconds, summary.best));
  reporter.message(
      fmt::format("run folder: {} (report.html, {}, {})", options.out, hub::weights_name(engine), kLogFile));
  if (!summary.last_line.empty()) reporter.message(summary.last_line);
}

/// Prints the result of a check: data, memory plan and predicted time.
void describe(Trainer& trainer, const recipe::Recipe& recipe, Reporter& reporter) {
  reporter.message(trainer.task().describe());
  warn(trainer.task(), reporter);
  planner::PlanReport plan = planner::make_plan_report(trainer.engine().plan());
  plan.kept_bytes = recipe.data.keep_images;
  const std::string table = planner::to_table(plan);
  reporter.message(fmt::format("{} at micro-batch {}:\n{}", recipe::model_name(recipe), recipe.train.batch,
                               std::string_view(table).substr(0, table.size() - 1)));
  engine::Engine& engine = trainer.engine();
  if (const std::string wait = engine.device().gpu ? "" : wait_of(engine); !wait.empty())
    reporter.message(wait);
}

int check_only(Trainer& trainer, distributed::ProcessGroup* group, const LaunchOptions& options,
               Reporter& reporter) {
  const bool leads = group == nullptr || group->rank() == 0;
  // The first barrier releases the other ranks, which wait in run_worker() until rank 0 has written the
  // cached data. The second one keeps all ranks alive until each has loaded the weights.
  if (group != nullptr && leads) group->barrier();
  trainer.load_initial_weights();
  if (group != nullptr) group->barrier();
  if (leads)
    for (const std::string& note : options.notes) reporter.message(note);
  if (leads) describe(trainer, options.job.recipe, reporter);
  return supervise::kDone;
}

void check_group(distributed::ProcessGroup& group) {
  if (const std::string fault = distributed::find_fault(group); !fault.empty())
    user_error("the self-test of communication between the workers failed: {}", fault);
}

/// Returns a process group that all-reduces on the GPUs with NCCL or RCCL, if the recipe requests it and the
/// library passes its test; otherwise null. Prints which transport is used.
std::shared_ptr<distributed::ProcessGroup> open_gpu_group(const recipe::Recipe& recipe,
                                                          distributed::ProcessGroup& group, int number,
                                                          Reporter& reporter) {
  if (recipe.exchange.transport == recipe::Transport::host) return nullptr;
  distributed::OpenedNccl opened = distributed::open_nccl(group, exec::find_gpu(recipe.device, number));
  if (group.rank() > 0) return opened.group;
  reporter.message(
      opened.group
          ? fmt::format("gradients are all-reduced between GPUs with NCCL or RCCL {} (order not fixed: "
                        "results depend on "
                        "the number of GPUs)",
                        opened.version)
          : fmt::format("gradients are all-reduced through host memory, not between GPUs: {}", opened.fault));
  return opened.group;
}

/// Runs a worker in this process and returns the exit status. `group`: null for a single worker; `memory`:
/// storage of checkpoints in memory, from which a restarted worker resumes; null: none.
int run_worker(const LaunchOptions& options, const supervise::WorkerContext& worker_context,
               distributed::ProcessGroup* group, const io::CheckpointMemory* memory = nullptr) {
  if (group != nullptr) check_group(*group);
  const bool leads = group == nullptr || group->rank() == 0,
             resume = options.resume || worker_context.attempt > 1;
  const std::unique_ptr<Reporter> reporter = options.open_reporter(worker_context.heartbeat);
  const std::shared_ptr<distributed::ProcessGroup> gpus =
      group == nullptr ? nullptr
                       : open_gpu_group(options.job.recipe, *group, worker_context.device, *reporter);
  if (gpus != nullptr) group = gpus.get();
  WorkerSetup member{.group = group, .device = worker_context.device};
  if (group != nullptr && options.job.recipe.parallel == Parallel::pipeline)
    member.devices = gather_stage_devices(stage_device(options.job.recipe, worker_context.device), *group);
  // This collective is called here, not in the constructor of Trainer, because the leader constructs its
  // trainer before the other workers do.
  if (group != nullptr)
    member.rates =
        slowest_gpu({.device = options.job.recipe.device, .number = worker_context.device}, *group);
  std::optional<io::RunLock> lock;
  // Locks the run folder. The lock of a killed worker may be released with a delay, so a resumed run waits
  // for up to 5 s.
  const auto lock_folder = [&] {
    if (leads && !lock && !options.only_checks) lock.emplace(options.out, resume ? 5.0 : 0.0);
  };
  // The other workers wait until the leader has constructed its trainer, which writes the cached data that
  // all workers read.
  if (!leads) group->barrier();
  if (fs::exists(options.out)) lock_folder();
  TrainerEvents events{.progress = [&](const Progress& p) { reporter->progress(p); },
                       .message =
                           [&](const std::string& text) {
                             if (leads) reporter->message(text);
                           },
                       .stop = worker_context.stop,
                       .heartbeat = worker_context.heartbeat,
                       .memory = memory,
                       .gpus = worker_context.gpus,
                       .warning =
                           [&](const std::string& text) {
                             reporter->warn(group == nullptr
                                                ? text
                                                : fmt::format("device {}: {}", worker_context.device, text));
                           }};
  Trainer trainer(options.job, options.out, std::move(events), std::move(member),
                  options.only_checks ? Use::check : Use::run);
  if (options.only_checks) return check_only(trainer, group, options, *reporter);
  if (const gpu::DeviceInfo* gpu = trainer.engine().device().gpu;
      gpu != nullptr && worker_context.gpus != nullptr)
    worker_context.gpus->use(worker_context.rank, gpu->pci_address);
  if (leads && worker_context.attempt == 1) print_start(trainer, trainer.engine(), options, *reporter);
  if (leads && !options.dump_gradients.empty()) trainer.dump_gradients(options.dump_gradients);
  make_folder(options.out);
  lock_folder();
  if (leads && group != nullptr) group->barrier();
  const RunSummary summary = trainer.run({.resume = resume,
                                          .new_order = worker_context.new_order,
                                          .reason = worker_context.reason,
                                          .accepts_changed_inputs = options.accepts_changed_inputs,
                                          .command = options.command});
  if (leads) print_end(summary, options, trainer.engine(), *reporter);
  return summary.interrupted ? supervise::kInterrupted : supervise::kDone;
}

int train_alone(const LaunchOptions& options) {
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
  // Ignores SIGHUP if it was ignored before (nohup).
  if (std::signal(SIGHUP, on_interrupt) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
  const auto group = open_mpi_group(options.job.recipe.devices);
  if (group == nullptr) return run_worker(options, {.stop = &stop_requested}, nullptr);
  const supervise::WorkerContext worker_context{.device = group->rank(), .stop = &stop_requested};
  const ExitStatus ending = exit_status_of([&] { return run_worker(options, worker_context, group.get()); });
  // After an error, exits without the destructor of the group: its MPI_Finalize would wait for the other
  // processes, which wait for this one.
  if (!ending.error_message.empty()) _exit(options.print_error(ending));
  return ending.status;
}

/// Tests a GPU (probe_gpu) and prints the fault if the test fails. Returns true if it passes.
bool passes_probe(const LaunchOptions& options, int device) {
  const ExitStatus ending = exit_status_of([&] {
    const std::string fault = supervise::probe_gpu({.device = options.job.recipe.device, .number = device});
    if (!fault.empty()) options.open_reporter({})->warn(fmt::format("device {}: {}", device, fault));
    return fault.empty() ? supervise::kDone : supervise::kMistake;
  });
  return options.print_error(ending) == supervise::kDone;
}

int train_supervised(const LaunchOptions& options, const loggers::LoggerProcesses& loggers) {
  const std::unique_ptr<Reporter> reporter = options.open_reporter({});
  // The supervisor owns the checkpoints in memory, so that they outlive the workers.
  const io::CheckpointMemory memory;
  const auto work = [&](const supervise::WorkerContext& worker_context) {
    const auto group =
        worker_context.group == nullptr ? nullptr : worker_context.group->open(worker_context.rank);
    const ExitStatus ending =
        exit_status_of([&] { return run_worker(options, worker_context, group.get(), &memory); });
    // All workers detect the same user error. Only the first worker that reports it prints the message.
    const bool was_printed = ending.status == supervise::kMistake && worker_context.said->exchange(true);
    // The supervisor reports all other failures.
    if (ending.status == supervise::kMistake && !was_printed) loggers.report_failure(ending.error_message);
    return was_printed ? ending.status : options.print_error(ending);
  };
  supervise::SupervisorOptions supervisor{
      .size = static_cast<int>(options.job.recipe.devices),
      .say = [&](const std::string& text) { reporter->warn(text); },
      .report_failure = [&](const std::string& text) { loggers.report_failure(text); },
      .num_workers =
          [&](int num_devices) { return recipe::num_usable_devices(options.job.recipe, num_devices); }};
  if (options.job.recipe.device != recipe::kCpu) {
    supervisor.probe = [&](int device) { return passes_probe(options, device); };
    supervisor.watch_gpus = true;
    supervisor.limits = options.governor;
    supervisor.limits.limit = options.job.recipe.thermal.limit;
    supervisor.limits.power_limit = options.job.recipe.power.limit;
    supervisor.sensors = options.sensors;
  }
  return supervise::supervise(work, supervisor);
}

/// Throws a UserError if a new run in this folder would overwrite a run or a model.
void check_no_overwrite(const fs::path& folder) {
  const bool has_checkpoints = !list_folder(folder / kCheckpoints).empty();
  if (!has_checkpoints && !path_exists(folder / kModelWeights) && !path_exists(folder / hub::kAdapterFile))
    return;
  if (!has_checkpoints && !path_exists(folder / kRunRecipe))
    user_error("{} already contains a model; choose another --out", folder.string());
  user_error("{} already contains a run; add --resume to resume it, or choose another --out",
             folder.string());
}

/// Throws a UserError if the run's checkpoints cannot continue with this recipe.
void check_changed_recipe(const LaunchOptions& options) {
  const fs::path folder = options.out, config = folder / kRunRecipe;
  if (!path_exists(config) || list_folder(folder / kCheckpoints).empty()) return;
  const recipe::Recipe before = load_recipe(config, {});
  const std::string fault = recipe::fault_of_resume(before, options.job.recipe);
  if (!fault.empty()) user_error("{}, or start a new run from the weights of this one with init=FILE", fault);
}

loggers::RunEnd end_of(int status) {
  if (status == supervise::kDone) return {loggers::EndState::done, ""};
  if (status == supervise::kInterrupted) return {loggers::EndState::interrupted, ""};
  return {loggers::EndState::crashed, fmt::format("the run failed with exit status {}", status)};
}

void check_devices(const LaunchOptions& options, bool launched) {
  const recipe::Recipe& recipe = options.job.recipe;
  if (recipe.devices == 1) return;
  if (!recipe.supervise && !launched) {
    user_error(
        "devices={} needs supervise=true; remove supervise=false, or start the workers with mpirun -n {}",
        recipe.devices, recipe.devices);
  }
  const bool has_all_weights = recipe.parallel == Parallel::data || recipe.parallel == Parallel::zero1;
  if (!has_all_weights && !options.dump_gradients.empty()) {
    user_error("expected parallel=data or zero1 for --dump-gradients, got {}; try devices=1",
               name_of(recipe.parallel));
  }
}

}  // namespace

std::string default_folder(const std::string& recipe) {
  const std::string base = "runs/" + fs::path(recipe).stem().string();
  std::string folder = base;
  for (int i = 2; fs::exists(folder); ++i) folder = fmt::format("{}-{}", base, i);
  return folder;
}

void check_run_folder(const fs::path& out, bool resume) {
  check_writable_folder(out);
  if (!resume) check_no_overwrite(out);
}

Resolved prepare_run(recipe::Recipe recipe, const fs::path& out, bool resume) {
  check_run_folder(out, resume);
  tasks::Job job(std::move(recipe));
  if (!resume) check_initial_weights(job);
  return resolve(std::move(job), out);
}

int launch(const LaunchOptions& options) {
  const bool launched = num_mpi_processes() > 1;
  check_devices(options, launched);
  if (options.resume) check_changed_recipe(options);
  if (options.only_checks && options.job.recipe.devices == 1) return run_worker(options, {}, nullptr);
  const bool has_loggers = !options.only_checks && is_first_mpi_process();
  const std::unique_ptr<Reporter> reporter = options.open_reporter({});
  loggers::LoggerProcesses loggers(has_loggers ? options.job.recipe.log : recipe::Log{.to = {}}, options.out,
                                   options.resume, [&](const std::string& text) { reporter->warn(text); });
  try {
    const int status =
        options.job.recipe.supervise && !launched ? train_supervised(options, loggers) : train_alone(options);
    loggers.finish(end_of(status));
    return status;
  } catch (const std::exception& error) {
    loggers.finish({loggers::EndState::crashed, error.what()});
    throw;
  }
}

}  // namespace hearth::run
