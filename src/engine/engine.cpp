#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "engine/runtime.h"
#include "ir/state_name.h"

namespace hearth::engine {

Engine::Engine(const EngineOptions& options, std::span<const int64_t> train_sizes,
               std::span<const int64_t> eval_sizes)
    : runtime_(std::make_unique<Runtime>(options, train_sizes, eval_sizes)) {}

Engine::~Engine() = default;

const Plan& Engine::plan() const { return *runtime_->plan; }

DeviceReport Engine::device() const {
  static const std::map<std::string, std::string> kNone;
  exec::Gpu* gpu = runtime_->memory->gpu();
  DeviceReport report{.gpu = gpu == nullptr ? nullptr : &gpu->device().info(),
                      .distrusted = runtime_->self_test ? runtime_->self_test->failures() : kNone};
  if (gpu != nullptr) report.recording_fault = gpu->recorder().fault;
  if (runtime_->matmul_choice) report.dropped_matmuls = runtime_->matmul_choice->dropped();
  return report;
}

ThreadPool& Engine::threads() { return runtime_->threads; }

void Engine::join(distributed::ProcessGroup& group) { runtime_->join(group); }

data::LoaderShare Engine::share() const { return runtime_->strategy->share(plan().options); }

const distributed::Heartbeat& Engine::heartbeat() const { return runtime_->heartbeat; }

void Engine::set_heartbeat(const distributed::Heartbeat& heartbeat) {
  runtime_->heartbeat = heartbeat;
  heartbeat.allow(plan().allowed_seconds());
}

void Engine::initialize() {
  const exec::PersistentLayout& layout = *plan().layout;
  for (const nn::Tensor& tensor : plan().tensors) {
    const exec::PersistentBuffer* buffer = layout.find(tensor.name);
    if (buffer == nullptr || buffer->role == ir::Role::frozen || buffer->role == ir::Role::remote) continue;
    const std::span<float> memory = values(*this, tensor.name);
    nn::initialize(tensor, plan().options.seed, memory, threads());
    copy_first(*this, tensor.name);
  }
  if (layout.find(kLossScale) != nullptr) values(*this, kLossScale)[0] = 65536.0F;
}

void Engine::start_step(int64_t num_micro, int64_t num_samples, FunctionRef<MicroBatch()> next, int64_t step,
                        double learning_rate) {
  float* readings = runtime_->readings();
  runtime_->memory->to_gpu();
  // The update changes the loss scale that this step's gradients carry.
  runtime_->memory->read_loss_scale(&readings[kScale]);
  if (runtime_->group != nullptr) runtime_->group->start_step(step + 1);
  runtime_->started = {.last = nullptr, .num_micro = num_micro, .num_samples = num_samples};
  const Update update{.num_micro = num_micro,
                      .num_samples = num_samples,
                      .next = next,
                      .step = step,
                      .learning_rate = learning_rate};
  exec::Executor* last = runtime_->strategy->start(*runtime_, update, &readings[kFirstLoss]);
  runtime_->started.last = last;
  if (last != nullptr) last->read(last->graph().outputs.back(), &readings[kSumSquares]);
}

StepResult Engine::finish_step() {
  const auto [last, num_micro, num_samples] = runtime_->started;
  float* readings = runtime_->readings();
  double norm = 0;
  if (last != nullptr) {
    last->wait();
    norm = std::sqrt(static_cast<double>(readings[kSumSquares])) / readings[kScale];
  }
  Strategy& strategy = *runtime_->strategy;
  StepResult result{.grad_norm = strategy.norm_of_all(*runtime_, norm), .num_samples = num_samples};
  if (runtime_->group != nullptr) {
    runtime_->group->check();
    const auto start = std::chrono::steady_clock::now();
    strategy.gather_losses(*runtime_, &readings[kFirstLoss]);
    result.exchange_seconds = runtime_->waited_since(start);
  }
  for (int64_t i = 0; i < num_micro; ++i) result.loss += readings[kFirstLoss + static_cast<size_t>(i)];
  result.skipped = !std::isfinite(result.grad_norm);
  result.loss /= static_cast<double>(num_samples);
  return result;
}

void Engine::stage_ahead(const MicroBatch& batch) { runtime_->strategy->stage_ahead(*runtime_, batch); }

void Engine::move_together() { runtime_->strategy->move_together(*runtime_); }

double Engine::evaluate(const MicroBatch& batch) { return runtime_->strategy->evaluate(*runtime_, batch); }

std::span<const int32_t> Engine::whole_output(size_t position) const {
  const std::span<const float> same = output(position);
  return {reinterpret_cast<const int32_t*>(same.data()), same.size()};
}

std::span<const float> Engine::output(size_t position) const {
  return runtime_->strategy->output(*runtime_, (plan().has_losses ? kFirstOther : kLossSum) + position);
}

void Engine::gather_states() { runtime_->gather_states(); }

void Engine::take_own_states() { runtime_->take_own_states(); }

std::span<std::byte> Engine::state() const {
  const exec::PersistentLayout& layout = *plan().layout;
  const int64_t frozen = layout.frozen_bytes(), end = layout.num_bytes() - layout.carried_bytes();
  return {runtime_->memory->on_host() + frozen, static_cast<size_t>(end - frozen)};
}

std::byte* Engine::data(const exec::PersistentBuffer& buffer) const {
  return runtime_->memory->on_host() + buffer.offset;
}

std::span<float> values(const Engine& engine, const std::string& name) {
  const exec::PersistentBuffer& buffer = engine.plan().layout->at(name);
  HEARTH_CHECK(buffer.type.dtype == DType::f32);
  return {reinterpret_cast<float*>(engine.data(buffer)),
          static_cast<size_t>(buffer.type.shape.num_elements())};
}

double loss_scale(const Engine& engine) {
  float scale = 1;
  engine.runtime_->memory->read_loss_scale(&scale);
  if (exec::Gpu* gpu = engine.runtime_->memory->gpu()) gpu->wait();
  return scale;
}

void copy_first(Engine& engine, const std::string& weight) {
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
