#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cost/device.h"
#include "run/pacer.h"
#include "run/progress_meter.h"
#include "run/rollback.h"
#include "tasks/job.h"
#include "tasks/task.h"

namespace hearth::run {

/// How a run begins.
struct Start {
  bool resume = false;  ///< from the newest complete checkpoint of the folder or of memory, if there is one
  bool new_order = false;               ///< the remaining data comes in another order
  std::string reason;                   ///< reason for the log; empty: nothing is logged
  bool accepts_changed_inputs = false;  ///< resumes although data or base weights have changed
  std::string command;                  ///< shell line that started the run, for its report
};

struct RunSummary {
  int64_t steps = 0;
  double best_score = 0;
  std::string best;       ///< for people
  std::string last_line;  ///< tasks::Task::last_line
  double seconds = 0;
  bool interrupted = false;
  bool led = true;  ///< false: another worker has written the run folder, and says how the run ended
};

/// A worker's place among those that share a run.
struct Membership {
  /// Of recipe.devices workers, or of fewer where devices have failed (num_sharing); null: there is one
  /// alone.
  distributed::ProcessGroup* group = nullptr;
  std::optional<int> device;                 ///< the number of its GPU; none: its rank
  std::vector<passes::StageDevice> devices;  ///< of a pipeline's workers; empty: they are alike
  const cost::Device* rates = nullptr;       ///< what all workers plan by (slowest_gpu); null: its own
};

/// What a trainer is for: a run, or to know what one would need.
enum class Use : uint8_t { run, check };

/// One run in one folder: config.yaml, model.safetensors (or a PEFT adapter), trainer_log.jsonl, TensorBoard
/// events, checkpoints/, report.html. Several workers may share a run: each has a trainer for the same recipe
/// and folder, and rank 0 leads: it alone writes, and evaluates where it has the whole model.
class Trainer {
 public:
  /// Compiles everything for the recipe's task; exchanges nothing. For a run the data is prepared first, on
  /// the device that is still free. `out` is created.
  Trainer(tasks::Job job, fs::path out, TrainerEvents events, Membership member = {}, Use use = Use::run);
  ~Trainer();

  /// Trains to the end.
  RunSummary run(const Start& start);
  RunSummary run(bool resume) { return run({.resume = resume}); }
  /// The weights that a run begins with, from the files that the recipe names; run() does it where it begins.
  void load_first_weights();
  /// Writes the first micro-batch's gradients in torch's names and layouts.
  void dump_gradients(const fs::path& path);
  /// Judges the present weights on what is held out, for a run that is in its folder.
  tasks::Evaluation evaluate() {
    task_->resume(folder_.path());
    return task_->evaluate(*engine_, 0);
  }

  engine::Engine& engine() { return *engine_; }
  const tasks::Task& task() const { return *task_; }
  /// The recipe, including values determined from data and weights.
  const recipe::Recipe& recipe() const { return job_.recipe; }

 private:
  /// Decision of the leader after a step, which all workers follow.
  enum class Order : int32_t { proceed, remember, stop_early, interrupt, pause };
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

  // Preparation before the first step.
  void prepare();
  void start(const Start& how);
  void open_files(bool resumed);
  void change_order();
  void evaluate_first_weights();

  // Training loop.
  RunSummary run_to_end(const Start& how);
  engine::StepResult train_one(double rate);
  /// Consumes the samples of a bad step without training on them.
  engine::StepResult skip_one();
  void after_step(const engine::StepResult& result, double rate);
  Decision decide(const engine::StepResult& result, double step_seconds) const;
  Order order(const engine::StepResult& result) const;
  void roll_back(const engine::StepResult& result, const std::string& fault);
  void start_over();
  void wait_while_hot(const engine::StepResult& result);
  /// Throws a UserError if the run folder or its log was moved or deleted.
  void check_folder() const;

  // Reports to the sink.
  void report_step(const engine::StepResult& result, double rate);
  void report_event(int64_t step, const std::string& text) { sink_->event({.step = step, .text = text}); }
  void report_recording_fault();
  void evaluate_and_report();
  void report_evaluation(const tasks::Evaluation& found);
  void finish(RunSummary& summary, const std::string& command);

  tasks::Job job_;
  const recipe::Recipe& recipe_ = job_.recipe;
  RunFolder folder_;
  TrainerEvents events_;
  distributed::ProcessGroup* group_;
  std::unique_ptr<tasks::Task> task_;
  std::unique_ptr<engine::Engine> engine_;
  std::optional<tasks::AheadStream> stream_;
  /// Receives all reports; the sink of a worker that does not lead discards them.
  std::unique_ptr<RunSink> sink_ = std::make_unique<RunSink>();
  std::optional<StepPlan> plan_;
  std::optional<Checkpoints> checkpoints_;
  std::optional<Rollback> rollback_;
  Pacer pacer_;
  ProgressMeter meter_;
  RunState state_;
  int64_t logged_step_ = 0;                 ///< last step in the log
  std::optional<tasks::Evaluation> final_;  ///< evaluation of the weights after the last step
  bool said_recording_fault_ = false;
  bool said_first_weights_ = false;
};

}  // namespace hearth::run
