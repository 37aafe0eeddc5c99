#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "engine/engine.h"
#include "ir/op_def.h"
#include "ir/state_name.h"

namespace hearth::engine {
namespace {

using ir::Role;
using ir::ValueId;

/// What stays from one update to the next, in the order of the graph.
std::vector<ir::Value> lasting_values(const ir::Graph& graph) {
  std::vector<ir::Value> found;
  for (const ir::Value& value : graph.values) {
    if (value.producer == ir::kNone && (value.role == Role::parameter || value.role == Role::state))
      found.push_back(value);
  }
  return found;
}

double bytes_of(const ir::Graph& graph, bool all) {
  double num_bytes = 0;
  for (const ir::Value& value : graph.values) {
    const bool counts =
        all ? ir::is_persistent(value.role) && value.role != Role::frozen : value.role == Role::parameter;
    if (value.producer == ir::kNone && counts) num_bytes += static_cast<double>(value.type.num_bytes());
  }
  return num_bytes;
}

/// After it, a gradient is the sum over the micro-batches so far.
void add_up_gradients(passes::TrainGraph& train) {
  const std::vector<ValueId> sums = add_accumulation(train, {});
  for (size_t i = 0; i < sums.size(); ++i) train.gradients[i].gradient = sums[i];
}

double flops_of(const ir::Graph& graph) {
  double flops = 0;
  for (const ir::Node& node : graph.nodes) flops += ir::cost_of(graph, node).flops;
  return flops;
}

/// The stage of a weight's state is that of the weight; no entry: every stage has it.
void add_homes(std::map<std::string, int>& homes, const std::vector<ir::Value>& values) {
  for (const ir::Value& value : values) {
    const auto weight = homes.find(ir::parse_state_name(value.name).weight);
    if (weight != homes.end()) homes.emplace(value.name, weight->second);
  }
}

}  // namespace

passes::TrainGraph Engine::compute(Purpose purpose, BatchShape shape,
                                   std::function<void(passes::TrainGraph&)> consume_gradients) {
  passes::TrainGraph train = build_graph(purpose, shape);
  passes::PassContext context = context_of(train);
  context.consume_gradients = std::move(consume_gradients);
  passes::run_passes(train, context, passes::Stage::compute);
  return train;
}

void Engine::compile_stage(std::span<const int64_t> train_sizes, std::span<const int64_t> eval_sizes) {
  std::vector<int64_t> lengths = options_.row_lengths;
  if (lengths.empty()) lengths.push_back(0);
  const auto shape_of = [](int64_t size, int64_t length) {
    return BatchShape{.num_rows = size, .row_length = length};
  };
  const auto micro_of = [&](BatchShape shape) {
    return compute(Purpose::accumulate, shape, add_up_gradients);
  };
  const auto add_singles = [&](const passes::TrainGraph& micro, BatchShape shape) {
    for (const bool updates : {false, true})
      pipeline_.singles[{shape, updates}] = compile_passage(micro, shape, 1, updates);
  };
  const BatchShape whole = shape_of(train_sizes[0], lengths[0]);
  const passes::TrainGraph micro = micro_of(whole);
  plan_stages(micro, whole);
  // Rows of another length make another program: one of several lengths has a single micro-batch.
  pipeline_.num_micro = lengths.size() > 1 ? 1 : options_.accumulate;
  step_.emplace(whole, compile_passage(micro, whole, pipeline_.num_micro, true));
  add_singles(micro, whole);
  for (const int64_t length : lengths) {
    for (const int64_t size : train_sizes) {
      if (const BatchShape shape = shape_of(size, length); shape != whole)
        add_singles(micro_of(shape), shape);
    }
    for (const int64_t size : eval_sizes) {
      const BatchShape shape = shape_of(size, length);
      if (!evaluate_.contains(shape)) evaluate_.emplace(shape, compile_stage_evaluation(shape));
    }
  }
}

void Engine::plan_stages(const passes::TrainGraph& micro, BatchShape shape) {
  const passes::TrainGraph update = compute(Purpose::step, shape, [this](passes::TrainGraph& train) {
    add_update(train, options_.optimizer, tables_, {}, {.has_earlier = options_.accumulate > 1});
  });
  const double copies = bytes_of(update.graph, true) / std::max(1.0, bytes_of(update.graph, false));
  pipeline_.flops =
      flops_of(update.graph) + static_cast<double>(options_.accumulate - 1) * flops_of(micro.graph);
  pipeline_.homes = split(micro, copies).homes;
  pipeline_.values = lasting_values(update.graph);
  add_homes(pipeline_.homes, pipeline_.values);
  for (ir::Value& value : pipeline_.values) {
    const auto home = pipeline_.homes.find(value.name);
    if (home != pipeline_.homes.end() && home->second != options_.rank) value.role = Role::remote;
  }
}

passes::Stages Engine::split(const passes::TrainGraph& micro, double weight_copies) const {
  std::vector<passes::StageDevice> devices = options_.devices;
  devices.resize(static_cast<size_t>(options_.num_workers));
  return passes::split_stages(micro, {.devices = std::move(devices),
                                      .machine = options_.machine,
                                      .num_micro = options_.accumulate,
                                      .weight_copies = weight_copies,
                                      .homes = pipeline_.homes});
}

passes::UnrollOptions Engine::unroll_options(int64_t num_micro) const {
  return {.stage = options_.rank,
          .num_micro = num_micro,
          .through_host = options_.backend == exec::Backend::gpu,
          .first_values = pipeline_.values};
}

SumOptions Engine::sums_of_stage(const passes::TrainGraph& micro) const {
  SumOptions sums{.num_workers = static_cast<int>(options_.num_workers), .are_sums = true};
  std::vector<int64_t> places;
  for (size_t i = 0; i < micro.gradients.size(); ++i) {
    const std::string& weight = micro.graph.value(micro.gradients[i].parameter).name;
    if (pipeline_.homes.at(weight) == options_.rank) places.push_back(static_cast<int64_t>(i));
  }
  if (places.empty()) {
    user_error("expected a weight to train in each of {} stages, got none in stage {}; try fewer devices",
               options_.num_workers, options_.rank);
  }
  sums.own = {.places = std::move(places), .num_gradients = std::ssize(micro.gradients)};
  return sums;
}

std::unique_ptr<exec::Program> Engine::compile_passage(const passes::TrainGraph& micro, BatchShape shape,
                                                       int64_t num_micro, bool updates) {
  const passes::Stages stages = split(micro);
  for (const auto& [name, home] : stages.homes) HEARTH_CHECK(pipeline_.homes.at(name) == home);
  std::vector<int64_t>& num_bytes = pipeline_.input_bytes[shape];
  passes::TrainGraph own = passes::unroll(micro, stages, unroll_options(num_micro));
  num_bytes.clear();
  for (const std::string& name : input_names_) {
    const auto input = own.graph.find(passes::name_in_micro_batch(0, name));
    num_bytes.push_back(input ? own.graph.type(*input).num_bytes() : 0);
  }
  if (updates) add_update(own, options_.optimizer, tables_, {}, sums_of_stage(micro));
  passes::PassContext context = context_of(own);
  return finish_computed(own, Purpose::step, context);
}

std::unique_ptr<exec::Program> Engine::compile_stage_evaluation(BatchShape shape) {
  const passes::TrainGraph train = compute(Purpose::evaluate, shape, {});
  const passes::Stages stages = split(train);
  std::vector<Pipeline::Output>& outputs = pipeline_.outputs[shape];
  for (const ValueId id : train.graph.outputs) {
    const int stage = stages.of_node[static_cast<size_t>(train.graph.value(id).producer)];
    HEARTH_CHECK(stage != passes::Stages::kEvery);
    outputs.push_back({.stage = stage, .num_elements = train.graph.type(id).shape.num_elements()});
  }
  return place(passes::unroll(train, stages, unroll_options(1)), Purpose::evaluate);
}

std::vector<int64_t> Engine::stage_parameters() const {
  std::vector<int64_t> counts(is_pipeline() ? static_cast<size_t>(options_.num_workers) : 0, 0);
  for (const nn::Tensor& tensor : tensors_) {
    if (!counts.empty() && tensor.trainable)
      counts[static_cast<size_t>(pipeline_.homes.at(tensor.name))] += tensor.layout.file_shape.num_elements();
  }
  return counts;
}

void Engine::make_room_for_inputs() {
  pipeline_.slot_bytes = 0;
  for (const int64_t num_bytes : pipeline_.input_bytes.rbegin()->second)
    pipeline_.slot_bytes += passes::padded_bytes(num_bytes + kInputSlack);
  pipeline_.inputs = exec::Region(pipeline_.slot_bytes * options_.accumulate);
  counter_.resize(static_cast<size_t>(kCounterSize * options_.accumulate));
}

MicroBatch Engine::keep(const MicroBatch& batch, int64_t index) {
  MicroBatch kept{.num_rows = batch.num_rows, .row_length = batch.row_length};
  const std::vector<int64_t>& num_bytes = pipeline_.input_bytes.at(batch.shape());
  std::byte* next = pipeline_.inputs.data() + index * pipeline_.slot_bytes;
  for (size_t i = 0; i < num_bytes.size(); ++i) {
    if (num_bytes[i] > 0) std::memcpy(next, batch.inputs[i], static_cast<size_t>(num_bytes[i]));
    kept.inputs[i] = next;
    next += passes::padded_bytes(num_bytes[i] + kInputSlack);
  }
  return kept;
}

void Engine::bind_micro(exec::Program& program, int64_t number, const MicroBatch& batch, int64_t step,
                        int64_t index) {
  int64_t* const counter = &counter_[static_cast<size_t>(kCounterSize * number)];
  counter[0] = step;
  counter[1] = index;
  const auto bind = [&](const std::string& name, const void* data) {
    if (program.has_input(passes::name_in_micro_batch(number, name)))
      program.bind_input(passes::name_in_micro_batch(number, name), data);
  };
  for (size_t i = 0; i < input_names_.size(); ++i) bind(input_names_[i], batch.inputs[i]);
  bind("counter", counter);
}

exec::Program* Engine::passage_together(std::span<const MicroBatch> batches) const {
  const BatchShape shape = batches.front().shape();
  const auto found = step_.find(shape);
  const bool fits = found != step_.end() && std::ssize(batches) == pipeline_.num_micro &&
                    std::ranges::all_of(batches, [&](const auto& batch) { return batch.shape() == shape; });
  return fits ? found->second.get() : nullptr;
}

exec::Program* Engine::start_pipeline(const Part& part, FunctionRef<MicroBatch()> next, int64_t step,
                                      double learning_rate, float* losses) {
  const int64_t num_micro = part.num_micro;
  std::vector<MicroBatch> batches;
  for (int64_t i = 0; i < num_micro; ++i) batches.push_back(keep(next(), i));
  exec::Program* const together = passage_together(batches);
  const int64_t count = together != nullptr ? num_micro : 1;
  exec::Program* program = together;
  for (int64_t first = 0; first < num_micro; first += count) {
    const int64_t end = first + count;
    if (together == nullptr)
      program = pipeline_.singles.at({batches[static_cast<size_t>(first)].shape(), end == num_micro}).get();
    set_scalars(*program, part, true, learning_rate);
    for (int64_t i = first; i < end; ++i) {
      program->set_scalar(passes::name_in_micro_batch(i - first, kInverseSamples),
                          static_cast<float>(1.0 / part.num_samples));
      bind_micro(*program, i - first, batches[static_cast<size_t>(i)], step, i);
    }
    program->start(threads_);
    // Those of one micro-batch after those of another, its loss first.
    const std::vector<ValueId>& outputs = program->graph().outputs;
    const int64_t num_each = std::ssize(outputs) / count;
    for (int64_t i = first; i < end && options_.rank + 1 == options_.num_workers; ++i)
      program->read(outputs[static_cast<size_t>((i - first) * num_each)], &losses[i]);
    heartbeat_.beat();
  }
  return program;
}

double Engine::evaluate_stage(const MicroBatch& batch) {
  exec::Program& program = *evaluate_.at(batch.shape());
  bind_micro(program, 0, batch, 0, 0);
  run(program);
  team_->check();
  heartbeat_.beat();
  pipeline_.gathered.clear();
  size_t num_own = 0;
  for (const Pipeline::Output& output : pipeline_.outputs.at(batch.shape())) {
    std::vector<float>& values = pipeline_.gathered.emplace_back(static_cast<size_t>(output.num_elements));
    if (output.stage == options_.rank) {
      const ValueId id = program.graph().outputs[num_own++];
      std::copy_n(static_cast<const float*>(program.data(id)), values.size(), values.begin());
    }
    team_->broadcast(std::as_writable_bytes(std::span(values)), output.stage);
  }
  return has_losses_ ? pipeline_.gathered[0][0] : 0;
}

}  // namespace hearth::engine
