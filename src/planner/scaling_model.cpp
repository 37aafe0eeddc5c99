// Predicts an update on several GPUs by replaying the compiled programs of all workers (exec/replay.h). Each
// step of a program takes the predicted seconds of its nodes on its queue and waits for the steps that it
// depends on. Steps that run at the same time share the bandwidth of the paths that they use (GPU link, host
// memory, all-reduce on the CPU, network). A collective starts when all workers have reached it.
#include "planner/scaling_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cost/seconds.h"
#include "distributed/sum.h"
#include "engine/plan_builder.h"
#include "ir/op_def.h"
#include "ops/collective/collective.h"
#include "planner/step_model.h"

namespace hearth::planner {
namespace {

/// Latency of a host function call from a GPU stream, and of a signal between workers on one machine, in
/// seconds. An assumption, not measured.
constexpr double kCallSeconds = 20e-6;
/// Seconds of a TCP round trip between two machines. An assumption, not measured.
constexpr double kRoundTripSeconds = 100e-6;

double gpu_rate(const Links& links, const cost::Device& gpu) {
  return links.gpu > 0 ? links.gpu : gpu.link_bytes_per_second;
}

/// Bandwidths that steps share: for each worker its GPU link in both directions, all-reduce on the CPU, host
/// memory and network.
class Paths {
 public:
  Paths(const cost::Device& gpu, const Links& links, int64_t num_workers)
      : gpu_(gpu), links_(links), num_workers_(static_cast<size_t>(num_workers)) {
    const double link = gpu_rate(links, gpu);
    for (size_t worker = 0; worker < num_workers_; ++worker)
      bytes_per_second_.insert(bytes_per_second_.end(),
                               {link, link, links.sums, links.memory, std::max(1.0, links.network)});
  }
  std::span<const double> bytes_per_second() const { return bytes_per_second_; }

  /// Converts a step of a program for the replay, without its dependencies.
  exec::SimulatedStep replayed(const exec::Program& program, const exec::Step& step, size_t worker) const {
    exec::SimulatedStep replayed{.queue = step.queue, .seconds = gpu_.launch_seconds};
    for (const ir::Node& node : program.nodes_of(step)) add(replayed, program.graph, node, worker);
    return replayed;
  }

 private:
  enum Kind : uint8_t { in, out, sums, memory, network, kNumKinds };
  size_t path(size_t worker, Kind kind) const {
    // All GPUs of a machine share its host memory.
    if (kind == memory && links_.network <= 0) worker = 0;
    return worker * kNumKinds + kind;
  }

  void add(exec::SimulatedStep& step, const ir::Graph& graph, const ir::Node& node, size_t worker) const {
    if (node.op->transfer == ir::Transfer::none) {
      step.seconds += cost::seconds_of(graph, node, gpu_);
      return;
    }
    if (node.op->transfer == ir::Transfer::exchange) return add_exchange(step, graph, node, worker);
    step.num_bytes += ir::cost_of(graph, node).bytes;
    const Kind kind = node.op->transfer == ir::Transfer::fetch ? in : out;
    step.paths = {{.path = path(worker, kind)}, {.path = path(worker, memory)}};
  }

  /// Adds the cost of a collective or message. In host memory each array is read and written once. Over a
  /// network each worker sends and receives the theoretical minimum: for an all-reduce over n workers 2 (n -
  /// 1) / n of the array (Patarasuk, Yuan 2009).
  void add_exchange(exec::SimulatedStep& step, const ir::Graph& graph, const ir::Node& node,
                    size_t worker) const {
    // The transferred values are a node's inputs, or the outputs of a receiving node, which has no inputs.
    for (const ir::ValueId value : node.inputs.empty() ? node.outputs : node.inputs)
      step.num_bytes += static_cast<double>(graph.type(value).num_bytes());
    step.seconds += kCallSeconds;
    step.paths = {{.path = path(worker, sums)}, {.path = path(worker, memory), .per_byte = 2}};
    if (links_.network <= 0) return;
    step.seconds += 2 * kRoundTripSeconds;
    const auto n = static_cast<double>(num_workers_);
    double per_byte = 2 * (n - 1) / n;
    if (node.op->name.ends_with("broadcast"))
      per_byte = static_cast<int64_t>(worker) == node.attrs.integer("root") ? n - 1 : 1;
    if (node.op == &ops::send || node.op == &ops::receive) per_byte = 1;
    const DType sent = *dtype_from_name(node.attrs.text_or("wire", "f32"));
    const auto wire = static_cast<double>(dtype_bytes(sent) + dtype_bytes(distributed::sum_dtype(sent))) / 8;
    step.paths.push_back({.path = path(worker, network), .per_byte = wire * per_byte});
  }

  const cost::Device& gpu_;
  const Links& links_;
  size_t num_workers_;
  std::vector<double> bytes_per_second_;
};

/// Numbers the collectives and the messages between each pair of workers: steps of different workers with the
/// same number belong together, because all workers run collectives in the same order.
class CollectiveNumbers {
 public:
  int64_t next(const ir::Node& node, int64_t worker) {
    std::array<int64_t, 2> pair = {-1, -1};
    if (node.op == &ops::send) pair = {worker, node.attrs.integer("to")};
    if (node.op == &ops::receive) pair = {node.attrs.integer("from"), worker};
    const int64_t count = num_so_far_[{worker, pair}]++;
    return numbers_.try_emplace({pair, count}, std::ssize(numbers_)).first->second;
  }

 private:
  using Pair = std::array<int64_t, 2>;
  std::map<std::pair<int64_t, Pair>, int64_t> num_so_far_;
  std::map<std::pair<Pair, int64_t>, int64_t> numbers_;
};

exec::Replay replay_programs(std::span<const exec::Program* const> programs, const Paths& paths) {
  std::vector<std::vector<exec::SimulatedStep>> workers;
  CollectiveNumbers collective_numbers;
  for (const exec::Program* program : programs) {
    std::vector<exec::SimulatedStep>& steps = workers.emplace_back();
    for (const exec::Step& step : program->steps) {
      steps.push_back(paths.replayed(*program, step, workers.size() - 1));
      if (step.queue == exec::Queue::exchange)
        steps.back().meeting =
            collective_numbers.next(program->graph.nodes[step.node], std::ssize(workers) - 1);
    }
    exec::Waits waits = exec::find_waits(*program);
    for (size_t i = 0; i < steps.size(); ++i) steps[i].waits = std::move(waits.before[i]);
  }
  return exec::replay(workers, paths.bytes_per_second());
}

void add(ScalingModel& model, const exec::Replay& replay, int64_t times) {
  const auto factor = static_cast<double>(times);
  model.seconds += factor * replay.seconds;
  model.exposed_seconds += factor * replay.exposed_seconds(0);
  for (size_t queue = 0; queue < exec::kNumQueues; ++queue)
    model.busy_seconds[queue] += factor * replay.busy_seconds[0][queue];
  model.kernel_seconds.resize(replay.busy_seconds.size());
  for (size_t worker = 0; worker < replay.busy_seconds.size(); ++worker)
    model.kernel_seconds[worker] +=
        factor * replay.busy_seconds[worker][static_cast<size_t>(exec::Queue::compute)];
}

double scaling(const ScalingModel& model, const ScalingModel& one) {
  return model.samples_per_second() / one.samples_per_second();
}

}  // namespace

double network_bytes_per_second(double bits_per_second) { return bits_per_second / 8 * 1448 / 1538; }

std::vector<engine::EngineOptions> options_of_workers(const engine::EngineOptions& options) {
  std::vector<engine::EngineOptions> workers(static_cast<size_t>(options.num_workers), options);
  for (size_t rank = 0; rank < workers.size(); ++rank) workers[rank].rank = static_cast<int>(rank);
  return workers;
}

ScalingModel model_scaling(const engine::EngineOptions& options, const cost::Device& gpu,
                           const Links& links) {
  return model_scaling(options_of_workers(options), gpu, links);
}

ScalingModel model_scaling(std::vector<engine::EngineOptions> workers, const cost::Device& gpu,
                           const Links& links) {
  const engine::EngineOptions first = workers.front();
  std::vector<engine::Plan> plans;
  plans.reserve(workers.size());
  std::vector<const exec::Program*> before, last;
  ScalingModel model{.num_workers = first.num_workers};
  for (engine::EngineOptions& options : workers) {
    options.backend = exec::Backend::gpu;
    options.device = gpu;
    // With data parallelism all workers have the same programs, so one plan suffices.
    if (plans.empty() || options.parallel != Parallel::data) {
      plans.push_back(engine::make_plan(options, std::span(&options.batch, 1), {}));
      const PlanReport& report = model.plans.emplace_back(make_plan_report(plans.back()));
      if (report.peak_bytes > model.gpu_bytes) model.host_bytes = report.host_bytes;
      model.gpu_bytes = std::max(model.gpu_bytes, report.peak_bytes);
      const UpdateSize size = update_size(plans.back());
      model.num_samples = std::max(model.num_samples, size.num_samples);
      model.is_text |= size.is_text;
    }
    last.push_back(&plans.back().train_program());
    before.push_back(plans.back().accumulate_program());
  }
  const Paths paths(gpu, links, first.num_workers);
  add(model, replay_programs(last, paths), 1);
  if (before.front() != nullptr)
    add(model, replay_programs(before, paths), first.accumulate / first.num_workers - 1);
  return model;
}

std::string to_text(const ScalingModel& model, const ScalingModel& one, const cost::Device& gpu,
                    const Links& links) {
  const auto ms = [&](exec::Queue queue) { return 1e3 * model.busy_seconds[static_cast<size_t>(queue)]; };
  const auto line = [](std::string_view what, const ScalingModel& of) {
    return fmt::format("{:>10} {:10.3f} ms per update {:12.0f} {}/s", what, 1e3 * of.seconds,
                       of.samples_per_second(), of.samples_name());
  };
  std::string text = fmt::format("on {} of {}: simulated, not measured\n{}\n{}, {:.2f} times as fast\n",
                                 model.num_workers, gpu.full_name, line("one GPU", one),
                                 line(fmt::format("{} GPUs", model.num_workers), model), scaling(model, one));
  text += fmt::format("exposed: {:.3f} ms, {:.1f}% of an update, in which a GPU is idle\n",
                      1e3 * model.exposed_seconds, 100 * model.exposed_seconds / model.seconds);
  text += fmt::format(
      "per worker: kernels {:.3f} ms, copies to host memory {:.3f} ms, all-reduce {:.3f} ms, copies back "
      "{:.3f} ms\n",
      ms(exec::Queue::compute), ms(exec::Queue::out), ms(exec::Queue::exchange), ms(exec::Queue::in));
  text += fmt::format(
      "links: {:g} GB/s each way to a GPU, host memory {:g} GB/s, all-reduce {:g} GB/s per worker",
      1e-9 * gpu_rate(links, gpu), 1e-9 * links.memory, 1e-9 * links.sums);
  return text + (links.network > 0 ? fmt::format(", {:g} MB/s each way between machines with one GPU each\n",
                                                 1e-6 * links.network)
                                   : ", all in one machine\n");
}

std::string to_json(const ScalingModel& model, const ScalingModel& one, const cost::Device& gpu,
                    const Links& links) {
  return fmt::format(
      "{{\"simulated\":true,\"gpu\":\"{}\",\"workers\":{},"
      "\"link_bytes_per_second\":{:.0f},"
      "\"network_bytes_per_second\":{:.0f},\"step_seconds\":{:."
      "9f},\"exposed_seconds\":{:.9f},"
      "\"samples_per_step\":{},\"one_step_seconds\":{:.9f},"
      "\"one_samples_per_step\":{},\"scaling\":{:.4f}}}",
      gpu.name, model.num_workers, gpu_rate(links, gpu), links.network, model.seconds, model.exposed_seconds,
      model.num_samples, one.seconds, one.num_samples, scaling(model, one));
}

}  // namespace hearth::planner
