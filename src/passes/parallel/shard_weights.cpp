#include "passes/parallel/shard_weights.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "ir/kernel_group.h"
#include "ir/op_def.h"
#include "ops/collective/collective.h"
#include "ops/transfer/transfer.h"

/// Each weight has at most two uses, one in the forward and one in the backward pass. Uses are sorted by
/// their first readers. The broadcast for use u + num_ahead is inserted before the first reader of use u
/// (prefetch), so that it overlaps with the nodes in between. Values computed from a weight alone (casts,
/// transposes) are recomputed for each use, so that neither they nor the weight stay live between the two
/// passes.
namespace hearth::passes {
namespace {

using ir::index;
using ir::kNone;
using ir::NodeId;
using ir::ValueId;

enum Part : uint8_t { kForwardPart, kBackwardPart };

/// One use of a weight: the nodes that read it in the forward pass, or those that read it in the backward
/// pass.
struct Use {
  ValueId weight = kNone;
  Part part = kForwardPart;
  NodeId first = 0;  ///< index of the first node that reads the weight
  /// Values that these nodes read: the weight itself, or values computed from it alone.
  std::vector<ValueId> values;
  ValueId received = kNone;
};

class ShardWeights {
 public:
  ShardWeights(TrainGraph& train, const ShardOptions& options)
      : train_(train), graph_(train.graph), options_(options), weight_of_(graph_.values.size(), kNone) {}

  void run() {
    find_weight_derived_values();
    find_uses();
    const std::vector<ir::Node> old = std::exchange(graph_.nodes, {});
    old_ = &old;
    size_t num_sent = 0, num_there = 0;
    for (NodeId id = 0; id < static_cast<NodeId>(old.size()); ++id) {
      for (; num_sent < uses_.size() && is_due(num_sent, id); ++num_sent) exchange(uses_[num_sent]);
      for (; num_there < uses_.size() && uses_[num_there].first == id; ++num_there)
        materialize_all(uses_[num_there]);
      if (!is_weight_derived(old[index(id)])) append(old[index(id)], part_of(id));
    }
    for (ir::Value& value : graph_.values) {
      if (is_sharded(value) && owner(value) != options_.rank) value.role = ir::Role::remote;
    }
    graph_.relink();
  }

 private:
  bool is_sharded(const ir::Value& value) const {
    return value.role == ir::Role::parameter && value.producer == kNone &&
           options_.owners->contains(value.name);
  }
  int owner(const ir::Value& weight) const { return options_.owners->at(weight.name); }

  void find_weight_derived_values() {
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      if (is_sharded(graph_.values[i])) weight_of_[i] = static_cast<ValueId>(i);
    }
    for (const ir::Node& node : graph_.nodes) {
      if (!is_weight_derived(node)) continue;
      weight_of_[index(node.outputs[0])] = weight_of_[index(node.inputs[0])];
    }
  }

  /// True if the node computes one value from a single weight and nothing else.
  bool is_weight_derived(const ir::Node& node) const {
    if (!node.op->writes.empty() || node.op->transfer != ir::Transfer::none || node.outputs.size() != 1 ||
        node.inputs.empty() || std::ranges::count(graph_.outputs, node.outputs[0]) > 0)
      return false;
    const auto weight = [&](ValueId in) { return in == kNone ? kNone : weight_of_[index(in)]; };
    const ValueId first = weight(node.inputs[0]);
    return first != kNone &&
           std::ranges::all_of(node.inputs, [&](ValueId in) { return weight(in) == first; });
  }

  void find_uses() {
    const auto starts = [&](const ir::Node& node) {
      return train_.loss_weight != kNone && std::ranges::count(node.inputs, train_.loss_weight) > 0;
    };
    first_backward_ = static_cast<NodeId>(std::ranges::find_if(graph_.nodes, starts) - graph_.nodes.begin());
    HEARTH_CHECK(train_.loss_weight == kNone || first_backward_ < std::ssize(graph_.nodes));
    std::map<std::pair<Part, ValueId>, size_t> found;
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes.size()); ++id) {
      const ir::Node& node = graph_.node(id);
      if (is_weight_derived(node)) continue;
      for (size_t k = 0; k < node.inputs.size(); ++k) {
        const ValueId in = node.inputs[k], weight = in == kNone ? kNone : weight_of_[index(in)];
        if (weight == kNone || overwrites(node, k)) continue;
        const auto [use, is_new] = found.try_emplace({part_of(id), weight}, uses_.size());
        if (is_new) uses_.push_back({.weight = weight, .part = part_of(id), .first = id});
        std::vector<ValueId>& values = uses_[use->second].values;
        if (std::ranges::count(values, in) == 0) values.push_back(in);
      }
    }
  }

  Part part_of(NodeId id) const { return id < first_backward_ ? kForwardPart : kBackwardPart; }

  bool is_due(size_t use, NodeId id) const {
    return use < options_.num_ahead || uses_[use - options_.num_ahead].first <= id;
  }

  /// Returns the value to broadcast: if only one value computed from the weight is read and it is not larger,
  /// that value; otherwise the weight.
  ValueId sent(const Use& use) const {
    const bool is_smaller = use.values.size() == 1 &&
                            graph_.type(use.values[0]).num_bytes() <= graph_.type(use.weight).num_bytes();
    return is_smaller ? use.values[0] : use.weight;
  }

  void exchange(Use& use) {
    const ir::Value weight = graph_.value(use.weight);
    ir::Attrs attrs = {{"root", int64_t{owner(weight)}}};
    if (owner(weight) == options_.rank) {
      ValueId value = made(sent(use), use.part);
      if (options_.through_host) value = graph_.add1(ops::stash, {value}, {}, weight.name);
      graph_.add(ops::send_broadcast, {value}, std::move(attrs), weight.name);
      return;
    }
    const ir::Type type = graph_.type(sent(use));
    attrs.set("shape", std::vector<int64_t>(type.shape.axes().begin(), type.shape.axes().end()));
    attrs.set("dtype", std::string(dtype_name(type.dtype)));
    use.received = graph_.add1(ops::receive_broadcast, {}, std::move(attrs), weight.name);
  }

  void materialize_all(const Use& use) {
    if (use.received != kNone)
      here_[use.part][sent(use)] = graph_.add1(ops::fetch, {use.received}, {}, graph_.value(use.weight).name);
    for (const ValueId value : use.values) made(value, use.part);
  }

  /// Returns the weight, or a value computed from it, for readers in the pass `part`. Recomputes the value if
  /// it does not exist in this pass yet.
  ValueId made(ValueId value, Part part) {
    if (const auto found = here_[part].find(value); found != here_[part].end()) return found->second;
    if (weight_of_[index(value)] == value) return value;
    ir::Node node = (*old_)[index(graph_.value(value).producer)];
    for (ValueId& in : node.inputs) in = made(in, part);
    const ir::Value as = graph_.value(value);
    node.outputs = {graph_.add_value(as.name, as.type, as.role)};
    graph_.nodes.push_back(node);
    return here_[part][value] = node.outputs[0];
  }

  void append(ir::Node node, Part part) {
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      ValueId& in = node.inputs[k];
      const bool is_of_weight =
          in != kNone && index(in) < weight_of_.size() && weight_of_[index(in)] != kNone;
      if (is_of_weight && !overwrites(node, k)) in = made(in, part);
    }
    graph_.nodes.push_back(std::move(node));
  }

  TrainGraph& train_;
  ir::Graph& graph_;
  const ShardOptions& options_;
  const std::vector<ir::Node>* old_ = nullptr;
  std::vector<ValueId> weight_of_;  ///< for each value computed from a single weight, that weight
  NodeId first_backward_ = 0;
  std::vector<Use> uses_;  ///< uses of all weights, sorted by first reader
  std::array<std::map<ValueId, ValueId>, 2> here_;
};

}  // namespace

void shard_weights(TrainGraph& train, const ShardOptions& options) {
  if (options.owners != nullptr) ShardWeights(train, options).run();
}

}  // namespace hearth::passes
