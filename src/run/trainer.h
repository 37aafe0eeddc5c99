#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cost/device.h"
#include "io/checkpoint.h"
#include "recipe/recipe.h"
#include "run/run_sink.h"
#include "run/state.h"
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
  Trainer(recipe::Recipe recipe, fs::path out, TrainerEvents events, Membership member = {},
          Use use = Use::run);
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
    task_->resume(out_);
    return task_->evaluate(*engine_, 0);
  }

  engine::Engine& engine() { return *engine_; }
  const tasks::Task& task() const { return *task_; }
  /// The recipe, including values determined from data and weights.
  const recipe::Recipe& recipe() const { return recipe_; }

 private:
  /// What the leader has decided after a step.
  enum class Order : int32_t { proceed, remember, stop_early, interrupt, pause };
  struct Decision {
    Order order = Order::proceed;
    double rest_seconds = 0;
  };

  int rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  int num_workers() const { return group_ == nullptr ? 1 : group_->size(); }
  bool leads() const { return rank() == 0; }
  bool evaluates() const { return leads() || engine_->compiled().evaluates_together; }
  void prepare();
  /// Stores the data's class names in the recipe. UserError if the recipe has other names.
  void take_class_names();
  void check_share() const;
  void beat(distributed::Phase phase) const { events_.heartbeat.beat(phase, state_.step); }
  /// Those under an adapter, which no checkpoint holds.
  void load_frozen_weights();
  /// Says what of them does not fit, once.
  void load_first_image_weights(const fs::path& path);
  RunSummary run_to_end(const Start& how);
  void start(const Start& how);
  void change_order();
  void open_files(bool resumed);
  void write_config() const;
  /// Throws a UserError if the run folder or its log was moved or deleted.
  void check_folder() const;
  void read_pace(const fs::path& log);
  bool load_checkpoint();
  /// Makes everything as the newest checkpoint has it; says which one that is, or nothing where there is
  /// none.
  std::string restore_newest(std::vector<std::string>* refused);
  void check_number_of_workers(const RunState& state, const std::string& where) const;
  /// That optimizer and data are those of the checkpoint, or nothing after it would mean anything.
  void check_same_run(const RunState& state, const std::string& where) const;
  void check_inputs(const RunState& state, const std::string& where) const;
  /// Returns the keys that differ from config.yaml, separated by commas.
  std::string changed_keys() const;
  void restore(const std::string& state_text, std::span<const std::byte> memory, const std::string& where);
  void make_room(bool says);
  bool time_to_remember(const engine::StepResult& result) const;
  void remember();
  engine::StepResult train_one(double rate);
  void say_recording_fault();
  void after_step(const engine::StepResult& result, double rate);
  Order order(const engine::StepResult& result) const;
  Decision agree(Decision decision) const;
  /// The leader's wish, after a step that took so long.
  double rest_seconds(double step_seconds) const;
  void rest(double seconds) const;
  void wait_while_hot(const engine::StepResult& result);
  /// Of the next update: whether its samples are to be left out.
  bool is_bad(int64_t step) const;
  /// What is wrong with an update; empty: nothing is.
  std::string fault_of(const engine::StepResult& result) const;
  void note_good(const engine::StepResult& result);
  bool may_skip() const;
  /// Makes everything as it was after the newest checkpoint, from where the run comes to this step again.
  void roll_back(const engine::StepResult& result, const std::string& fault);
  void start_over();
  void clear_sums();
  engine::StepResult leave_out_one();
  void discard_unsound(const engine::StepResult& result);
  [[noreturn]] void stop_for_bad_step(const engine::StepResult& result, const std::string& fault);
  std::string find_not_finite();
  /// Whether this session has been here before.
  bool goes_again() const { return state_.step <= logged_step_; }
  StateText state_text();
  void save_checkpoint();
  /// Fingerprints the files that checkpoints depend on.
  void take_inputs();
  /// Before any update, where the recipe wants it.
  void evaluate_first_weights();
  void evaluate_and_log();
  void report_evaluation(const tasks::Evaluation& found);
  void report_step(const engine::StepResult& result, double rate);
  Progress progress_after(const engine::StepResult& result, double rate) const;
  void finish(RunSummary& summary, const std::string& command);
  int64_t steps_per_epoch() const;
  /// Returns the number of steps of the full run, done and remaining.
  int64_t count_steps() const;
  /// Returns the sizes of training micro-batches: in a full epoch, and in the rest of the newest checkpoint's
  /// epoch.
  std::vector<int64_t> train_sizes() const;
  /// Rows and micro-batches of the step that begins at state_.position.
  int64_t rows_of_step() const;
  int64_t num_micro() const;
  bool time_to_evaluate() const;
  /// Whether all workers have the same weights after this step.
  bool are_together() const;

  recipe::Recipe recipe_;
  fs::path out_;
  std::string run_;  ///< what a checkpoint in memory must be of
  TrainerEvents events_;
  distributed::ProcessGroup* group_;
  std::unique_ptr<tasks::Task> task_;
  std::unique_ptr<engine::Engine> engine_;
  std::optional<tasks::AheadStream> stream_;
  std::optional<HeldFolder> folder_;
  std::unique_ptr<io::CheckpointWriter> checkpoints_;
  std::unique_ptr<RunSink> sink_ =
      std::make_unique<RunSink>();  ///< discards reports unless this worker leads
  RunState state_;
  std::vector<InputState> inputs_;  ///< set on the leader only
  bool accepts_changed_inputs_ = false;
  bool wrote_config_ = false;       ///< true if config.yaml is up to date
  DType saved_dtype_ = DType::f32;  ///< of the files of weights; checkpoints hold f32
  int64_t total_steps_ = 0;
  int64_t last_good_step_ = -1;     ///< its weights gave a finite loss
  int64_t logged_step_ = 0;         ///< what came up to it is in the log
  std::vector<int64_t> bad_steps_;  ///< found in this session
  std::optional<tasks::Evaluation> final_;
  double started_seconds_ = 0;
  int64_t session_steps_ = 0;
  int64_t session_samples_ = 0;
  double evaluation_seconds_ = 0;
  double seconds_before_ = 0;      ///< of earlier sessions, as the log has them
  double seconds_per_update_ = 0;  ///< of the last one; 0: unknown
  bool said_recording_fault_ = false;
  bool said_first_weights_ = false;
  double remember_at_ = 0;  ///< seconds of this process, for a checkpoint in memory; 0: never
};

}  // namespace hearth::run
