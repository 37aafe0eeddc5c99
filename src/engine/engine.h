#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/threads.h"
#include "cost/device.h"
#include "data/loader.h"
#include "distributed/heartbeat.h"
#include "distributed/process_group.h"
#include "engine/local_steps.h"
#include "engine/objective.h"
#include "engine/optimizer.h"
#include "exec/device/gpu.h"
#include "exec/device/matmul_choice.h"
#include "exec/device/self_test.h"
#include "exec/host_queue.h"
#include "exec/program.h"
#include "passes/parallel/stages.h"
#include "passes/parallel/unroll.h"
#include "passes/pipeline.h"

namespace hearth::engine {

/// What each of several workers does in an update.
enum class Parallel : uint8_t {
  data,     ///< all do the same with micro-batches of their own
  zero1,    ///< the same, but each weight's optimizer state is one worker's alone (SumOptions::owners)
  sharded,  ///< and so is the weight itself (passes/parallel/shard_weights.h)
  /// Each has a part of the model, one after the other, for all micro-batches (passes/parallel/stages.h).
  pipeline,
};

/// What an engine compiles: everything that changes the programs, nothing about data or files.
struct EngineOptions {
  std::shared_ptr<const Objective> objective;
  OptimizerOptions optimizer;
  /// With a rank, only the adapter trains; the weights under it are kept in `precision`.
  nn::Adapter adapter;
  int64_t batch = 32;  ///< rows of a micro-batch
  /// Lengths that rows of tokens may have, for every size of a micro-batch; empty: the objective's own.
  std::vector<int64_t> row_lengths;
  /// Micro-batches per update; above 1, gradients are summed in memory of their own.
  int64_t accumulate = 1;
  /// Equal parts of an update's micro-batches that are summed each by itself, then by pairs
  /// (distributed/sum.h); statistics of batch norms move once per update. Results depend on it, not on who
  /// runs which part.
  int64_t shards = 1;
  /// Engines that share an update's shards, a power of two each: see join().
  int64_t num_workers = 1;
  int rank = 0;                              ///< of this engine among them
  Parallel parallel = Parallel::data;        ///< of several workers
  std::vector<passes::StageDevice> devices;  ///< the workers', of a pipeline
  /// How workers send less of their gradients.
  passes::CompressOptions compress;
  /// How seldom they send anything.
  LocalStepsOptions local;
  DType precision = DType::f32;
  uint64_t seed = 0;
  int num_threads = 1;
  /// Arena budget; 0 = none.
  int64_t budget_bytes = 0;
  /// What is kept in host memory; on the CPU, copies within the one memory.
  passes::OffloadOptions offload;
  /// What recomputing and copying are weighed by.
  cost::Device machine;
  std::vector<std::string> passes_off;
  exec::Backend backend = exec::Backend::cpu;
  /// Of Backend::gpu: workers sum between GPUs, by a group with Capability::device_memory, not through host
  /// memory.
  bool meets_on_gpu = false;
  /// Of the gpu backend.
  exec::GpuWish gpu = {.device = "emulated"};
  /// Of Backend::gpu: which of its kernels are tried first.
  exec::SelfTest::Options self_test;
  /// Of Backend::gpu: where its products' measured ways are kept; none: the usual ways, unmeasured.
  std::optional<fs::path> products;
  /// Only what a training step needs is found out: nothing is packed, nothing can run.
  bool measure_only = false;
  /// Everything is packed, nothing can run.
  bool plan_only = false;
  std::function<void(std::string_view pass, const ir::Graph&, double seconds)> after_pass;
};

/// One micro-batch in the caller's memory: an array for each input of the objective, kInputSlack readable
/// bytes after each.
inline constexpr int64_t kInputSlack = 64;
struct MicroBatch {
  std::array<const void*, 6> inputs = {};
  int64_t num_rows = 0;
  int64_t row_length = 0;  ///< one of EngineOptions::row_lengths, or 0 where there are none

  BatchShape shape() const { return {.num_rows = num_rows, .row_length = row_length}; }
};

/// What one update came to.
struct StepResult {
  double loss = 0;  ///< mean over samples
  double grad_norm = 0;
  int64_t num_samples = 0;
  double exchange_seconds = 0;  ///< that this worker's host waited for what it and the others exchange
  bool skipped = false;         ///< the gradients were not finite: nothing was changed
};

/// The model, its weights and its compiled programs. Everything is planned when it is made; running allocates
/// nothing. One arena serves every program, because they never run at once. On a GPU, weights and state are
/// copied between it and the host when one asks for what the other has changed.
class Engine {
 public:
  /// `batch_sizes`: every micro-batch size that training and evaluation will use.
  Engine(EngineOptions options, std::span<const int64_t> train_sizes, std::span<const int64_t> eval_sizes);
  ~Engine();

  /// Plans a measure_only engine anew under another budget, without growing its graphs again.
  void place(const passes::OffloadOptions& offload, int64_t budget_bytes);

  /// Makes this engine the worker `group.rank()` of a run of num_workers: it computes its own micro-batches,
  /// and every worker makes the same update. Before the first step; the group outlives the engine.
  void join(distributed::ProcessGroup& group);
  /// The micro-batches of a whole update that are this engine's.
  data::LoaderShare share() const;

  /// Lets it beat after every micro-batch.
  void set_heartbeat(const distributed::Heartbeat& heartbeat) { heartbeat_ = heartbeat; }
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
  /// Whether no worker has the whole model: all of them evaluate the same batches, in step.
  bool evaluates_together() const { return is_pipeline() || shards_weights(); }
  /// The sum of a batch's losses under the weights (or their average, if there is one); 0 without losses.
  double evaluate(const MicroBatch& batch);
  /// The objective's output number `position` of the last evaluated batch.
  std::span<const float> output(size_t position) const;

  /// Runs micro-batch `index` of an update again, without updating, and names the input or the first node
  /// that is not finite; empty where all is.
  std::string find_not_finite(const MicroBatch& batch, int64_t step, int64_t index);
  /// Runs whole training steps of one micro-batch, with their updates, and returns the fastest seconds of
  /// each node of train_program().
  std::vector<double> profile(const MicroBatch& batch, int num_steps);
  /// Runs forward and backward only, and hands out each weight's gradient of the sum of the losses over
  /// `num_samples`, in file order.
  void gradients(const MicroBatch& batch, int64_t num_samples,
                 const std::function<void(const nn::Tensor&, std::span<const float>)>& take);

  const std::vector<nn::Tensor>& tensors() const { return tensors_; }
  const exec::PersistentLayout& layout() const { return layout_; }
  /// Brings worker 0 the states that are the others'; every worker calls it, between steps.
  void gather_states();
  /// Of states that came from a checkpoint, each worker takes what it alone has.
  void take_own_states();
  /// With local steps: the step that all workers make together, each from where it has come to.
  void move_together();
  /// What begins as a weight does: its average, and what it was when workers last moved together.
  void copy_first(const std::string& weight);
  /// What training changes: trained weights and the state of the run, without frozen weights, whatever the
  /// number of workers. Of other workers' states it has what gather_states() brought last.
  std::span<std::byte> state() const {
    const int64_t frozen = layout_.frozen_bytes(), end = layout_.num_bytes() - layout_.carried_bytes();
    return {persistent() + frozen, static_cast<size_t>(end - frozen)};
  }
  std::byte* data(const exec::PersistentBuffer& buffer) const { return persistent() + buffer.offset; }
  /// The f32 values of a persistent buffer.
  std::span<float> values(const std::string& name) const;
  const EngineOptions& options() const { return options_; }
  ThreadPool& threads() { return threads_; }
  int64_t arena_bytes() const { return arena_bytes_; }
  /// Activations in host memory, beside the arena.
  int64_t host_arena_bytes() const { return host_arena_bytes_; }
  /// Everything it allocates, wherever it is.
  int64_t memory_bytes() const { return arena_bytes_ + host_arena_bytes_ + kept_bytes(); }
  /// Weights and states that are this worker's own.
  int64_t kept_bytes() const { return layout_.num_bytes() - layout_.bytes_of(ir::Role::remote); }
  /// The program of an update's last full micro-batch, and of the update: its plan is what `hearth plan`
  /// shows.
  const exec::Program& train_program() const { return *step_.begin()->second; }
  /// That of a full micro-batch before the last, where there are such; else null.
  const exec::Program* accumulate_program() const {
    return accumulate_.empty() ? nullptr : accumulate_.begin()->second.get();
  }
  /// Of a whole update, by all workers.
  double flops_per_update() const;
  /// Of one evaluated batch of this shape: a guess by EngineOptions::machine, at the tenth of its speed that
  /// attention over long rows reaches.
  double evaluation_seconds(BatchShape shape) const;
  const passes::RecomputeResult& recompute() const { return recompute_; }
  double loss_scale() const;
  /// Trained weights of each stage of a pipeline; empty: there are no stages.
  std::vector<int64_t> stage_parameters() const;
  /// What it runs on; null: the processor.
  const gpu::DeviceInfo* gpu() const { return gpu_ ? &gpu_->device().info() : nullptr; }
  /// What a GPU must have free.
  int64_t gpu_bytes() const;
  /// Kernels of the GPU that were found to be wrong, with what they did: the usual way or the host computes
  /// in their place.
  const std::map<std::string, std::string>& distrusted() const;
  /// Sentences on ways to make products that are not used, because they failed or gave another result.
  std::span<const std::string> dropped_products() const;

 private:
  enum class Purpose : uint8_t { step, accumulate, evaluate, gradients };
  using Programs = std::map<BatchShape, std::unique_ptr<exec::Program>, std::greater<>>;
  void compile(Purpose purpose, std::span<const int64_t> sizes, Programs& programs);
  std::unique_ptr<exec::Program> compile(Purpose purpose, BatchShape shape);
  passes::TrainGraph build_graph(Purpose purpose, BatchShape shape);
  std::unique_ptr<exec::Program> finish(passes::TrainGraph train, Purpose purpose);
  /// Of a graph that the passes of Stage::compute are done with, in whose context they ran.
  std::unique_ptr<exec::Program> finish_computed(passes::TrainGraph& train, Purpose purpose,
                                                 passes::PassContext& context);
  passes::PassContext context_of(const passes::TrainGraph& train);
  void keep_computed(const passes::TrainGraph& train, Purpose purpose,
                     const passes::WorkspaceOf& workspace_of);
  struct Placed {
    std::unique_ptr<exec::Program> program;
    passes::RecomputeResult recompute;
  };
  Placed place_within(passes::TrainGraph train, const std::vector<int64_t>& workspace_bytes,
                      int64_t budget_bytes);
  std::unique_ptr<exec::Program> place(const passes::TrainGraph& train, Purpose purpose,
                                       const std::vector<int64_t>& workspace_bytes = {});
  bool runs() const {
    return options_.backend != exec::Backend::null && !options_.measure_only && !options_.plan_only;
  }
  std::vector<exec::Program*> programs() const;
  exec::GpuRoom::Needs needs() const;
  void bind_all();
  exec::Places open_host();
  exec::Places open_gpu();
  [[noreturn]] void refuse_gpu() const;
  class Room;
  std::unique_ptr<Room> bind_alone(exec::Program& program);
  /// The host's weights and state, which the caller may change.
  std::byte* persistent() const;
  /// Before a program runs, which may change them.
  void to_gpu();
  void run(exec::Program& program);
  /// Page-locked, on a GPU: where at most `count` numbers of a step are read to.
  float* readings(int64_t count);
  /// 1 where there is none; from a GPU, once it is waited for.
  void read_loss_scale(float* to) const;
  /// What gradients are means over, when they are summed.
  struct Part {
    int64_t num_micro = 0;
    double num_samples = 0;
  };
  /// Whether each weight is one worker's alone.
  bool shards_weights() const { return options_.parallel == Parallel::sharded; }
  /// Whether the state of each weight is.
  bool shards_states() const { return shards_weights() || options_.parallel == Parallel::zero1; }
  bool is_pipeline() const { return options_.parallel == Parallel::pipeline; }
  /// Workers that share the micro-batches of an update.
  int64_t num_sharing() const { return is_pipeline() ? 1 : options_.num_workers; }
  int64_t num_own_micro() const { return options_.accumulate / num_sharing(); }
  int64_t num_own_shards() const { return options_.shards / num_sharing(); }
  passes::TrainGraph compute(Purpose purpose, BatchShape shape,
                             std::function<void(passes::TrainGraph&)> consume_gradients);
  /// Programs of this worker's stage.
  void compile_stage(std::span<const int64_t> train_sizes, std::span<const int64_t> eval_sizes);
  /// Cuts the model, and finds out which stage keeps what.
  void plan_stages(const passes::TrainGraph& micro, BatchShape shape);
  passes::Stages split(const passes::TrainGraph& micro, double weight_copies = 1) const;
  passes::UnrollOptions unroll_options(int64_t num_micro) const;
  SumOptions sums_of_stage(const passes::TrainGraph& micro) const;
  std::unique_ptr<exec::Program> compile_passage(const passes::TrainGraph& micro, BatchShape shape,
                                                 int64_t num_micro, bool updates);
  std::unique_ptr<exec::Program> compile_stage_evaluation(BatchShape shape);
  void make_room_for_inputs();
  /// The program of a whole update, one micro-batch after the other; null where its number or shapes are
  /// others.
  exec::Program* passage_together(std::span<const MicroBatch> batches) const;
  /// Returns the last program of an update, of which `losses` receives those that this stage makes.
  exec::Program* start_pipeline(const Part& part, FunctionRef<MicroBatch()> next, int64_t step,
                                double learning_rate, float* losses);
  exec::Program* start_own(const Part& part, int64_t num_micro, FunctionRef<MicroBatch()> next, int64_t step,
                           double learning_rate, float* losses);
  /// A copy of a micro-batch that stays until the update is done.
  MicroBatch keep(const MicroBatch& batch, int64_t index);
  void bind_micro(exec::Program& program, int64_t number, const MicroBatch& batch, int64_t step,
                  int64_t index);
  double evaluate_stage(const MicroBatch& batch);
  SumOptions sums() const;
  void add_levels();
  /// After the micro-batches of this engine's shard `number`, which is not its last.
  void finish_shard(int64_t number);
  /// All losses of an update, from each worker its own. Returns the seconds that this worker waited for the
  /// others since the update began. Throws what its collectives failed with.
  double gather_losses(float* losses);
  /// With what the processor's exchanges were waited for since the last time.
  double waited_since(std::chrono::steady_clock::time_point start);
  /// Whether this worker makes updates of its own.
  bool works_alone() const { return options_.local.steps > 1 && options_.num_workers > 1; }
  /// Adds what a checkpoint holds of each worker to a graph of an update.
  void add_own_places(ir::Graph& graph) const;
  Part part_of(int64_t num_micro, int64_t num_samples) const;
  /// The mean over all workers.
  double gather_norms(double norm);
  /// `is_present`: whether the update has the micro-batch.
  static void set_scalars(exec::Program& program, const Part& part, bool is_present, double learning_rate);
  /// Which states worker 0 does not have.
  void find_away();
  /// Makes a batch of zeros that stands in for a micro-batch which an update does not have.
  void make_idle_batch();
  void bind_inputs(exec::Program& program, const MicroBatch& batch, int64_t step, int64_t index);

  /// A graph before it is placed.
  struct Computed {
    passes::TrainGraph train;
    Purpose purpose;
    /// Of the node that makes each value first; -1 elsewhere.
    std::vector<int64_t> workspace_bytes;
  };

  EngineOptions options_;
  ThreadPool threads_;
  std::vector<nn::Tensor> tensors_;
  exec::PersistentLayout layout_;
  exec::Region persistent_;
  exec::Region arena_;
  exec::Region host_arena_;
  enum class Newer : uint8_t { host, gpu };
  std::unique_ptr<exec::SelfTest> self_test_;
  std::unique_ptr<exec::MatmulChoice> products_;
  std::unique_ptr<exec::Gpu> gpu_;
  std::unique_ptr<gpu::HostMemory> pinned_;  ///< in place of persistent_ where some of it stays on the host
  std::byte* image_ = nullptr;               ///< the bytes of layout_ on the host
  std::vector<float> readings_;
  std::unique_ptr<gpu::HostMemory> pinned_readings_;
  int64_t num_readings_ = 0;
  /// The update that was started: its last program, micro-batches and samples.
  struct Started {
    exec::Program* last = nullptr;
    int64_t num_micro = 0;
    int64_t num_samples = 0;
  };
  Started started_;
  mutable Newer newer_ = Newer::host;  ///< whose weights and state count
  int64_t arena_bytes_ = 0;
  int64_t host_arena_bytes_ = 0;
  /// Of an update's last micro-batch, of those before it, of evaluation.
  Programs step_, accumulate_, evaluate_;
  /// Sums of 2^level shards, put away and added to those of the next 2^level.
  struct Level {
    std::unique_ptr<exec::Program> put_away, add;
  };
  std::vector<Level> levels_;
  std::unique_ptr<exec::Program> outer_;  ///< with local steps
  std::vector<RunningStatistic> statistics_;
  std::map<std::string, int> owners_;  ///< of weights, where these or their states are shared out
  distributed::ProcessGroup* team_ = nullptr;
  std::unique_ptr<exec::HostQueue> exchange_queue_;  ///< on the processor, if at all
  double waited_seconds_ = 0;                        ///< of it, before this update
  std::vector<float> own_losses_;
  struct Away {
    const exec::PersistentBuffer* buffer;  ///< where worker 0 keeps it
    int owner;
    const exec::PersistentBuffer* source;  ///< where the owner has it
  };
  std::optional<std::vector<Away>> away_;  ///< what find_away() found
  exec::Region zeros_;
  MicroBatch idle_batch_;
  std::vector<Computed> computed_;  ///< of a measure_only engine
  passes::RecomputeResult recompute_;
  std::map<std::string, int64_t> workspace_cache_;
  std::vector<std::string> input_names_;
  std::vector<std::string> tables_;  ///< weights that Builder::table made
  static constexpr int64_t kCounterSize = 16;
  std::vector<int64_t> counter_;  ///< so many for each micro-batch whose dropout is drawn at once
  const exec::Program* evaluated_ = nullptr;
  /// Of a pipeline.
  struct Pipeline {
    std::map<std::string, int> homes;  ///< Stages::homes, and those of what the optimizer keeps of weights
    std::vector<ir::Value> values;     ///< what a checkpoint holds, in its order
    int64_t num_micro = 1;             ///< of the program in step_, which updates
    /// Programs of one micro-batch, with the update or without, for what comes in other numbers.
    std::map<std::pair<BatchShape, bool>, std::unique_ptr<exec::Program>> singles;
    std::map<BatchShape, std::vector<int64_t>> input_bytes;  ///< of each input; 0: not read here
    struct Output {
      int stage = 0;
      int64_t num_elements = 0;
    };
    std::map<BatchShape, std::vector<Output>> outputs;  ///< of an evaluation
    std::vector<std::vector<float>> gathered;           ///< of the last one
    exec::Region inputs;                                ///< copies of an update's micro-batches
    int64_t slot_bytes = 0;                             ///< of each
    double flops = 0;                                   ///< of an update, by all stages
  };
  Pipeline pipeline_;
  bool has_losses_ = true;
  distributed::Heartbeat heartbeat_;
};

}  // namespace hearth::engine
