#include "passes/parallel/stage_positions.h"

#include <algorithm>

#include "ir/op_def.h"

/// Four steps. (1) mark() propagates dependencies in node order and classifies each node as independent of
/// weights, once per update, forward or backward. (2) number_path() numbers the forward nodes that the losses
/// depend on. (3) assign_remaining() assigns every other node a position: a forward node that of its last
/// input; a node that computes only a weight's gradient that of the weight (pins); any other backward node
/// that of its forward inputs. (4) Where a gradient crosses a cut, follow_readers() and follow_late_readers()
/// move nodes so that the smaller value is sent. Takes time linear in nodes and reads.
namespace hearth::passes {
namespace {

using ir::index;
using ir::kNone;
using ir::NodeId;
using ir::ValueId;

}  // namespace

Positions::Positions(const TrainGraph& train, const std::map<std::string, int>& homes)
    : train_(train), graph_(train.graph), homes_(homes) {
  mark();
  number_path();
  assign_remaining();
}

int Positions::of_value(ValueId id) const {
  const NodeId producer = graph_.value(id).producer;
  if (producer == kNone)
    return ir::is_persistent(graph_.value(id).role) ? readers_[index(id)].last : kNowhere;
  return is_free(index(producer)) ? kNowhere : position_[index(producer)];
}

std::optional<int> Positions::home_of(ValueId id) const {
  const ir::Value& value = graph_.value(id);
  const auto found = value.producer == kNone ? homes_.find(value.name) : homes_.end();
  return found == homes_.end() ? std::nullopt : std::optional(found->second);
}

bool Positions::is_backward_value(ValueId id) const {
  const NodeId producer = graph_.value(id).producer;
  return producer != kNone && !is_free(index(producer)) && part_[index(producer)] == MicroPart::backward;
}

ValueId Positions::larger_weight(size_t node) const {
  if (is_free(node) || !is_on_path(node)) return kNone;
  ValueId weight = kNone;
  for (const ValueId in : graph_.nodes[node].inputs) {
    const int position = in == kNone ? kNowhere : of_value(in);
    if (position == kNowhere) continue;
    if (position <= position_[node] || weight != kNone) return kNone;
    weight = in;
  }
  int64_t num_bytes = 0;
  for (const ValueId out : graph_.nodes[node].outputs) num_bytes += graph_.type(out).num_bytes();
  return weight != kNone && num_bytes < graph_.type(weight).num_bytes() ? weight : kNone;
}

void Positions::mark() {
  const size_t num_values = graph_.values.size(), num_nodes = graph_.nodes.size();
  Marks marks{std::vector<char>(num_values), std::vector<char>(num_values), std::vector<char>(num_values)};
  const std::set<ValueId> written = written_leaves();
  for (size_t i = 0; i < num_values; ++i) {
    const ir::Value& value = graph_.values[i];
    const bool changes = written.contains(static_cast<ValueId>(i));
    marks.weights[i] = value.role == ir::Role::parameter || value.role == ir::Role::frozen || changes ||
                       home_of(static_cast<ValueId>(i)).has_value();
    marks.micro[i] = value.role == ir::Role::input || value.role == ir::Role::scalar || changes;
  }
  if (train_.loss_weight != kNone) marks.cotangent[index(train_.loss_weight)] = 1;
  mark_path();
  free_.assign(num_nodes, 0);
  part_.assign(num_nodes, MicroPart::forward);
  for (size_t i = 0; i < num_nodes; ++i) classify(i, marks);
}

std::set<ValueId> Positions::written_leaves() const {
  std::set<ValueId> written;
  for (const ir::Node& node : graph_.nodes) {
    for (const int k : node.op->writes) {
      const ValueId in = k < 0 ? kNone : input_or_none(node, static_cast<size_t>(k));
      if (in != kNone && graph_.value(in).producer == kNone) written.insert(in);
    }
  }
  return written;
}

void Positions::mark_path() {
  path_.assign(graph_.nodes.size(), 0);
  std::vector<char> leads(graph_.values.size(), 0);
  leads[index(train_.losses)] = 1;
  for (size_t i = graph_.nodes.size(); i-- > 0;) {
    const ir::Node& node = graph_.nodes[i];
    path_[i] = std::ranges::any_of(node.outputs, [&](ValueId out) { return leads[index(out)] != 0; });
    for (const ValueId in : node.inputs) {
      if (path_[i] != 0 && in != kNone) leads[index(in)] = 1;
    }
  }
}

void Positions::classify(size_t i, Marks& marks) {
  const ir::Node& node = graph_.nodes[i];
  const auto any = [&](const std::vector<char>& mark) {
    return std::ranges::any_of(node.inputs, [&](ValueId in) { return in != kNone && mark[index(in)] != 0; });
  };
  const bool has_effect = node.op->keeps_alive();
  const bool weights = any(marks.weights) || has_effect, micro = any(marks.micro) || has_effect;
  const bool cotangent = any(marks.cotangent);
  for (const ValueId out : node.outputs) {
    marks.weights[index(out)] = weights;
    marks.micro[index(out)] = micro;
    marks.cotangent[index(out)] |= static_cast<char>(cotangent);
  }
  free_[i] = !weights;
  if (!micro) part_[i] = MicroPart::once;
  if (micro && cotangent && path_[i] == 0) part_[i] = MicroPart::backward;
}

void Positions::number_path() {
  position_.assign(graph_.nodes.size(), kNowhere);
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (!is_free(i) && is_on_path(i)) position_[i] = num_positions_++;
  }
  readers_.assign(graph_.values.size(), {});
  find_readers();
}

void Positions::Range::add(Range other) {
  first = std::min(first, other.first);
  if (last == kNowhere || (other.last != kNowhere && other.last > last)) last = other.last;
}

void Positions::find_readers() {
  std::vector<Range> found(graph_.values.size());
  for (size_t i = graph_.nodes.size(); i-- > 0;) {
    if (is_free(i)) continue;
    const ir::Node& node = graph_.nodes[i];
    Range read{position_[i], position_[i]};
    if (part_[i] == MicroPart::once && position_[i] == kNowhere) {
      for (const ValueId out : node.outputs) read.add(found[index(out)]);
      position_[i] = read.last;
    }
    for (const ValueId in : node.inputs) {
      if (in != kNone) found[index(in)].add(read);
    }
  }
  for (size_t i = 0; i < readers_.size(); ++i) {
    if (readers_[i].last == kNowhere) readers_[i] = found[i];
  }
}

std::map<NodeId, Positions::Pin> Positions::pins() const {
  std::map<NodeId, Pin> pins;
  const std::vector<int> uses = graph_.use_counts();
  for (const Gradient& gradient : train_.gradients) {
    const Range readers = readers_[index(gradient.parameter)];
    const Pin pin{.position = readers.last, .is_late = readers.first != readers.last};
    ValueId value = gradient.gradient;
    while (value != kNone && is_backward_value(value) && uses[index(value)] <= 1) {
      const NodeId producer = graph_.value(value).producer;
      pins.emplace(producer, pin);
      value = only_computed_input(graph_.node(producer));
    }
  }
  return pins;
}

ValueId Positions::only_computed_input(const ir::Node& node) const {
  ValueId only = kNone;
  for (const ValueId in : node.inputs) {
    if (in == kNone || graph_.value(in).role == ir::Role::carried) continue;
    if (only != kNone) return kNone;
    only = in;
  }
  return only;
}

void Positions::assign_remaining() {
  const std::map<NodeId, Pin> pins = this->pins();
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (is_free(i) || position_[i] != kNowhere || part_[i] == MicroPart::once) continue;
    const auto pin = pins.find(static_cast<NodeId>(i));
    position_[i] = part_[i] == MicroPart::backward
                       ? backward_position(graph_.nodes[i], pin == pins.end() ? Pin{} : pin->second)
                       : last_input(graph_.nodes[i], num_positions_ - 1);
  }
  const Readers readers(graph_);
  follow_readers(readers);
  follow_late_readers(readers);
  find_readers();
}

void Positions::follow_readers(const Readers& readers) {
  for (size_t i = graph_.nodes.size(); i-- > 0;) {
    const ir::Node& node = graph_.nodes[i];
    if (is_free(i) || part_[i] != MicroPart::backward || node.inputs.size() != 1) continue;
    int last = -1, other = kNowhere;
    for (const NodeId reader : readers[node.outputs[0]]) last = std::max(last, position_[index(reader)]);
    for (const NodeId reader : readers[node.inputs[0]]) {
      if (index(reader) != i) other = std::min(other, position_[index(reader)]);
    }
    if (last >= 0 && other <= last) position_[i] = std::min(position_[i], last);
  }
}

void Positions::follow_late_readers(const Readers& readers) {
  for (size_t i = graph_.nodes.size(); i-- > 0;) {
    if (is_free(i) || part_[i] != MicroPart::backward) continue;
    const ir::Node& node = graph_.nodes[i];
    int64_t num_bytes = 0;
    int first = kNowhere;
    for (const ValueId out : node.outputs) {
      num_bytes += graph_.type(out).num_bytes();
      for (const NodeId reader : readers[out]) first = std::min(first, position_[index(reader)]);
    }
    for (const ValueId in : node.inputs) {
      if (in != kNone && is_backward_value(in)) num_bytes -= graph_.type(in).num_bytes();
    }
    if (first != kNowhere && num_bytes > 0) position_[i] = std::max(position_[i], first);
  }
}

int Positions::last_input(const ir::Node& node, int otherwise) const {
  int last = -1;
  for (const ValueId in : node.inputs) {
    if (in == kNone || is_backward_value(in)) continue;
    if (const int position = of_value(in); position != kNowhere) last = std::max(last, position);
  }
  return last < 0 ? otherwise : last;
}

int Positions::backward_position(const ir::Node& node, Pin pin) const {
  if (pin.is_late) return pin.position;
  int max_position = num_positions_ - 1;
  for (const ValueId in : node.inputs) {
    if (in != kNone && is_backward_value(in)) max_position = std::min(max_position, of_value(in));
  }
  return std::min(max_position, pin.position == kNowhere ? last_input(node, max_position) : pin.position);
}

}  // namespace hearth::passes
