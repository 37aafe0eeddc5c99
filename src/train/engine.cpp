#include "train/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "ir/text.h"
#include "ops/op_list.h"

namespace hearth::train {
namespace {

using ir::ValueId;

/// Positions in the outputs of a graph: in training the optimiser (or the list of gradients) comes second, in
/// evaluation what the objective hands out.
enum Output : size_t { kLossSum = 0, kFirstOther = 1 };

float scalar_output(const exec::Program& program, size_t position) {
  return *static_cast<const float*>(program.data(program.graph().outputs[position]));
}

/// A key that is equal for nodes whose kernels are equal.
std::string kernel_key(const ir::Graph& graph, const ir::Node& node) {
  std::string key(node.op->name);
  const auto append = [&](int64_t number) {
    key.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  for (const ValueId in : node.inputs) {
    append(in == ir::kNone ? -1 : static_cast<int64_t>(graph.type(in).dtype));
    if (in == ir::kNone) continue;
    append(graph.type(in).shape.rank());
    for (const int64_t size : graph.type(in).shape) append(size);
  }
  return key + ir::print(node.attrs);
}

BatchShape shape_of(const MicroBatch& batch) {
  return {.num_rows = batch.num_rows, .row_length = batch.row_length};
}

void use_average(ir::Graph& graph) {
  for (ir::Value& value : graph.values) {
    if (value.role == ir::Role::parameter && value.producer == ir::kNone) value.name = kAverage + value.name;
    if (value.role == ir::Role::parameter) value.role = ir::Role::state;
  }
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

Engine::Engine(EngineOptions options, std::span<const int64_t> train_sizes,
               std::span<const int64_t> eval_sizes)
    : options_(std::move(options)), threads_(options_.num_threads), counter_(16, 0) {
  options_.optimizer.dynamic_loss_scale = options_.precision == DType::f16;
  const Purpose purpose = options_.accumulate > 1 ? Purpose::accumulate : Purpose::step;
  std::vector<int64_t> lengths = options_.row_lengths;
  if (lengths.empty()) lengths.push_back(0);
  for (const int64_t length : lengths) {
    for (const int64_t size : train_sizes) {
      const BatchShape shape{.num_rows = size, .row_length = length};
      train_.emplace(shape, compile(purpose, shape));
    }
    for (const int64_t size : eval_sizes) {
      const BatchShape shape{.num_rows = size, .row_length = length};
      if (!evaluate_.contains(shape)) evaluate_.emplace(shape, compile(Purpose::evaluate, shape));
    }
  }
  if (purpose == Purpose::accumulate) {
    update_ = finish(make_update_graph(train_program().graph(), options_.optimizer, tables_), Purpose::step);
  }
  if (options_.backend != exec::Backend::null && !options_.measure_only) bind_all();
}

Engine::~Engine() = default;

passes::TrainGraph Engine::build_graph(Purpose purpose, BatchShape shape) {
  passes::TrainGraph train;
  const auto mode = purpose == Purpose::evaluate ? nn::Builder::Mode::eval : nn::Builder::Mode::train;
  nn::Builder builder(train.graph, mode, options_.seed, options_.adapter);
  const Objective::Graph built = options_.objective->build(builder, shape);
  builder.check_adapter();
  train.losses = built.losses;
  has_losses_ = built.losses != ir::kNone;
  if (has_losses_)
    train.graph.outputs.push_back(train.graph.add1(*ops::find_op("sum_all"), {built.losses}, {}, "loss"));
  train.graph.outputs.insert(train.graph.outputs.end(), built.outputs.begin(), built.outputs.end());
  if (tensors_.empty()) {
    tensors_ = builder.tensors();
    for (const nn::Tensor& tensor : tensors_) {
      if (tensor.is_table) tables_.push_back(tensor.name);
    }
    for (const ValueId input : built.inputs) input_names_.push_back(train.graph.value(input).name);
    HEARTH_CHECK(input_names_.size() <= MicroBatch{}.inputs.size());
  }
  if (purpose == Purpose::evaluate) {
    if (options_.optimizer.ema_decay > 0) use_average(train.graph);
  } else {
    train.loss_weight = add_loss_weight(train.graph, options_.optimizer);
  }
  return train;
}

std::unique_ptr<exec::Program> Engine::compile(Purpose purpose, BatchShape shape) {
  return finish(build_graph(purpose, shape), purpose);
}

passes::PassContext Engine::context_of(const passes::TrainGraph& train) {
  passes::PassContext context{.precision = options_.precision,
                              .budget_bytes = options_.budget_bytes,
                              .offload = options_.offload,
                              .machine = options_.machine};
  context.off = options_.passes_off;
  context.after_pass = options_.after_pass;
  context.workspace_of = [this, &train](const ir::Node& node) {
    const auto [found, added] = workspace_cache_.try_emplace(kernel_key(train.graph, node), 0);
    if (added) {
      found->second = exec::workspace_bytes(
          train.graph, node, {.backend = options_.backend, .num_threads = options_.num_threads});
    }
    return found->second;
  };
  return context;
}

std::unique_ptr<exec::Program> Engine::finish(passes::TrainGraph train, Purpose purpose) {
  passes::PassContext context = context_of(train);
  const bool updating = train.losses == ir::kNone;
  if (purpose == Purpose::step && !updating) {
    context.consume_gradients = [this](passes::TrainGraph& graph) {
      add_update(graph, options_.optimizer, tables_);
    };
  } else if (purpose == Purpose::accumulate) {
    context.consume_gradients = add_accumulation;
  } else if (purpose == Purpose::gradients) {
    context.consume_gradients = [](passes::TrainGraph& graph) {
      for (const passes::Gradient& gradient : graph.gradients)
        graph.graph.outputs.push_back(gradient.gradient);
    };
  }
  passes::run_passes(train, context, passes::Stage::compute);
  if (options_.measure_only) keep_computed(train, purpose, context.workspace_of);
  return place(train, purpose);
}

void Engine::keep_computed(const passes::TrainGraph& train, Purpose purpose,
                           const passes::WorkspaceOf& workspace_of) {
  std::vector<int64_t> workspace_bytes(train.graph.values.size(), -1);
  for (const ir::Node& node : train.graph.nodes)
    workspace_bytes[static_cast<size_t>(node.outputs.front())] = workspace_of(node);
  computed_.push_back({.train = train, .purpose = purpose, .workspace_bytes = std::move(workspace_bytes)});
}

Engine::Placed Engine::place_within(passes::TrainGraph train, const std::vector<int64_t>& workspace_bytes,
                                    int64_t budget_bytes) {
  passes::PassContext context = context_of(train);
  context.budget_bytes = budget_bytes;
  context.workspace_of = [&, asked = context.workspace_of](const ir::Node& node) {
    // One that works in less has other attributes than when it was asked.
    if (node.op->smaller != nullptr) return asked(node);
    const auto first = static_cast<size_t>(node.outputs.front());
    return first < workspace_bytes.size() && workspace_bytes[first] >= 0 ? workspace_bytes[first]
                                                                         : asked(node);
  };
  passes::run_passes(train, context, passes::Stage::place);
  context.recompute.fits = context.recompute.peak_after_bytes <= options_.budget_bytes;
  exec::CompileOptions compile{
      .backend = options_.backend, .num_threads = options_.num_threads, .pack = !options_.measure_only};
  for (const passes::Gradient& gradient : train.gradients) compile.gradients.push_back(gradient.gradient);
  layout_.add(train.graph);
  Placed placed{.program = nullptr, .recompute = context.recompute};
  placed.program = std::make_unique<exec::Program>(std::move(train.graph), layout_, compile);
  return placed;
}

std::unique_ptr<exec::Program> Engine::place(const passes::TrainGraph& train, Purpose purpose,
                                             const std::vector<int64_t>& workspace_bytes) {
  Placed best = place_within(train, workspace_bytes, options_.budget_bytes);
  // What packs badly packs well with a value more or less.
  const auto lowest = static_cast<double>(best.program->report().bound_bytes);
  for (const double above : {1.01, 1.02, 1.03}) {
    const exec::ArenaReport& report = best.program->report();
    if (best.recompute.num_recomputed == 0 ||
        report.height_bytes <= report.bound_bytes + report.bound_bytes / 100)
      break;
    Placed next = place_within(train, workspace_bytes, static_cast<int64_t>(above * lowest));
    if (next.program->arena_bytes() < best.program->arena_bytes()) best = std::move(next);
  }
  if (purpose == Purpose::step || purpose == Purpose::accumulate) {
    if (best.recompute.peak_before_bytes > recompute_.peak_before_bytes) recompute_ = best.recompute;
  }
  arena_bytes_ = std::max(arena_bytes_, best.program->arena_bytes());
  host_arena_bytes_ = std::max(host_arena_bytes_, best.program->report().host_bytes);
  return std::move(best.program);
}

void Engine::place(const passes::OffloadOptions& offload, int64_t budget_bytes) {
  HEARTH_CHECK(options_.measure_only && train_.size() == 1);
  const auto place = [this](const Computed& computed) {
    return this->place(computed.train, computed.purpose, computed.workspace_bytes);
  };
  options_.offload = offload;
  options_.budget_bytes = budget_bytes;
  layout_ = {};
  arena_bytes_ = host_arena_bytes_ = 0;
  recompute_ = {};
  train_.begin()->second = place(computed_[0]);
  if (update_) update_ = place(computed_[1]);
}

void Engine::bind_all() {
  persistent_ = exec::Region(passes::padded_bytes(layout_.num_bytes()));
  std::vector<exec::Program*> programs;
  for (const auto* kind : {&train_, &evaluate_}) {
    for (const auto& [size, program] : *kind) programs.push_back(program.get());
  }
  if (update_) programs.push_back(update_.get());
  exec::Places places;
  if (options_.backend == exec::Backend::gpu) {
    int64_t staging_bytes = 0;
    for (const exec::Program* program : programs)
      staging_bytes = std::max(staging_bytes, program->staging_bytes());
    constexpr int kFirstCard = 0;
    card_ = std::make_unique<exec::Card>(kFirstCard);
    card_->allocate(layout_.num_bytes(), arena_bytes_, staging_bytes);
    places = card_->places();
  } else {
    arena_ = exec::Region(arena_bytes_);
    host_arena_ = exec::Region(host_arena_bytes_);
    places = {.persistent = persistent_.data(), .arena = arena_.data(), .host = host_arena_.data()};
  }
  for (exec::Program* program : programs) program->bind(places);
}

/// The memory of a program that runs beside the others.
class Engine::Room {
 public:
  Room(const exec::Program& program, exec::Card* card) {
    if (card != nullptr) {
      on_card_ = std::make_unique<gpu::Memory>(
          card->device(), passes::padded_bytes(program.arena_bytes()) + program.staging_bytes());
    } else {
      arena_ = exec::Region(program.arena_bytes());
      host_ = exec::Region(program.report().host_bytes);
    }
  }
  exec::Places places(const exec::Program& program, exec::Card* card, std::byte* persistent) const {
    if (card != nullptr) return card->places_in(*on_card_, program);
    return {.persistent = persistent, .arena = arena_.data(), .host = host_.data()};
  }

 private:
  exec::Region arena_, host_;
  std::unique_ptr<gpu::Memory> on_card_;
};

std::unique_ptr<Engine::Room> Engine::bind_alone(exec::Program& program) {
  auto room = std::make_unique<Room>(program, card_.get());
  program.bind(room->places(program, card_.get(), persistent_.data()));
  return room;
}

std::byte* Engine::persistent() const {
  if (card_ && newer_ == Newer::card) card_->download(persistent_.data());
  newer_ = Newer::host;
  return persistent_.data();
}

void Engine::to_card() {
  if (card_ && newer_ == Newer::host) card_->upload(persistent_.data());
  newer_ = Newer::card;
}

void Engine::run(exec::Program& program) {
  to_card();
  program.run(threads_);
}

std::span<float> Engine::values(const std::string& name) const {
  const exec::PersistentBuffer& buffer = layout_.at(name);
  HEARTH_CHECK(buffer.type.dtype == DType::f32);
  return {reinterpret_cast<float*>(data(buffer)), static_cast<size_t>(buffer.type.shape.num_elements())};
}

void Engine::initialise() {
  for (const nn::Tensor& tensor : tensors_) {
    if (layout_.at(tensor.name).role == ir::Role::frozen) continue;
    const std::span<float> memory = values(tensor.name);
    nn::initialise(tensor, options_.seed, memory, threads_);
    if (layout_.find(kAverage + tensor.name) != nullptr) {
      std::copy(memory.begin(), memory.end(), values(kAverage + tensor.name).begin());
    }
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

StepResult Engine::train_step(int64_t num_micro, int64_t num_samples, FunctionRef<MicroBatch()> next,
                              int64_t step, double learning_rate) {
  StepResult result{.num_samples = num_samples};
  exec::Program* last = update_.get();
  // The update changes the loss scale that this step's gradients carry.
  const double scale = loss_scale();
  for (int64_t i = 0; i < num_micro; ++i) {
    const MicroBatch batch = next();
    exec::Program& program = *train_.at(shape_of(batch));
    program.set_scalar(kInverseSamples, static_cast<float>(1.0 / static_cast<double>(num_samples)));
    program.set_scalar(kLearningRate, static_cast<float>(learning_rate));
    program.set_scalar("one", 1.0F);
    bind_inputs(program, batch, step, i);
    run(program);
    result.loss += scalar_output(program, kLossSum);
    if (!update_) last = &program;
  }
  if (update_) {
    update_->set_scalar(kLearningRate, static_cast<float>(learning_rate));
    update_->set_scalar("one", 1.0F);
    run(*update_);
  }
  const double sum_squares = scalar_output(*last, update_ ? size_t{0} : size_t{kFirstOther});
  result.grad_norm = std::sqrt(sum_squares) / scale;
  result.skipped = !std::isfinite(sum_squares);
  result.loss /= static_cast<double>(num_samples);
  return result;
}

double Engine::evaluate(const MicroBatch& batch) {
  exec::Program& program = *evaluate_.at(shape_of(batch));
  bind_inputs(program, batch, 0, 0);
  run(program);
  evaluated_ = &program;
  return has_losses_ ? scalar_output(program, kLossSum) : 0;
}

std::span<const float> Engine::output(size_t position) const {
  HEARTH_CHECK(evaluated_ != nullptr);
  const ValueId id = evaluated_->graph().outputs.at((has_losses_ ? kFirstOther : kLossSum) + position);
  return {static_cast<const float*>(evaluated_->data(id)),
          static_cast<size_t>(evaluated_->graph().type(id).shape.num_elements())};
}

double Engine::loss_scale() const {
  return layout_.find(kLossScale) == nullptr ? 1.0 : values(kLossScale)[0];
}

std::string Engine::find_not_finite(const MicroBatch& batch, int64_t step, int64_t index) {
  const std::unique_ptr<exec::Program> program = compile(Purpose::gradients, shape_of(batch));
  for (size_t i = 0; i < input_names_.size(); ++i) {
    const ValueId input = *program->graph().find(input_names_[i]);
    const int64_t row = broken_row(program->graph().type(input), batch.inputs[i]);
    if (row >= 0) return fmt::format("the data ({} of row {} of its micro-batch)", input_names_[i], row);
  }
  const std::unique_ptr<Room> room = bind_alone(*program);
  program->set_scalar(kInverseSamples, static_cast<float>(1.0 / static_cast<double>(batch.num_rows)));
  bind_inputs(*program, batch, step, index);
  std::string found;
  to_card();
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
  exec::Program& program = *train_.at(shape_of(batch));
  std::vector<double> best(program.graph().nodes.size(), 1e9);
  to_card();
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
  passes::TrainGraph train = build_graph(Purpose::gradients, shape_of(batch));
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

}  // namespace hearth::train
