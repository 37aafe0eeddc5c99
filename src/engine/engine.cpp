#include "engine/engine.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "engine/graph_builder.h"
#include "engine/parallel/strategy.h"
#include "engine/runtime.h"
#include "ir/state_name.h"

namespace hearth::engine {
namespace {

/// Indices in Runtime::readings(): the loss scale, the sum of squares of the gradients, then the loss of each
/// micro-batch. A GPU copies these values to the host as part of the update.
enum Reading : size_t { kScale, kSumSquares, kFirstLoss };

float* readings(Runtime& runtime) {
  return runtime.readings(kFirstLoss + static_cast<size_t>(runtime.plan().options.accumulate));
}

}  // namespace

Engine::Engine(const EngineOptions& options, std::span<const int64_t> train_sizes,
               std::span<const int64_t> eval_sizes)
    : runtime_(std::make_unique<Runtime>(options, train_sizes, eval_sizes)),
      strategy_(make_strategy(plan().options.parallel)) {
  strategy_->open(*runtime_);
}

Engine::~Engine() = default;

const Plan& Engine::plan() const { return std::as_const(*runtime_).plan(); }

DeviceReport Engine::device() const {
  static const std::map<std::string, std::string> kNone;
  const DeviceChecks checks = runtime_->checks();
  exec::Gpu* gpu = runtime_->memory().gpu();
  DeviceReport report{.gpu = gpu == nullptr ? nullptr : &gpu->device().info(),
                      .failed_kernels = checks.kernels != nullptr ? checks.kernels->failures() : kNone};
  if (gpu != nullptr) report.recording_fault = gpu->recorder().fault();
  if (checks.matmuls != nullptr) {
    report.rejected_matmuls = checks.matmuls->dropped();
    report.replaced_matmuls = checks.matmuls->replaced();
  }
  return report;
}

ThreadPool& Engine::threads() { return runtime_->threads(); }

void Engine::join(distributed::ProcessGroup& group) {
  runtime_->join(group, strategy_->needs_exchange_queue());
}

data::LoaderShare Engine::share() const { return strategy_->share(plan().options); }

const distributed::Heartbeat& Engine::heartbeat() const { return runtime_->heartbeat(); }

void Engine::set_heartbeat(const distributed::Heartbeat& heartbeat) { runtime_->set_heartbeat(heartbeat); }

void Engine::initialize() {
  const exec::PersistentLayout& layout = *plan().layout;
  for (const nn::Tensor& tensor : plan().tensors) {
    const exec::PersistentBuffer* buffer = layout.find(tensor.name);
    if (buffer == nullptr || buffer->role == ir::Role::frozen || buffer->role == ir::Role::remote) continue;
    const std::span<float> memory = values(*this, tensor.name);
    nn::initialize(tensor, plan().options.seed, memory, threads());
    copy_to_states(*this, tensor.name);
  }
  if (layout.find(kLossScale) != nullptr) values(*this, kLossScale)[0] = 65536.0F;
}

void Engine::start_step(int64_t num_micro, int64_t num_samples, FunctionRef<MicroBatch()> next, int64_t step,
                        double learning_rate) {
  float* const read = readings(*runtime_);
  runtime_->memory().sync_gpu();
  // The gradients of this step are multiplied by this loss scale. The update may change it.
  runtime_->memory().read_loss_scale(&read[kScale]);
  if (runtime_->group() != nullptr) runtime_->group()->start_step(step + 1);
  started_ = {.last = nullptr, .num_micro = num_micro, .num_samples = num_samples};
  const auto next_sorted = [&] { return runtime_->sorted(next()); };
  const Update update{.num_micro = num_micro,
                      .num_samples = num_samples,
                      .next = next_sorted,
                      .step = step,
                      .learning_rate = learning_rate};
  exec::Executor* last = strategy_->start(*runtime_, update, &read[kFirstLoss]);
  started_.last = last;
  if (last != nullptr) last->read(last->graph().outputs.back(), &read[kSumSquares]);
}

StepResult Engine::finish_step() {
  const auto [last, num_micro, num_samples] = started_;
  float* const read = readings(*runtime_);
  double norm = 0;
  if (last != nullptr) {
    last->wait();
    norm = std::sqrt(static_cast<double>(read[kSumSquares])) / read[kScale];
  }
  StepResult result{.grad_norm = strategy_->global_norm(*runtime_, norm), .num_samples = num_samples};
  if (runtime_->group() != nullptr) {
    runtime_->group()->check();
    const auto start = std::chrono::steady_clock::now();
    strategy_->gather_losses(*runtime_, &read[kFirstLoss]);
    result.exchange_seconds = runtime_->exchange_seconds(start);
  }
  for (int64_t i = 0; i < num_micro; ++i) result.loss += read[kFirstLoss + static_cast<size_t>(i)];
  result.skipped = !std::isfinite(result.grad_norm);
  result.loss /= static_cast<double>(num_samples);
  return result;
}

void Engine::stage_ahead(const MicroBatch& batch) {
  strategy_->stage_ahead(*runtime_, runtime_->sorted(batch));
}

void Engine::outer_step() { strategy_->outer_step(*runtime_); }

void Engine::prune(double sparsity, double dropped) {
  exec::Executor& prune = runtime_->executor(*plan().prune);
  prune.set_scalar(kPruneSparsity, static_cast<float>(sparsity));
  if (plan().options.prune.method == PruneMethod::rigl)
    prune.set_scalar(kDroppedSparsity, static_cast<float>(dropped));
  runtime_->run(prune);
}

double Engine::evaluate(const MicroBatch& batch) {
  return strategy_->evaluate(*runtime_, runtime_->sorted(batch));
}

std::span<const int32_t> Engine::int_output(size_t index) const {
  const std::span<const float> same = output(index);
  return {reinterpret_cast<const int32_t*>(same.data()), same.size()};
}

std::span<const float> Engine::output(size_t index) const {
  return strategy_->output((plan().has_losses ? kFirstOther : kLossSum) + index);
}

void Engine::gather_states() { runtime_->gather_states(); }

void Engine::restore_local_states() { runtime_->restore_local_states(); }

std::span<std::byte> Engine::state() const {
  const exec::PersistentLayout& layout = *plan().layout;
  const int64_t frozen = layout.frozen_bytes(), end = layout.num_bytes() - layout.carried_bytes();
  return {runtime_->memory().host_image() + frozen, static_cast<size_t>(end - frozen)};
}

std::byte* Engine::data(const exec::PersistentBuffer& buffer) const {
  return runtime_->memory().host_image() + buffer.offset;
}

std::span<float> values(const Engine& engine, const std::string& name) {
  const exec::PersistentBuffer& buffer = engine.plan().layout->at(name);
  HEARTH_CHECK(buffer.type.dtype == DType::f32);
  return {reinterpret_cast<float*>(engine.data(buffer)),
          static_cast<size_t>(buffer.type.shape.num_elements())};
}

double loss_scale(const Engine& engine) {
  float scale = 1;
  engine.runtime_->memory().read_loss_scale(&scale);
  if (exec::Gpu* gpu = engine.runtime_->memory().gpu()) gpu->wait();
  return scale;
}

std::vector<LayerSparsity> layer_sparsity(const Engine& engine) {
  std::vector<LayerSparsity> layers;
  const exec::PersistentLayout& layout = *engine.plan().layout;
  for (const PrunedWeight& weight : engine.plan().pruned) {
    const exec::PersistentBuffer& mask = layout.at(ir::spell(ir::StateKind::mask, weight.name));
    LayerSparsity layer{.name = weight.name, .num_weights = layout.at(weight.name).type.shape.num_elements()};
    const auto* bytes = reinterpret_cast<const uint8_t*>(engine.data(mask));
    for (int64_t i = 0; i < mask.type.num_bytes(); ++i) layer.num_pruned += std::popcount(bytes[i]);
    layers.push_back(std::move(layer));
  }
  return layers;
}

void copy_to_states(Engine& engine, const std::string& weight) {
  for (const ir::StateKind kind : {ir::StateKind::average, ir::StateKind::anchor}) {
    const std::string copy = ir::spell(kind, weight);
    if (engine.plan().layout->find(copy) != nullptr)
      std::ranges::copy(values(engine, weight), values(engine, copy).begin());
  }
}

std::unique_ptr<Engine> evaluation_engine(EngineOptions options, std::span<const int64_t> eval_sizes) {
  options.accumulate = 1;
  options.optimizer.ema_decay = 0;
  return std::make_unique<Engine>(options, std::span<const int64_t>(), eval_sizes);
}

}  // namespace hearth::engine
