#pragma once

#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/heartbeat.h"
#include "io/checkpoint.h"
#include "io/event_file.h"
#include "train/recipe.h"
#include "train/task.h"

namespace hearth::train {

/// What the trainer tells while it runs.
struct Progress {
  int64_t step = 0;
  int64_t total_steps = 0;
  double loss = 0;
  double learning_rate = 0;
  double grad_norm = 0;
  double samples_per_second = 0;
  const char* unit = "";  ///< of a sample
  double tflops = 0;
  int64_t memory_bytes = 0;
  double eta_seconds = 0;
};
struct TrainerEvents {
  std::function<void(const Progress&)> progress;    ///< every log_every updates
  std::function<void(const std::string&)> message;  ///< rare, one sentence
  /// Set by the caller (Ctrl-C): the trainer ends behind the next update with a checkpoint. Of a team, the
  /// leader's counts.
  const std::atomic<bool>* stop = nullptr;
  comm::Heartbeat heartbeat;  ///< beats with every micro-batch
};

/// How a run begins.
struct Start {
  bool resume = false;     ///< from the newest complete checkpoint of the folder, if there is one
  bool new_order = false;  ///< what is left of its data comes in another order from there on
  std::string reason;      ///< why, for the log; empty: nothing is logged
};

struct RunSummary {
  int64_t steps = 0;
  double best_score = 0;
  std::string best;  ///< for people
  double seconds = 0;
  bool interrupted = false;
  bool led = true;  ///< false: another worker has written the run folder, and says how the run ended
};

/// One run in one folder: config.yaml, model.safetensors (or a PEFT adapter), trainer_log.jsonl, TensorBoard
/// events, checkpoints/, report.html. Several workers may share a run: each has a trainer for the same recipe
/// and folder, and rank 0 leads: it alone evaluates and writes.
class Trainer {
 public:
  /// Compiles everything for the recipe's task. `out` is created. `team`: of recipe.devices workers, or of
  /// fewer where devices have failed (num_sharing); null where there is one alone. `device`: the number of
  /// this worker's card; none: its rank.
  Trainer(Recipe recipe, fs::path out, TrainerEvents events, comm::Transport* team = nullptr,
          std::optional<int> device = std::nullopt);
  ~Trainer();

  /// Trains to the end.
  RunSummary run(const Start& start);
  RunSummary run(bool resume) { return run({.resume = resume}); }
  /// Writes the first micro-batch's gradients in torch's names and layouts.
  void dump_gradients(const fs::path& path);
  /// Judges the present weights on what is held out, for a run that is in its folder.
  Evaluation evaluate() {
    task_->go_on(out_);
    return task_->evaluate(*engine_, 0);
  }

  Engine& engine() { return *engine_; }
  const Task& task() const { return *task_; }

 private:
  static constexpr double kNoScore = std::numeric_limits<double>::lowest();
  struct State {
    int64_t step = 0;
    double best_score = kNoScore;
    int64_t evaluations_without_gain = 0;
    data::LoaderPosition position;
  };

  /// What the leader has decided behind a step.
  enum class Order : int32_t { go_on, stop_early, interrupt };

  int rank() const { return team_ == nullptr ? 0 : team_->rank(); }
  int num_workers() const { return team_ == nullptr ? 1 : team_->size(); }
  bool leads() const { return rank() == 0; }
  void check_share() const;
  void beat(comm::Phase phase) const { events_.heartbeat.beat(phase, state_.step); }
  void load_first_weights();
  void start(const Start& how);
  void change_order();
  void open_files(bool resumed);
  bool load_checkpoint();
  void check_number_of_workers(int found, const fs::path& path) const;
  StepResult train_one(double rate);
  void after_step(const StepResult& result, double rate);
  void write_step(const StepResult& result, double rate, bool saves);
  Order order() const;
  Order agree(Order order) const;
  [[noreturn]] void stop_for_not_finite(const StepResult& result);
  std::string find_not_finite();
  void save_checkpoint();
  void evaluate_and_log();
  void log_step(const StepResult& result, double rate);
  void report_progress(const StepResult& result, double rate);
  void finish(RunSummary& summary);
  int64_t steps_per_epoch() const;
  /// Rows and micro-batches of the step that begins at state_.position.
  int64_t rows_of_step() const;
  int64_t num_micro() const;
  bool time_to_evaluate() const;
  /// Whether all workers have the same weights behind this step.
  bool are_together() const;

  Recipe recipe_;
  fs::path out_;
  TrainerEvents events_;
  comm::Transport* team_;
  std::unique_ptr<Task> task_;
  std::unique_ptr<Engine> engine_;
  std::optional<AheadStream> stream_;
  std::unique_ptr<io::CheckpointWriter> checkpoints_;
  std::unique_ptr<io::EventFile> event_file_;
  std::unique_ptr<io::RunLog> log_;
  State state_;
  int64_t total_steps_ = 0;
  int64_t last_good_step_ = -1;  ///< its weights gave a finite loss
  std::optional<Evaluation> final_;
  double started_seconds_ = 0;
  int64_t session_steps_ = 0;
  int64_t session_samples_ = 0;
  double evaluation_seconds_ = 0;
};

}  // namespace hearth::train
