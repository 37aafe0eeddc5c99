#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/function_ref.h"
#include "base/threads.h"
#include "data/loader.h"
#include "distributed/heartbeat.h"
#include "distributed/process_group.h"
#include "engine/memory.h"
#include "engine/micro_batch.h"
#include "engine/plan.h"

namespace hearth::engine {

struct Runtime;

/// What one update came to.
struct StepResult {
  double loss = 0;  ///< mean over samples
  double grad_norm = 0;
  int64_t num_samples = 0;
  double exchange_seconds = 0;  ///< that this worker's host waited for what it and the others exchange
  bool skipped = false;         ///< the gradients were not finite: nothing was changed
};

/// What an engine runs on, and what checks found out there.
struct DeviceReport {
  const gpu::DeviceInfo* gpu = nullptr;  ///< null: the processor
  /// Kernels that were found to be wrong, with what they did: the usual way or the host computes in their
  /// place.
  const std::map<std::string, std::string>& distrusted;
  /// Sentences on ways to do a matmul that are not used, because they failed or gave another result.
  std::span<const std::string> dropped_matmuls;
  /// Why recordings are left off; empty: they are not.
  std::string_view recording_fault;
};

/// Runs a plan: all memory is allocated when an engine is made, nothing while it runs. What a
/// worker does of an update is its strategy's (parallel/strategy.h).
class Engine {
 public:
  /// The sizes are those of make_plan(). DoesNotFit where the GPU has too little free.
  Engine(const EngineOptions& options, std::span<const int64_t> train_sizes,
         std::span<const int64_t> eval_sizes);
  ~Engine();

  /// The programs, their memory and what is known of them.
  const Plan& plan() const;
  DeviceReport device() const;
  ThreadPool& threads();

  /// Makes this engine the worker `group.rank()` of a run of num_workers: it computes its own micro-batches,
  /// and every worker makes the same update. Before the first step; the group outlives the engine.
  void join(distributed::ProcessGroup& group);
  /// The micro-batches of a whole update that are this engine's.
  data::LoaderShare share() const;
  /// Lets it beat after every micro-batch.
  void set_heartbeat(const distributed::Heartbeat& heartbeat);
  const distributed::Heartbeat& heartbeat() const;

  /// Draws the first weights from the seed; frozen ones are left for load_model.
  void initialize();
  /// One update from `num_micro` micro-batches, of which `next` hands out this engine's one by one. The
  /// gradient is that of the sum of their losses over `num_samples`. `step` numbers the update for dropout.
  /// CommError where another worker does not come.
  StepResult train_step(int64_t num_micro, int64_t num_samples, FunctionRef<MicroBatch()> next, int64_t step,
                        double learning_rate) {
    start_step(num_micro, num_samples, next, step, learning_rate);
    return finish_step();
  }
  /// The same in two halves: a GPU may compute in between.
  void start_step(int64_t num_micro, int64_t num_samples, FunctionRef<MicroBatch()> next, int64_t step,
                  double learning_rate);
  StepResult finish_step();
  /// Sends a GPU the micro-batch that the next step begins with, while it computes.
  void stage_ahead(const MicroBatch& batch);
  /// With local steps: the step that all workers make together, each from where it has come to.
  void move_together();

  /// The sum of a batch's losses under the weights (or their average, if there is one); 0 without losses.
  double evaluate(const MicroBatch& batch);
  /// The objective's output number `position` of the last evaluated batch.
  std::span<const float> output(size_t position) const;
  /// The same of an output of whole numbers, i32.
  std::span<const int32_t> whole_output(size_t position) const;

  /// Brings worker 0 the states that are the others'; every worker calls it, between steps.
  void gather_states();
  /// Of states that came from a checkpoint, each worker takes what it alone has.
  void take_own_states();
  /// What training changes: trained weights and the state of the run, without frozen weights, whatever the
  /// number of workers. Of other workers' states it has what gather_states() brought last.
  std::span<std::byte> state() const;
  std::byte* data(const exec::PersistentBuffer& buffer) const;

 private:
  friend class Inspector;
  friend double loss_scale(const Engine& engine);
  std::unique_ptr<Runtime> runtime_;
};

/// The f32 values of a persistent buffer.
std::span<float> values(const Engine& engine, const std::string& name);
/// The loss scale, of fp16; else 1.
double loss_scale(const Engine& engine);
/// What begins as a weight does: its average, and what it was when workers last moved together.
void copy_first(Engine& engine, const std::string& weight);

/// Makes an engine that only evaluates micro-batches of these sizes. It accumulates no gradients and keeps no
/// EMA weights, because saved weights are the averages already.
std::unique_ptr<Engine> evaluation_engine(EngineOptions options, std::span<const int64_t> eval_sizes);

}  // namespace hearth::engine
