// A pipeline needs no scheduler at run time if the order of all passes and messages is fixed in advance.
// order_pipeline() computes this order for all stages by simulating 1F1B on a clock that counts ticks. The
// graph of a stage contains the stage's events in that order: the nodes of each micro-batch, and a send or
// receive for each value that crosses a cut. Sender and receiver take messages in the same order, so the
// earliest unfinished event can always run, and stages cannot deadlock. Since a full update is one graph, the
// memory packer sees all micro-batches in flight.
#include "passes/parallel/unroll.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "base/error.h"
#include "ir/op_def.h"
#include "ops/collective/collective.h"
#include "ops/transfer/transfer.h"

namespace hearth::passes {
namespace {

using ir::index;
using ir::kNone;
using ir::NodeId;
using ir::ValueId;
using Kind = PipelineEvent::Kind;

/// Duration in ticks of a forward pass, and of a forward and a backward pass together.
constexpr int64_t kForwardTicks = 1, kMicroTicks = 3;

MicroPart part_of(Kind pass) {
  if (pass == Kind::early) return MicroPart::early;
  if (pass == Kind::late) return MicroPart::late;
  return pass == Kind::forward ? MicroPart::forward : MicroPart::backward;
}

/// Returns the forward and backward passes of a stage, in 1F1B order.
std::vector<PipelineEvent> passes_of(int stage, int num_stages, int64_t num_micro) {
  std::vector<PipelineEvent> passes;
  int64_t num_forward = 0;
  for (int64_t micro = 0; micro < num_micro; ++micro) {
    const int64_t ahead = std::min<int64_t>(num_micro, micro + num_stages - stage);
    for (; num_forward < ahead; ++num_forward)
      passes.push_back({.kind = Kind::forward, .stage = stage, .micro = num_forward});
    passes.push_back({.kind = Kind::backward, .stage = stage, .micro = micro});
  }
  return passes;
}

/// Computes the end time of every pass, in ticks.
class Clock {
 public:
  Clock(int num_stages, int64_t num_micro) : num_stages_(num_stages) {
    std::vector<std::vector<PipelineEvent>> passes;
    for (int stage = 0; stage < num_stages; ++stage)
      passes.push_back(passes_of(stage, num_stages, num_micro));
    const size_t num_passes = passes[0].size() * passes.size();
    std::vector<size_t> next(passes.size(), 0);
    std::vector<int64_t> stage_time(passes.size(), 0);
    while (ends_.size() < num_passes) {
      for (size_t s = 0; s < passes.size(); ++s) {
        if (next[s] == passes[s].size()) continue;
        const PipelineEvent& pass = passes[s][next[s]];
        const int64_t start = start_of(pass, stage_time[s]);
        if (start < 0) continue;
        stage_time[s] = start + (pass.kind == Kind::forward ? kForwardTicks : kMicroTicks - kForwardTicks);
        ends_[key(pass)] = stage_time[s];
        ++next[s];
      }
    }
  }

  int64_t end(Kind kind, int stage, int64_t micro) const {
    return ends_.at(key({.kind = kind, .stage = stage, .micro = micro}));
  }
  /// Returns the end of the pass that the stage executes at `time`; `time` itself if there is none.
  int64_t next_end(int stage, int64_t time) const {
    int64_t next = std::numeric_limits<int64_t>::max();
    for (const auto& [pass, end] : ends_) {
      if (std::get<1>(pass) == stage && end > time) next = std::min(next, end);
    }
    return next == std::numeric_limits<int64_t>::max() ? time : next;
  }

 private:
  using Key = std::tuple<Kind, int, int64_t>;
  static Key key(const PipelineEvent& pass) { return {pass.kind, pass.stage, pass.micro}; }

  /// Returns the time at which a pass can start; -1 if the end of the pass that it depends on is not known
  /// yet.
  int64_t start_of(const PipelineEvent& pass, int64_t now) const {
    const bool forward = pass.kind == Kind::forward;
    const int before = forward ? pass.stage - 1 : pass.stage + 1;
    if (before < 0 || before == num_stages_) return now;
    const auto found = ends_.find({pass.kind, before, pass.micro});
    return found == ends_.end() ? -1 : std::max(now, found->second);
  }

  int num_stages_;
  std::map<Key, int64_t> ends_;
};

class Unroll {
 public:
  Unroll(const TrainGraph& train, const Stages& stages, const UnrollOptions& options)
      : train_(train),
        from_(train.graph),
        stages_(stages),
        options_(options),
        latest_(from_.values.size(), kNone),
        copies_(static_cast<size_t>(options.num_micro), std::vector<ValueId>(from_.values.size(), kNone)) {
    check_written();
    for (const ir::Value& value : options.first_values)
      first_values_[value.name] = made_.graph.add_value(value.name, value.type, value.role);
  }

  TrainGraph run() {
    const auto num_stages = static_cast<int>(stages_.shares.size());
    for (const PipelineEvent& event : order_pipeline(num_stages, options_.num_micro, stages_.crossings)) {
      if (event.kind == Kind::message) {
        cross(stages_.crossings[event.crossing], event.micro);
      } else if (event.stage == options_.stage) {
        pass(part_of(event.kind), event.micro);
      }
    }
    set_outputs();
    return std::move(made_);
  }

 private:
  /// Checks that no other node reads a persistent value that a node overwrites. Each micro-batch then reads
  /// what the previous one wrote.
  void check_written() const {
    const std::vector<int> uses = from_.use_counts();
    for (const ir::Node& node : from_.nodes) {
      for (const int k : node.op->writes) {
        if (k < 0 || index(k) >= node.inputs.size()) continue;
        const ValueId in = node.inputs[index(k)];
        if (in == kNone || from_.value(in).producer != kNone) continue;
        if (uses[index(in)] != 1)
          internal_error("{} is written by one node and read by another", from_.value(in).name);
      }
    }
  }

  bool is_once(ValueId id) const {
    const ir::Value& value = from_.value(id);
    if (value.producer == kNone) return ir::is_persistent(value.role);
    return stages_.part_of_node[index(value.producer)] == MicroPart::once;
  }
  ValueId& place(ValueId id, int64_t micro) {
    return is_once(id) ? latest_[index(id)] : copies_[static_cast<size_t>(micro)][index(id)];
  }

  /// Returns the copy of a value for a micro-batch. If it does not exist yet, adds it, with the node that
  /// computes it if every stage may compute that.
  ValueId copy_of(ValueId id, int64_t micro) {
    if (id == kNone) return kNone;
    if (place(id, micro) != kNone) return place(id, micro);
    const ir::Value& value = from_.value(id);
    if (value.producer == kNone) {
      const auto first = is_once(id) ? first_values_.find(value.name) : first_values_.end();
      if (first != first_values_.end()) return place(id, micro) = first->second;
      const std::string name = is_once(id) ? value.name : name_in_micro_batch(micro, value.name);
      return place(id, micro) = made_.graph.add_value(name, value.type, value.role);
    }
    const int stage = stages_.of_node[index(value.producer)];
    const bool is_late =
        stage != Stages::kEvery && stages_.part_of_node[index(value.producer)] != MicroPart::once;
    if (is_late || (stage != Stages::kEvery && stage != options_.stage))
      internal_error("stage {} reads a value of {} that it does not have", options_.stage,
                     from_.node(value.producer).name);
    make(value.producer, micro);
    return place(id, micro);
  }

  void make(NodeId id, int64_t micro) {
    const ir::Node& node = from_.node(id);
    std::vector<ValueId> inputs;
    for (const ValueId in : node.inputs) inputs.push_back(copy_of(in, micro));
    const std::vector<ValueId> outputs = made_.graph.add(*node.op, std::move(inputs), node.attrs, node.name);
    for (size_t k = 0; k < outputs.size(); ++k) {
      place(node.outputs[k], micro) = outputs[k];
      const int written = k < node.op->writes.size() ? node.op->writes[k] : -1;
      if (written >= 0) pass_on(node.inputs[index(written)], outputs[k]);
    }
  }

  /// Makes a value that a micro-batch wrote to a persistent value the input of the next micro-batch.
  void pass_on(ValueId written, ValueId left) {
    while (from_.value(written).producer != kNone) {
      const ir::Node& writer = from_.node(from_.value(written).producer);
      const auto k = std::ranges::find(writer.outputs, written) - writer.outputs.begin();
      const auto at = static_cast<size_t>(k);
      if (at >= writer.op->writes.size() || writer.op->writes[at] < 0) return;
      written = writer.inputs[index(writer.op->writes[at])];
    }
    if (ir::is_persistent(from_.value(written).role)) latest_[index(written)] = left;
  }

  void pass(MicroPart part, int64_t micro) {
    for (size_t i = 0; i < from_.nodes.size(); ++i) {
      if (stages_.of_node[i] == options_.stage && stages_.part_of_node[i] == part)
        make(static_cast<NodeId>(i), micro);
    }
  }

  void cross(const Crossing& crossing, int64_t micro) {
    if (crossing.from == options_.stage) send(crossing, micro);
    if (crossing.to == options_.stage) receive(crossing, micro);
  }
  void send(const Crossing& crossing, int64_t micro) {
    ValueId value = copy_of(crossing.value, micro);
    if (options_.through_host) value = made_.graph.add1(ops::stash, {value}, {}, "send");
    made_.graph.add(ops::send, {value}, {{"to", int64_t{crossing.to}}}, "send");
  }
  void receive(const Crossing& crossing, int64_t micro) {
    const ir::Type& type = from_.type(crossing.value);
    const ValueId came =
        made_.graph.add1(ops::receive, {},
                         {{"from", int64_t{crossing.from}},
                          {"dtype", std::string(dtype_name(type.dtype))},
                          {"shape", std::vector<int64_t>(type.shape.begin(), type.shape.end())}},
                         "receive");
    place(crossing.value, micro) = made_.graph.add1(ops::fetch, {came}, {}, "receive");
  }

  bool is_made_here(ValueId id) const {
    const NodeId producer = from_.value(id).producer;
    return producer != kNone && stages_.of_node[index(producer)] == options_.stage;
  }

  void set_outputs() {
    for (int64_t micro = 0; micro < options_.num_micro; ++micro) {
      for (const ValueId out : from_.outputs) {
        if (is_made_here(out)) made_.graph.outputs.push_back(copy_of(out, micro));
      }
    }
    for (const Gradient& gradient : train_.gradients) {
      if (!is_made_here(gradient.gradient)) continue;
      made_.gradients.push_back({.parameter = copy_of(gradient.parameter, 0),
                                 .gradient = copy_of(gradient.gradient, options_.num_micro - 1)});
    }
  }

  const TrainGraph& train_;
  const ir::Graph& from_;
  const Stages& stages_;
  const UnrollOptions& options_;
  TrainGraph made_;
  std::map<std::string, ValueId> first_values_;
  /// For persistent values, and values computed once: the current value in the new graph.
  std::vector<ValueId> latest_;
  /// For each micro-batch, the copies of all other values in the new graph.
  std::vector<std::vector<ValueId>> copies_;
};

/// Sorts the events of all stages by time.
class Order {
 public:
  Order(int num_stages, int64_t num_micro, std::span<const Crossing> crossings)
      : num_micro_(num_micro), crossings_(crossings), clock_(num_stages, num_micro) {
    for (int stage = 0; stage < num_stages; ++stage) {
      for (const PipelineEvent& pass : passes_of(stage, num_stages, num_micro))
        add(clock_.end(pass.kind, stage, pass.micro), kPass, stage, pass);
      if (other_stage(MicroPart::early, stage) != stage) add_untimed(Kind::early, stage);
      if (other_stage(MicroPart::late, stage) != stage) add_untimed(Kind::late, stage);
    }
    for (size_t i = 0; i < crossings.size(); ++i) add_messages(i);
  }

  std::vector<PipelineEvent> sorted() {
    std::ranges::stable_sort(timed_, {}, &std::pair<Key, PipelineEvent>::first);
    std::vector<PipelineEvent> events;
    for (const auto& [key, event] : timed_) events.push_back(event);
    return events;
  }

 private:
  /// Order of events that have the same time.
  enum Rank : uint8_t { kEarly, kPass, kMessage, kLate };
  using Key = std::tuple<int64_t, Rank, int, size_t>;

  void add(int64_t time, Rank rank, int stage, const PipelineEvent& event) {
    timed_.push_back({{time, rank, stage, event.crossing}, event});
  }
  void add_untimed(Kind kind, int stage) {
    for (int64_t micro = 0; micro < num_micro_; ++micro) {
      const bool early = kind == Kind::early;
      const int64_t time = early ? early_time(stage, micro) : late_time(stage, micro);
      add(time, early ? kEarly : kLate, stage, {.kind = kind, .stage = stage, .micro = micro});
    }
  }
  void add_messages(size_t i) {
    const Crossing& crossing = crossings_[i];
    const int64_t count = crossing.part == MicroPart::once ? 1 : num_micro_;
    for (int64_t micro = 0; micro < count; ++micro)
      add(message_time(crossing, micro), kMessage, crossing.from,
          {.kind = Kind::message, .micro = micro, .crossing = i});
  }

  int64_t message_time(const Crossing& crossing, int64_t micro) const {
    if (crossing.part == MicroPart::once) return -1;
    if (crossing.part == MicroPart::early) return early_time(crossing.from, micro);
    const Kind kind = crossing.part == MicroPart::forward ? Kind::forward : Kind::backward;
    return clock_.end(kind, crossing.from, micro);
  }
  int64_t early_time(int stage, int64_t micro) const {
    const int reader = other_stage(MicroPart::early, stage);
    return std::max<int64_t>(0, clock_.end(Kind::forward, reader, micro) - kForwardTicks - kMicroTicks);
  }
  int64_t late_time(int stage, int64_t micro) const {
    return clock_.next_end(stage, clock_.end(Kind::backward, other_stage(MicroPart::late, stage), micro));
  }

  /// Returns the lowest stage with which the given stage exchanges values of phase `part`; the given stage
  /// itself if there is none.
  int other_stage(MicroPart part, int stage) const {
    int first = stage;
    for (const Crossing& crossing : crossings_) {
      const bool is_of_stage = (part == MicroPart::early ? crossing.from : crossing.to) == stage;
      if (crossing.part == part && is_of_stage) first = std::min({first, crossing.from, crossing.to});
    }
    return first;
  }

  int64_t num_micro_;
  std::span<const Crossing> crossings_;
  Clock clock_;
  std::vector<std::pair<Key, PipelineEvent>> timed_;
};

}  // namespace

std::string name_in_micro_batch(int64_t micro, std::string_view name) {
  return fmt::format("m{}/{}", micro, name);
}

std::vector<PipelineEvent> order_pipeline(int num_stages, int64_t num_micro,
                                          std::span<const Crossing> crossings) {
  return Order(num_stages, num_micro, crossings).sorted();
}

TrainGraph unroll(const TrainGraph& train, const Stages& stages, const UnrollOptions& options) {
  return Unroll(train, stages, options).run();
}

}  // namespace hearth::passes
