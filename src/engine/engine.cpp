#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "engine/running.h"
#include "ir/state_name.h"

namespace hearth::engine {

Engine::Engine(const EngineOptions& options, std::span<const int64_t> train_sizes,
               std::span<const int64_t> eval_sizes)
    : running_(std::make_unique<Running>(options, train_sizes, eval_sizes)) {}

Engine::~Engine() = default;

const Compiled& Engine::compiled() const { return *running_->compiled; }

DeviceReport Engine::device() const {
  static const std::map<std::string, std::string> kNone;
  exec::Gpu* gpu = running_->memory->gpu();
  DeviceReport report{.gpu = gpu == nullptr ? nullptr : &gpu->device().info(),
                      .distrusted = running_->self_test ? running_->self_test->failures() : kNone};
  if (gpu != nullptr) report.recording_fault = gpu->recorder().fault;
  if (running_->matmul_choice) report.dropped_matmuls = running_->matmul_choice->dropped();
  return report;
}

ThreadPool& Engine::threads() { return running_->threads; }

void Engine::join(distributed::ProcessGroup& group) { running_->join(group); }

data::LoaderShare Engine::share() const { return running_->strategy->share(compiled().options); }

const distributed::Heartbeat& Engine::heartbeat() const { return running_->heartbeat; }

void Engine::set_heartbeat(const distributed::Heartbeat& heartbeat) {
  running_->heartbeat = heartbeat;
  heartbeat.allow(compiled().allowed_seconds());
}

void Engine::initialize() {
  const exec::PersistentLayout& layout = *compiled().layout;
  for (const nn::Tensor& tensor : compiled().tensors) {
    const exec::PersistentBuffer* buffer = layout.find(tensor.name);
    if (buffer == nullptr || buffer->role == ir::Role::frozen || buffer->role == ir::Role::remote) continue;
    const std::span<float> memory = values(*this, tensor.name);
    nn::initialize(tensor, compiled().options.seed, memory, threads());
    copy_first(*this, tensor.name);
  }
  if (layout.find(kLossScale) != nullptr) values(*this, kLossScale)[0] = 65536.0F;
}

void Engine::start_step(int64_t num_micro, int64_t num_samples, FunctionRef<MicroBatch()> next, int64_t step,
                        double learning_rate) {
  float* readings = running_->readings();
  running_->memory->to_gpu();
  // The update changes the loss scale that this step's gradients carry.
  running_->memory->read_loss_scale(&readings[kScale]);
  if (running_->group != nullptr) running_->group->start_step(step + 1);
  running_->started = {.last = nullptr, .num_micro = num_micro, .num_samples = num_samples};
  const Update update{.num_micro = num_micro,
                      .num_samples = num_samples,
                      .next = next,
                      .step = step,
                      .learning_rate = learning_rate};
  exec::Executor* last = running_->strategy->start(*running_, update, &readings[kFirstLoss]);
  running_->started.last = last;
  if (last != nullptr) last->read(last->graph().outputs.back(), &readings[kSumSquares]);
}

StepResult Engine::finish_step() {
  const auto [last, num_micro, num_samples] = running_->started;
  float* readings = running_->readings();
  double norm = 0;
  if (last != nullptr) {
    last->wait();
    norm = std::sqrt(static_cast<double>(readings[kSumSquares])) / readings[kScale];
  }
  Strategy& strategy = *running_->strategy;
  StepResult result{.grad_norm = strategy.norm_of_all(*running_, norm), .num_samples = num_samples};
  if (running_->group != nullptr) {
    running_->group->check();
    const auto start = std::chrono::steady_clock::now();
    strategy.gather_losses(*running_, &readings[kFirstLoss]);
    result.exchange_seconds = running_->waited_since(start);
  }
  for (int64_t i = 0; i < num_micro; ++i) result.loss += readings[kFirstLoss + static_cast<size_t>(i)];
  result.skipped = !std::isfinite(result.grad_norm);
  result.loss /= static_cast<double>(num_samples);
  return result;
}

void Engine::stage_ahead(const MicroBatch& batch) { running_->strategy->stage_ahead(*running_, batch); }

void Engine::move_together() { running_->strategy->move_together(*running_); }

double Engine::evaluate(const MicroBatch& batch) { return running_->strategy->evaluate(*running_, batch); }

std::span<const int32_t> Engine::whole_output(size_t position) const {
  const std::span<const float> same = output(position);
  return {reinterpret_cast<const int32_t*>(same.data()), same.size()};
}

std::span<const float> Engine::output(size_t position) const {
  return running_->strategy->output(*running_, (compiled().has_losses ? kFirstOther : kLossSum) + position);
}

void Engine::gather_states() { running_->gather_states(); }

void Engine::take_own_states() { running_->take_own_states(); }

std::span<std::byte> Engine::state() const {
  const exec::PersistentLayout& layout = *compiled().layout;
  const int64_t frozen = layout.frozen_bytes(), end = layout.num_bytes() - layout.carried_bytes();
  return {running_->memory->on_host() + frozen, static_cast<size_t>(end - frozen)};
}

std::byte* Engine::data(const exec::PersistentBuffer& buffer) const {
  return running_->memory->on_host() + buffer.offset;
}

std::span<float> values(const Engine& engine, const std::string& name) {
  const exec::PersistentBuffer& buffer = engine.compiled().layout->at(name);
  HEARTH_CHECK(buffer.type.dtype == DType::f32);
  return {reinterpret_cast<float*>(engine.data(buffer)),
          static_cast<size_t>(buffer.type.shape.num_elements())};
}

double loss_scale(const Engine& engine) {
  float scale = 1;
  engine.running_->memory->read_loss_scale(&scale);
  if (exec::Gpu* gpu = engine.running_->memory->gpu()) gpu->wait();
  return scale;
}

void copy_first(Engine& engine, const std::string& weight) {
  for (const ir::StateKind kind : {ir::StateKind::average, ir::StateKind::anchor}) {
    const std::string copy = ir::spell(kind, weight);
    if (engine.compiled().layout->find(copy) != nullptr)
      std::ranges::copy(values(engine, weight), values(engine, copy).begin());
  }
}

std::unique_ptr<Engine> evaluation_engine(EngineOptions options, std::span<const int64_t> eval_sizes) {
  options.accumulate = 1;
  options.optimizer.ema_decay = 0;
  return std::make_unique<Engine>(options, std::span<const int64_t>(), eval_sizes);
}

}  // namespace hearth::engine
