#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/extent.h"
#include "engine/engine.h"
#include "recipe/recipe.h"
#include "run/trainer_events.h"
#include "tasks/task.h"

namespace hearth::run {

/// Report of an optimizer update.
struct StepReport {
  int64_t step = 0;  ///< number of completed updates
  int64_t total_steps = 0;
  double loss = 0;  ///< NaN if the update was skipped as a bad step
  double learning_rate = 0;
  double grad_norm = 0;
  double elapsed_seconds = 0;                 ///< training time of the run, including earlier sessions
  const supervise::GpuState* gpus = nullptr;  ///< latest sensor readings; null: none yet
  const Progress* progress = nullptr;         ///< set every train.log_every updates; otherwise null
};

/// Image that an evaluation has generated.
struct ImageReport {
  std::string name;  ///< file name without extension: letters and digits
  Extent size;
  std::string png;  ///< contents of a PNG file
};

/// Report of an evaluation on held-out data.
struct EvaluationReport {
  int64_t step = 0;
  double loss = 0;
  std::span<const std::pair<const char*, double>> metrics;  ///< names and values: "accuracy", 0.9851
  std::string_view text;                                    ///< metrics as text for users: "accuracy 98.51%"
  std::span<const ImageReport> images;
  bool is_best = false;  ///< true if the score is better than those of all earlier evaluations
};

/// Report of an event between updates, such as a rollback or a pause.
struct EventReport {
  int64_t step = 0;
  std::string_view text;    ///< description of the event, one sentence
  bool is_printed = false;  ///< true if the terminal already shows the text
};

/// Report of the sparsity of pruned weights after their masks were set.
struct SparsityReport {
  int64_t step = 0;  ///< the first update with these masks
  std::vector<engine::LayerSparsity> layers;

  /// Returns the fraction of all these weights that are pruned.
  double total() const;
};

/// Report of the end of a session, because the run is complete or was interrupted.
struct EndReport {
  int64_t step = 0;
  double elapsed_seconds = 0;                 ///< training time of the run, including earlier sessions
  std::string_view best;                      ///< best score as text for users
  std::string_view command;                   ///< shell command that started the run
  std::vector<engine::LayerSparsity> layers;  ///< sparsity of pruned weights
  const tasks::Evaluation& result;  ///< result of the last evaluation; default values if there was none
};

/// An output of a run, such as a log file. Receives reports in order on the training thread. A derived class
/// overrides the functions that it needs; its destructor closes the output. step() is called in the training
/// loop, so it must not allocate memory unless StepReport::progress or gpus is set.
class RunSink {
 public:
  virtual ~RunSink() = default;
  virtual void step(const StepReport&) {}
  virtual void evaluation(const EvaluationReport&) {}
  virtual void event(const EventReport&) {}
  virtual void sparsity(const SparsityReport&) {}
  /// Flushes all reports to disk. Called before a checkpoint is written, so that a resumed run has all
  /// reports of earlier steps.
  virtual void sync() {}
  /// Throws a UserError if the output file was moved or deleted.
  virtual void check() const {}
  virtual void finish(const EndReport&) {}
};

/// Run for which a sink is opened. The references must outlive the sink.
struct SinkContext {
  const fs::path& folder;
  /// Step from which a run resumes; sinks remove reports of later steps from their files. -1: new run.
  int64_t last_step = -1;
  const recipe::Recipe& recipe;
  const tasks::Task& task;
  const engine::Plan& plan;
  const TrainerEvents& events;
  int num_workers = 1;
};

/// Opens the sinks of the list in sinks.cpp that the recipe selects (log.to). Returns a sink that forwards
/// every call to them in list order.
std::unique_ptr<RunSink> open_sinks(const SinkContext& context);

}  // namespace hearth::run
