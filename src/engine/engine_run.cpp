#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "engine/engine.h"

namespace hearth::engine {
namespace {

using ir::ValueId;

/// Positions in the outputs of a graph: in training the optimizer (or the list of gradients) comes second, in
/// evaluation what the objective hands out.
enum Output : size_t { kLossSum = 0, kFirstOther = 1 };

/// What is read of a step: queued with its work, and waited for once.
enum Reading : size_t { kScale, kSumSquares, kFirstLoss };

float scalar_output(const exec::Program& program, size_t position) {
  return *static_cast<const float*>(program.data(program.graph().outputs[position]));
}

bool all_finite(const exec::Program& program, ValueId id) {
  const ir::Type& type = program.graph().type(id);
  if (!is_floating(type.dtype)) return true;
  const void* data = program.data(id);
  for (int64_t i = 0; i < type.shape.num_elements(); ++i) {
    if (!std::isfinite(load_element(type.dtype, data, i))) return false;
  }
  return true;
}

/// What a node was given that is not finite already, as the end of a sentence.
std::string broken_weight(const exec::Program& program, const ir::Node& node) {
  for (const ValueId in : node.inputs) {
    if (in == ir::kNone) continue;
    const ir::Value& value = program.graph().value(in);
    if (value.role != ir::Role::parameter || value.producer != ir::kNone || all_finite(program, in)) continue;
    return fmt::format(" (its weight {} is not finite any more)", value.name);
  }
  return "";
}

/// The first row of an input that holds a number that is not finite, or -1.
int64_t broken_row(const ir::Type& type, const void* data) {
  if (!is_floating(type.dtype)) return -1;
  const int64_t count = type.shape.num_elements();
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(load_element(type.dtype, data, i))) return i / (count / type.shape[0]);
  }
  return -1;
}

}  // namespace

/// The memory of a program that runs beside the others.
class Engine::Room {
 public:
  Room(const exec::Program& program, exec::Gpu* gpu, std::byte* image) {
    if (gpu != nullptr) {
      exec::GpuRoom::Needs needs;
      needs.cover(program);
      on_gpu_.emplace(gpu->device(), needs);
      places_ = gpu->places_in(*on_gpu_);
    } else {
      arena_ = exec::Region(program.arena_bytes());
      host_ = exec::Region(program.report().host_bytes);
      places_ = {.persistent = image, .arena = arena_.data(), .host = host_.data()};
    }
  }
  const exec::Places& places() const { return places_; }

 private:
  exec::Region arena_, host_;
  std::optional<exec::GpuRoom> on_gpu_;
  exec::Places places_;
};

std::unique_ptr<Engine::Room> Engine::bind_alone(exec::Program& program) {
  auto room = std::make_unique<Room>(program, gpu_.get(), image_);
  program.bind(room->places());
  return room;
}

std::byte* Engine::persistent() const {
  if (gpu_ && newer_ == Newer::gpu) gpu_->download();
  newer_ = Newer::host;
  return image_;
}

void Engine::to_gpu() {
  if (gpu_ && newer_ == Newer::host) gpu_->upload();
  newer_ = Newer::gpu;
}

void Engine::run(exec::Program& program) {
  to_gpu();
  program.run(threads_);
}

std::span<float> Engine::values(const std::string& name) const {
  const exec::PersistentBuffer& buffer = layout_.at(name);
  HEARTH_CHECK(buffer.type.dtype == DType::f32);
  return {reinterpret_cast<float*>(data(buffer)), static_cast<size_t>(buffer.type.shape.num_elements())};
}

void Engine::initialize() {
  for (const nn::Tensor& tensor : tensors_) {
    const exec::PersistentBuffer* buffer = layout_.find(tensor.name);
    if (buffer == nullptr || buffer->role == ir::Role::frozen || buffer->role == ir::Role::remote) continue;
    const std::span<float> memory = values(tensor.name);
    nn::initialize(tensor, options_.seed, memory, threads_);
    copy_first(tensor.name);
  }
  if (layout_.find(kLossScale) != nullptr) values(kLossScale)[0] = 65536.0F;
}

void Engine::bind_inputs(exec::Program& program, const MicroBatch& batch, int64_t step, int64_t index) {
  // Each micro-batch of a group has its own line, so that dropout differs between them.
  counter_[0] = step;
  counter_[1] = index;
  for (size_t i = 0; i < input_names_.size(); ++i) program.bind_input(input_names_[i], batch.inputs[i]);
  if (program.has_input("counter")) program.bind_input("counter", counter_.data());
}

float* Engine::readings(int64_t count) {
  if (count > num_readings_) {
    num_readings_ = count;
    if (gpu_) {
      pinned_readings_ =
          std::make_unique<gpu::HostMemory>(gpu_->device(), count * static_cast<int64_t>(sizeof(float)));
    } else {
      readings_.resize(static_cast<size_t>(count));
    }
  }
  return gpu_ ? reinterpret_cast<float*>(pinned_readings_->data()) : readings_.data();
}

void Engine::read_loss_scale(float* to) const {
  const exec::PersistentBuffer* scale = layout_.find(kLossScale);
  *to = 1;
  if (scale == nullptr) return;
  if (gpu_ && newer_ == Newer::gpu) {
    gpu_->read(*scale, to, sizeof *to);
  } else {
    std::memcpy(to, image_ + scale->offset, sizeof *to);
  }
}

void Engine::start_step(int64_t num_micro, int64_t num_samples, FunctionRef<MicroBatch()> next, int64_t step,
                        double learning_rate) {
  float* readings = this->readings(kFirstLoss + options_.accumulate);
  to_gpu();
  // The update changes the loss scale that this step's gradients carry.
  read_loss_scale(&readings[kScale]);
  if (team_ != nullptr) team_->start_step(step + 1);
  const Part part = part_of(num_micro, num_samples);
  float* const losses = &readings[kFirstLoss];
  started_ = {.last = nullptr, .num_micro = num_micro, .num_samples = num_samples};
  started_.last = is_pipeline() ? start_pipeline(part, next, step, learning_rate, losses)
                                : start_own(part, num_micro, next, step, learning_rate, losses);
  if (started_.last == nullptr) return;
  started_.last->read(started_.last->graph().outputs.back(), &readings[kSumSquares]);
}

exec::Program* Engine::start_own(const Part& part, int64_t num_micro, FunctionRef<MicroBatch()> next,
                                 int64_t step, double learning_rate, float* losses) {
  const data::LoaderShare own = share();
  const int64_t shard_size = options_.accumulate / options_.shards;
  // Where sums have no shape to keep, the last micro-batch that there is makes the update.
  const int64_t last = part.num_micro == 0    ? -1
                       : options_.shards == 1 ? std::min(own.count, num_micro) - 1
                                              : own.count - 1;
  exec::Program* started = nullptr;
  for (int64_t k = 0; k <= last; ++k) {
    const int64_t i = own.first + k;
    const bool is_present = i < num_micro;
    // Whoever has weights of others sends its own to all of them in every micro-batch.
    if (is_present || k == last || shards_weights()) {
      const MicroBatch batch = is_present ? next() : idle_batch_;
      exec::Program& program = *(k == last ? step_ : accumulate_).at(batch.shape());
      set_scalars(program, part, is_present, learning_rate);
      bind_inputs(program, batch, step, i);
      program.start(threads_);
      program.read(program.graph().outputs[kLossSum], &losses[i]);
      heartbeat_.beat();
      started = &program;
    }
    if (k < last && (k + 1) % shard_size == 0) finish_shard(k / shard_size);
  }
  return started;
}

void Engine::set_scalars(exec::Program& program, const Part& part, bool is_present, double learning_rate) {
  program.set_scalar(kInverseSamples, is_present ? static_cast<float>(1.0 / part.num_samples) : 0.0F);
  program.set_scalar(kPresent, is_present ? 1.0F : 0.0F);
  program.set_scalar(kInverseMicro, static_cast<float>(1.0 / static_cast<double>(part.num_micro)));
  program.set_scalar(kLearningRate, static_cast<float>(learning_rate));
  program.set_scalar("one", 1.0F);
}

StepResult Engine::finish_step() {
  const auto [last, num_micro, num_samples] = started_;
  float* readings = this->readings(kFirstLoss + options_.accumulate);
  double norm = 0;
  if (last != nullptr) {
    last->wait();
    norm = std::sqrt(static_cast<double>(readings[kSumSquares])) / readings[kScale];
  }
  StepResult result{.grad_norm = works_alone() ? gather_norms(norm) : norm, .num_samples = num_samples};
  if (team_ != nullptr) result.exchange_seconds = gather_losses(&readings[kFirstLoss]);
  for (int64_t i = 0; i < num_micro; ++i) result.loss += readings[kFirstLoss + static_cast<size_t>(i)];
  result.skipped = !std::isfinite(result.grad_norm);
  result.loss /= static_cast<double>(num_samples);
  return result;
}

void Engine::stage_ahead(const MicroBatch& batch) {
  // A pipeline keeps copies of a whole update's micro-batches.
  if (is_pipeline()) return;
  exec::Program& program = *(accumulate_.empty() ? step_ : accumulate_).at(batch.shape());
  bind_inputs(program, batch, counter_[0], counter_[1]);
  program.stage_ahead();
}

double Engine::evaluate(const MicroBatch& batch) {
  if (is_pipeline()) return evaluate_stage(batch);
  exec::Program& program = *evaluate_.at(batch.shape());
  bind_inputs(program, batch, 0, 0);
  run(program);
  if (team_ != nullptr) team_->check();
  heartbeat_.beat();
  evaluated_ = &program;
  return has_losses_ ? scalar_output(program, kLossSum) : 0;
}

std::span<const float> Engine::output(size_t position) const {
  const size_t place = (has_losses_ ? kFirstOther : kLossSum) + position;
  if (is_pipeline()) return pipeline_.gathered.at(place);
  HEARTH_CHECK(evaluated_ != nullptr);
  const ValueId id = evaluated_->graph().outputs.at(place);
  return {static_cast<const float*>(evaluated_->data(id)),
          static_cast<size_t>(evaluated_->graph().type(id).shape.num_elements())};
}

double Engine::loss_scale() const {
  float scale = 1;
  read_loss_scale(&scale);
  if (gpu_) gpu_->wait();
  return scale;
}

std::string Engine::find_not_finite(const MicroBatch& batch, int64_t step, int64_t index) {
  const std::unique_ptr<exec::Program> program = compile(Purpose::gradients, batch.shape());
  for (size_t i = 0; i < input_names_.size(); ++i) {
    const ValueId input = *program->graph().find(input_names_[i]);
    const int64_t row = broken_row(program->graph().type(input), batch.inputs[i]);
    if (row >= 0) return fmt::format("the data ({} of row {} of its micro-batch)", input_names_[i], row);
  }
  const std::unique_ptr<Room> room = bind_alone(*program);
  program->set_scalar(kInverseSamples, static_cast<float>(1.0 / static_cast<double>(batch.num_rows)));
  bind_inputs(*program, batch, step, index);
  std::string found;
  to_gpu();
  program->run_with(threads_, [&](size_t node) {
    if (!found.empty()) return;
    const ir::Node& made = program->graph().nodes[node];
    for (const ValueId out : made.outputs) {
      if (!found.empty() || all_finite(*program, out)) continue;
      found = fmt::format("{} of {}{}", made.op->name, made.name, broken_weight(*program, made));
    }
  });
  return found;
}

std::vector<double> Engine::profile(const MicroBatch& batch, int num_steps) {
  using Clock = std::chrono::steady_clock;
  exec::Program& program = *step_.at(batch.shape());
  std::vector<double> best(program.graph().nodes.size(), 1e9);
  to_gpu();
  for (int i = 0; i < num_steps; ++i) {
    auto before = Clock::now();
    program.run_with(threads_, [&](size_t node) {
      const auto now = Clock::now();
      best[node] = std::min(best[node], std::chrono::duration<double>(now - before).count());
      before = Clock::now();
    });
  }
  for (double& seconds : best) seconds = seconds == 1e9 ? 0 : seconds;
  return best;
}

void Engine::gradients(const MicroBatch& batch, int64_t num_samples,
                       const std::function<void(const nn::Tensor&, std::span<const float>)>& take) {
  passes::TrainGraph train = build_graph(Purpose::gradients, batch.shape());
  const std::unique_ptr<exec::Program> program = finish(std::move(train), Purpose::gradients);
  const std::unique_ptr<Room> room = bind_alone(*program);
  const std::vector<std::byte> kept(state().begin(), state().end());
  program->set_scalar(kInverseSamples, static_cast<float>(1.0 / static_cast<double>(num_samples)));
  bind_inputs(*program, batch, 0, 0);
  run(*program);
  const double scale = loss_scale();
  size_t position = kFirstOther;
  for (const nn::Tensor& tensor : tensors_) {
    if (!tensor.trainable) continue;
    const auto* memory = static_cast<const float*>(program->data(program->graph().outputs[position++]));
    std::vector<float> file(static_cast<size_t>(tensor.layout.file_shape.num_elements()));
    nn::to_file_order(tensor.layout, memory, file.data());
    for (float& value : file) value = static_cast<float>(value / scale);
    take(tensor, file);
  }
  std::copy(kept.begin(), kept.end(), state().begin());
}

}  // namespace hearth::engine
