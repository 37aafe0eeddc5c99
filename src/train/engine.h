#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/threads.h"
#include "exec/program.h"
#include "models/model.h"
#include "passes/pipeline.h"
#include "train/optimizer.h"

namespace hearth::train {

/// What an engine compiles: everything that changes the programs, nothing about data or files.
struct EngineOptions {
  models::ModelOptions model;
  /// Replaces the named model by one of the caller's own.
  std::function<ir::ValueId(nn::Builder&, ir::ValueId images)> build_model;
  OptimizerOptions optimizer;
  int64_t batch = 32;
  /// Micro-batches per update; above 1, gradients are summed in memory of their own.
  int64_t accumulate = 1;
  DType precision = DType::f32;
  double label_smoothing = 0;
  uint64_t seed = 0;
  int num_threads = 1;
  /// Arena budget; 0 = none.
  int64_t budget_bytes = 0;
  std::vector<std::string> passes_off;
  exec::Backend backend = exec::Backend::cpu;
  std::function<void(std::string_view pass, const ir::Graph&, double seconds)> after_pass;
};

/// One micro-batch in the caller's memory: images f32 NHWC, labels i32, at least 64 readable bytes behind
/// each.
struct MicroBatch {
  const float* images = nullptr;
  const int32_t* labels = nullptr;
  int64_t count = 0;
};

/// Sums over one update, or over one evaluated batch.
struct StepResult {
  double loss = 0;     ///< mean over samples
  double correct = 0;  ///< samples whose largest logit is the label
  double grad_norm = 0;
  int64_t num_samples = 0;
  bool skipped = false;  ///< the gradients were not finite: nothing was changed
};

/// The model, its weights and its compiled programs. Everything is planned when it is made; running allocates
/// nothing. One arena serves every program, because they never run at once.
class Engine {
 public:
  /// `batch_sizes`: every micro-batch size that training and evaluation will use.
  Engine(EngineOptions options, std::span<const int64_t> train_sizes, std::span<const int64_t> eval_sizes);
  ~Engine();

  /// Draws the first weights from the seed.
  void initialise();
  /// One update from `num_micro` micro-batches that `next` hands out one by one and that hold `num_samples`
  /// samples in all; the gradient is that of the mean loss over them. `step` numbers the update for dropout.
  StepResult train_step(int64_t num_micro, int64_t num_samples, FunctionRef<MicroBatch()> next, int64_t step,
                        double learning_rate);
  /// Evaluates one batch with the weights (or their average, if there is one); probabilities() holds its
  /// results.
  StepResult evaluate(const MicroBatch& batch);
  /// Softmax of the last evaluated batch, [count, num_classes].
  std::span<const float> probabilities() const { return probabilities_; }

  /// Runs micro-batch `index` of an update again, without updating, and names the first node whose result is
  /// not finite, or the data; empty where all is finite.
  std::string find_not_finite(const MicroBatch& batch, int64_t step, int64_t index);
  /// Runs whole training steps of one micro-batch, with their updates, and returns the fastest seconds of
  /// each node of train_program().
  std::vector<double> profile(const MicroBatch& batch, int num_steps);
  /// Runs forward and backward only, and hands out each weight's gradient in file order.
  void gradients(const MicroBatch& batch,
                 const std::function<void(const nn::Tensor&, std::span<const float>)>& take);

  const std::vector<nn::Tensor>& tensors() const { return tensors_; }
  const exec::PersistentLayout& layout() const { return layout_; }
  std::span<std::byte> persistent() const {
    return {persistent_.data(), static_cast<size_t>(layout_.num_bytes())};
  }
  /// The f32 values of a persistent buffer.
  std::span<float> values(const std::string& name) const;
  const EngineOptions& options() const { return options_; }
  ThreadPool& threads() { return threads_; }
  int64_t arena_bytes() const { return arena_bytes_; }
  /// The program of a full training micro-batch: its plan is what `hearth plan` shows.
  const exec::Program& train_program() const { return *train_.begin()->second; }
  const passes::RecomputeResult& recompute() const { return recompute_; }
  double loss_scale() const;

 private:
  enum class Purpose : uint8_t { step, accumulate, evaluate, gradients };
  std::unique_ptr<exec::Program> compile(Purpose purpose, int64_t batch);
  passes::TrainGraph build_graph(Purpose purpose, int64_t batch);
  std::unique_ptr<exec::Program> finish(passes::TrainGraph train, Purpose purpose);
  void bind_all();
  void run_forward_backward(exec::Program& program, const MicroBatch& batch, int64_t step, size_t index);
  void read_sums(const exec::Program& program, StepResult& result) const;

  EngineOptions options_;
  ThreadPool threads_;
  std::vector<nn::Tensor> tensors_;
  exec::PersistentLayout layout_;
  exec::Region persistent_;
  exec::Region arena_;
  int64_t arena_bytes_ = 0;
  std::map<int64_t, std::unique_ptr<exec::Program>, std::greater<>> train_;
  std::map<int64_t, std::unique_ptr<exec::Program>, std::greater<>> evaluate_;
  std::unique_ptr<exec::Program> update_;
  passes::RecomputeResult recompute_;
  std::map<std::string, int64_t> workspace_cache_;
  std::vector<int64_t> counter_;
  std::span<const float> probabilities_;
};

}  // namespace hearth::train
