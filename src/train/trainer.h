#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "io/event_file.h"
#include "io/report.h"
#include "train/recipe.h"

namespace hearth::train {

/// What the trainer tells while it runs. `line` may be called often; the text is only valid during the call.
struct Progress {
  int64_t step = 0;
  int64_t total_steps = 0;
  double loss = 0;
  double learning_rate = 0;
  double grad_norm = 0;
  double images_per_second = 0;
  double tflops = 0;
  int64_t memory_bytes = 0;
  double eta_seconds = 0;
};
struct TrainerEvents {
  std::function<void(const Progress&)> progress;    ///< every log_every updates
  std::function<void(const std::string&)> message;  ///< rare, one sentence
  /// Set by the caller (Ctrl-C): the trainer ends behind the next update with a checkpoint.
  const std::atomic<bool>* stop = nullptr;
};

/// Results on a dataset.
struct Evaluation {
  double loss = 0;
  double accuracy = 0;
  std::vector<int64_t> confusion;  ///< [true][predicted]
  std::vector<io::SamplePrediction> samples;
};

struct RunSummary {
  int64_t steps = 0;
  double best_accuracy = 0;
  Evaluation last;
  double seconds = 0;
  bool interrupted = false;
};

/// One run in one folder: config.yaml, model.safetensors, trainer_log.jsonl, TensorBoard events,
/// checkpoints/, report.html.
class Trainer {
 public:
  /// Opens the data, compiles everything. `out` is created.
  Trainer(Recipe recipe, fs::path out, TrainerEvents events);
  ~Trainer();

  /// Trains to the end. With `resume`, goes on from the newest complete checkpoint of the folder.
  RunSummary run(bool resume);
  /// Writes the first micro-batch's gradients in torch's names and layouts.
  void dump_gradients(const fs::path& path);
  /// Evaluates the present weights on the test split; `num_samples` pictures are kept with their predictions.
  Evaluation evaluate(int64_t num_samples);

  Engine& engine() { return *engine_; }
  const data::Dataset& train_data() const { return *train_data_; }
  const data::Dataset& test_data() const { return *test_data_; }

 private:
  struct State {
    int64_t step = 0;
    double best_accuracy = -1;
    int64_t evaluations_without_gain = 0;
    data::LoaderPosition position;
  };

  void start(bool resume);
  bool load_checkpoint();
  StepResult train_one(double rate);
  void after_step(const StepResult& result, double rate);
  [[noreturn]] void stop_for_not_finite(const StepResult& result);
  std::string find_not_finite();
  void save_checkpoint();
  void evaluate_and_log();
  void log_step(const StepResult& result, double rate);
  void report_progress(const StepResult& result, double rate);
  void finish(RunSummary& summary);
  int64_t steps_per_epoch() const;
  int64_t samples_of_step() const;
  int64_t num_micro(int64_t samples) const;
  bool time_to_evaluate() const;

  Recipe recipe_;
  fs::path out_;
  TrainerEvents events_;
  std::unique_ptr<data::Dataset> train_data_;
  std::unique_ptr<data::Dataset> test_data_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<data::Loader> loader_;
  std::unique_ptr<io::CheckpointWriter> checkpoints_;
  std::unique_ptr<io::EventFile> event_file_;
  std::unique_ptr<io::RunLog> log_;
  State state_;
  int64_t total_steps_ = 0;
  data::LoaderPosition step_start_;
  int64_t last_good_step_ = -1;  ///< its weights gave a finite loss
  Evaluation last_evaluation_;
  double started_seconds_ = 0;
  int64_t session_steps_ = 0;
  int64_t session_images_ = 0;
  double evaluation_seconds_ = 0;
};

}  // namespace hearth::train
