#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cost/device.h"
#include "io/run_request.h"
#include "run/pacer.h"
#include "run/progress_meter.h"
#include "run/rollback.h"
#include "tasks/job.h"
#include "tasks/task.h"

namespace hearth::run {

/// Options of the start of a run.
struct RunStart {
  bool resume = false;     ///< true: resume from the newest checkpoint on disk or in memory, if there is one
  bool new_order = false;  ///< true: shuffles the rest of the epoch again
  std::string reason;      ///< reason of a restart, for the log; empty: nothing is logged
  bool accepts_changed_inputs = false;  ///< true: resumes even if data or base weights have changed
  std::string command;                  ///< shell command that started the run, for its report
};

struct RunSummary {
  int64_t steps = 0;
  double best_score = 0;
  std::string best;       ///< best score as text for users
  std::string last_line;  ///< result of tasks::Task::last_line()
  double seconds = 0;
  bool interrupted = false;
  bool led = true;  ///< false: this worker is not rank 0, which writes the run folder and prints the summary
};

/// Process group and devices of a worker.
struct WorkerSetup {
  /// Group of recipe.devices workers, or fewer after devices have failed (num_usable_devices); null: a single
  /// worker.
  distributed::ProcessGroup* group = nullptr;
  std::optional<int> device;                 ///< number of this worker's GPU; nullopt: equal to the rank
  std::vector<passes::StageDevice> devices;  ///< devices of the pipeline stages; empty: equal devices
  /// Device for which all workers plan (slowest_gpu); null: each plans for its own device.
  const cost::Device* rates = nullptr;
};

/// Purpose of a trainer: to train (run), or only to check data and plan (check).
enum class Use : uint8_t { run, check };

/// Trains a model and writes the run folder: config.yaml, model.safetensors (or a PEFT adapter),
/// trainer_log.jsonl, TensorBoard events, checkpoints/, report.html. If several workers share a run, each has
/// a trainer for the same recipe and folder. Rank 0, the leader, writes all files. It also evaluates, without
/// the other workers if it has the full model.
class Trainer {
 public:
  /// Opens the data and compiles the programs; calls no collectives. For Use::run, also prepares the data
  /// (latents, embeddings) on the device. run() creates the folder `out`. Throws a UserError if the data
  /// cannot be read or the model does not fit in memory.
  Trainer(tasks::Job job, fs::path out, TrainerEvents events, WorkerSetup member = {}, Use use = Use::run);
  ~Trainer();

  /// Trains until the last step, an early stop or a stop request. Collective call.
  RunSummary run(const RunStart& start);
  RunSummary run(bool resume) { return run({.resume = resume}); }
  /// Loads the initial weights from the files in the recipe. run() calls it for a new run.
  void load_initial_weights();
  /// Writes the gradients of the first micro-batch to a safetensors file, with torch's names and layouts.
  void dump_gradients(const fs::path& path);
  /// Evaluates the current weights on the held-out data. The run folder must exist.
  tasks::Evaluation evaluate() {
    task_->resume(folder_.path());
    return task_->evaluate(*engine_, 0);
  }

  engine::Engine& engine() { return *engine_; }
  const tasks::Task& task() const { return *task_; }
  /// Returns the recipe, including the values determined from data and weights.
  const recipe::Recipe& recipe() const { return job_.recipe; }

 private:
  /// Decision of the leader after a step, which all workers follow: continue, save a checkpoint to memory,
  /// end because train.early_stop was reached, end on a stop request, pause until the GPUs are cool, or save
  /// a checkpoint on request.
  enum class Order : int32_t { proceed, snapshot, stop_early, interrupt, pause, checkpoint };
  struct Decision {
    Order order = Order::proceed;
    double rest_seconds = 0;
  };

  int rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  int num_workers() const { return group_ == nullptr ? 1 : group_->size(); }
  bool leads() const { return rank() == 0; }
  bool evaluates() const { return leads() || engine_->plan().evaluates_jointly; }
  /// True while a step is repeated after a rollback; its report is already in the log.
  bool is_repeating() const { return state_.step <= logged_step_; }
  void beat(distributed::Phase phase) const { events_.heartbeat.beat(phase, state_.step); }

  // Functions that run before the first step.
  void prepare();
  void start(const RunStart& how);
  void open_files(bool resumed);
  void change_order();
  void evaluate_initial_weights();

  // Functions of the training loop.
  RunSummary run_to_end(const RunStart& how);
  engine::StepResult train_one(double rate);
  /// Sets the masks of pruned weights if this is due before the next update.
  void prune_if_due();
  /// Consumes the samples of a bad step without training on them.
  engine::StepResult skip_one();
  void after_step(const engine::StepResult& result, double rate);
  Decision decide(const engine::StepResult& result, double step_seconds);
  Order order(const engine::StepResult& result);
  void roll_back(const engine::StepResult& result, const std::string& fault);
  void start_over();
  void wait_while_hot(const engine::StepResult& result);
  void save_as_requested();
  /// Throws a UserError if the run folder or its log was moved or deleted.
  void check_folder() const;

  // Functions that send reports to the sink.
  void report_step(const engine::StepResult& result, double rate);
  void report_event(int64_t step, const std::string& text) { sink_->event({.step = step, .text = text}); }
  void report_recording_fault();
  void evaluate_and_report();
  void report_evaluation(const tasks::Evaluation& found, bool is_best);
  void finish(RunSummary& summary, const std::string& command);

  tasks::Job job_;
  const recipe::Recipe& recipe_ = job_.recipe;
  RunFolder folder_;
  TrainerEvents events_;
  distributed::ProcessGroup* group_;
  std::unique_ptr<tasks::Task> task_;
  std::unique_ptr<engine::Engine> engine_;
  std::optional<tasks::LookaheadStream> stream_;
  /// Receives all reports. Only the leader opens the real sinks; this default sink discards all reports.
  std::unique_ptr<RunSink> sink_ = std::make_unique<RunSink>();
  std::optional<StepPlan> plan_;
  std::optional<Checkpoints> checkpoints_;
  std::optional<Rollback> rollback_;
  std::optional<io::RequestReader> requests_;  ///< set on the leader by open_files()
  Pacer pacer_;
  ProgressMeter meter_;
  RunState state_;
  int64_t logged_step_ = 0;                 ///< last step in the log
  std::optional<tasks::Evaluation> final_;  ///< evaluation of the weights after the last step
  bool reported_recording_fault_ = false;
  bool reported_initial_weights_ = false;
};

}  // namespace hearth::run
