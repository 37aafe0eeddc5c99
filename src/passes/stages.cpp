#include "passes/stages.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "ir/op_def.h"
#include "passes/rewrite.h"

namespace hearth::passes {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

constexpr int kNowhere = std::numeric_limits<int>::max();
size_t index(int32_t id) { return static_cast<size_t>(id); }

/// What each node is, and its position: its own number among the nodes that lead to the losses, or that of
/// the one it belongs to.
class Positions {
 public:
  explicit Positions(const TrainGraph& train) : train_(train), graph_(train.graph) {
    mark();
    number_path();
    place_rest();
  }

  int num_positions() const { return num_positions_; }
  bool is_free(size_t node) const { return free_[node] != 0; }
  MicroPart part(size_t node) const { return part_[node]; }
  bool is_on_path(size_t node) const { return part_[node] == MicroPart::forward && path_[node] != 0; }
  int of_node(size_t node) const { return position_[node]; }
  /// Where a value is made, or, of what lasts, read first; kNowhere: in every stage that reads it.
  int of_value(ValueId id) const {
    const NodeId producer = graph_.value(id).producer;
    if (producer == kNone) return ir::is_persistent(graph_.value(id).role) ? first_[index(id)] : kNowhere;
    return is_free(index(producer)) ? kNowhere : position_[index(producer)];
  }
  bool is_made_backward(ValueId id) const {
    const NodeId producer = graph_.value(id).producer;
    return producer != kNone && !is_free(index(producer)) && part_[index(producer)] == MicroPart::backward;
  }

 private:
  /// What values depend on.
  struct Marks {
    std::vector<char> weights, micro, cotangent;
  };

  void mark() {
    const size_t num_values = graph_.values.size(), num_nodes = graph_.nodes.size();
    Marks marks{std::vector<char>(num_values), std::vector<char>(num_values), std::vector<char>(num_values)};
    const std::set<ValueId> written = written_leaves();
    for (size_t i = 0; i < num_values; ++i) {
      const ir::Value& value = graph_.values[i];
      const bool changes = written.contains(static_cast<ValueId>(i));
      marks.weights[i] = value.role == ir::Role::parameter || value.role == ir::Role::frozen || changes;
      marks.micro[i] = value.role == ir::Role::input || value.role == ir::Role::scalar || changes;
    }
    if (train_.loss_weight != kNone) marks.cotangent[index(train_.loss_weight)] = 1;
    mark_path();
    free_.assign(num_nodes, 0);
    part_.assign(num_nodes, MicroPart::forward);
    for (size_t i = 0; i < num_nodes; ++i) classify(i, marks);
  }

  std::set<ValueId> written_leaves() const {
    std::set<ValueId> written;
    for (const ir::Node& node : graph_.nodes) {
      for (const int k : node.op->writes) {
        const ValueId in = k < 0 ? kNone : input_or_none(node, static_cast<size_t>(k));
        if (in != kNone && graph_.value(in).producer == kNone) written.insert(in);
      }
    }
    return written;
  }

  /// The nodes that the losses depend on.
  void mark_path() {
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

  void classify(size_t i, Marks& marks) {
    const ir::Node& node = graph_.nodes[i];
    const auto any = [&](const std::vector<char>& mark) {
      return std::ranges::any_of(node.inputs,
                                 [&](ValueId in) { return in != kNone && mark[index(in)] != 0; });
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

  void number_path() {
    position_.assign(graph_.nodes.size(), kNowhere);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!is_free(i) && is_on_path(i)) position_[i] = num_positions_++;
    }
    first_.assign(graph_.values.size(), kNowhere);
    find_first_readers();
  }

  /// Of what lasts and has no place so far, from the positions that are known.
  void find_first_readers() {
    std::vector<int> found(graph_.values.size(), kNowhere);
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const ir::Node& node = graph_.nodes[i];
      if (part_[i] == MicroPart::once && !is_free(i) && position_[i] == kNowhere) {
        for (const ValueId out : node.outputs) position_[i] = std::min(position_[i], found[index(out)]);
      }
      if (is_free(i)) continue;
      for (const ValueId in : node.inputs) {
        if (in != kNone) found[index(in)] = std::min(found[index(in)], position_[i]);
      }
    }
    for (size_t i = 0; i < first_.size(); ++i) {
      if (first_[i] == kNowhere) first_[i] = found[i];
    }
  }

  /// Nodes that make the gradient of a weight belong to the weight.
  std::map<NodeId, int> pins() const {
    std::map<NodeId, int> pins;
    for (const Gradient& gradient : train_.gradients) {
      const int position = first_[index(gradient.parameter)];
      ValueId value = gradient.gradient;
      while (value != kNone && is_made_backward(value)) {
        const NodeId producer = graph_.value(value).producer;
        pins.emplace(producer, position);
        value = only_made_input(graph_.node(producer));
      }
    }
    return pins;
  }

  /// Of a cast, a view or a sum that is kept; kNone for a node that puts several values together.
  ValueId only_made_input(const ir::Node& node) const {
    ValueId only = kNone;
    for (const ValueId in : node.inputs) {
      if (in == kNone || graph_.value(in).role == ir::Role::carried) continue;
      if (only != kNone) return kNone;
      only = in;
    }
    return only;
  }

  void place_rest() {
    const std::map<NodeId, int> pins = this->pins();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (is_free(i) || position_[i] != kNowhere || part_[i] == MicroPart::once) continue;
      const auto pin = pins.find(static_cast<NodeId>(i));
      position_[i] = part_[i] == MicroPart::backward
                         ? backward_position(graph_.nodes[i], pin == pins.end() ? kNowhere : pin->second)
                         : last_input(graph_.nodes[i], num_positions_ - 1);
    }
    follow_readers();
    find_first_readers();
  }

  /// Casts and the like of a gradient that crosses a cut anyway are made behind it, not sent too.
  void follow_readers() {
    const Readers readers(graph_);
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

  /// The last position that a node's inputs of the forward pass have, or `otherwise`.
  int last_input(const ir::Node& node, int otherwise) const {
    int last = -1;
    for (const ValueId in : node.inputs) {
      if (in == kNone || is_made_backward(in)) continue;
      if (const int position = of_value(in); position != kNowhere) last = std::max(last, position);
    }
    return last < 0 ? otherwise : last;
  }

  /// Never behind what it reads of the backward pass.
  int backward_position(const ir::Node& node, int pin) const {
    int most = num_positions_ - 1;
    for (const ValueId in : node.inputs) {
      if (in != kNone && is_made_backward(in)) most = std::min(most, of_value(in));
    }
    return std::min(most, pin == kNowhere ? last_input(node, most) : pin);
  }

  const TrainGraph& train_;
  const ir::Graph& graph_;
  std::vector<char> free_, path_;
  std::vector<MicroPart> part_;
  std::vector<int> position_;
  std::vector<int> first_;  ///< of each value that lasts, where it is read first
  int num_positions_ = 0;
};

/// Chooses cuts; cut c stands in front of position c.
class Cuts {
 public:
  Cuts(const ir::Graph& graph, const Positions& positions, const StageOptions& options)
      : graph_(graph), positions_(positions), options_(options) {
    add_seconds();
    add_weights();
    add_activations();
    add_up(seconds_);
    add_up(weight_bytes_);
    add_up(saved_bytes_);
    find_places();
  }

  /// Stage s has positions [result[s], result[s + 1]).
  std::vector<int> choose() const {
    const size_t num_stages = options_.devices.size(), num_places = places_.size();
    std::vector<std::vector<Way>> best(num_stages + 1, std::vector<Way>(num_places));
    best[0][0] = {.excess_bytes = 0, .seconds = 0};
    for (size_t s = 0; s < num_stages; ++s) {
      for (size_t end = s + 1; end < num_places; ++end) {
        for (size_t begin = s; begin < end; ++begin) {
          const Way way = with_stage(best[s][begin], begin, s, places_[begin], places_[end]);
          if (way < best[s + 1][end]) best[s + 1][end] = way;
        }
      }
    }
    std::vector<int> cuts = {places_.back()};
    size_t place = num_places - 1;
    for (size_t s = num_stages; s > 0; --s) {
      place = best[s][place].from;
      cuts.insert(cuts.begin(), places_[place]);
    }
    return cuts;
  }

  StageShare share(size_t stage, int begin, int end) const {
    const auto sum = [&](const auto& sums) { return sums[index(end)] - sums[index(begin)]; };
    const auto behind = static_cast<int64_t>(options_.devices.size() - stage);
    return {.seconds = sum(seconds_) / options_.devices[stage].speed,
            .weight_bytes = sum(weight_bytes_),
            .activation_bytes = std::min(behind, options_.num_micro) * sum(saved_bytes_)};
  }

 private:
  /// Stages up to some place: bytes that do not fit come first, then the slowest of them.
  struct Way {
    int64_t excess_bytes = std::numeric_limits<int64_t>::max();
    double seconds = 0;
    size_t from = 0;
    bool operator<(const Way& other) const {
      return excess_bytes != other.excess_bytes ? excess_bytes < other.excess_bytes : seconds < other.seconds;
    }
  };

  Way with_stage(Way way, size_t from, size_t stage, int begin, int end) const {
    if (way.excess_bytes == std::numeric_limits<int64_t>::max()) return way;
    const StageShare own = share(stage, begin, end);
    const int64_t most = options_.devices[stage].memory_bytes;
    if (most > 0) way.excess_bytes += std::max<int64_t>(0, own.weight_bytes + own.activation_bytes - most);
    way.seconds = std::max(way.seconds, own.seconds);
    way.from = from;
    return way;
  }

  size_t num_positions() const { return index(positions_.num_positions()); }

  /// values[p] = the sum of those in front of position p.
  template <typename T>
  static void add_up(std::vector<T>& values) {
    values.push_back(0);
    std::exclusive_scan(values.begin(), values.end(), values.begin(), T{0});
  }

  void add_seconds() {
    seconds_.resize(num_positions());
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (const int at = positions_.of_node(i); at != kNowhere)
        seconds_[index(at)] += cost_seconds(graph_, graph_.nodes[i], options_.machine);
    }
  }

  void add_weights() {
    weight_bytes_.resize(num_positions());
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      const ir::Value& value = graph_.values[i];
      if (value.producer != kNone || !ir::is_persistent(value.role) || value.role == ir::Role::carried)
        continue;
      const int at = positions_.of_value(static_cast<ValueId>(i));
      if (at == kNowhere) continue;
      const auto num_bytes = static_cast<double>(value.type.num_bytes());
      const double copies = value.role == ir::Role::parameter ? options_.weight_copies : 1;
      weight_bytes_[index(at)] += static_cast<int64_t>(copies * num_bytes);
    }
  }

  /// The bytes of the forward pass that the backward pass reads.
  void add_activations() {
    saved_bytes_.resize(num_positions());
    std::set<ValueId> saved;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (positions_.is_free(i) || positions_.part(i) != MicroPart::backward) continue;
      for (const ValueId in : graph_.nodes[i].inputs) {
        if (in != kNone && !positions_.is_made_backward(in)) saved.insert(storage_of(in));
      }
    }
    for (const ValueId id : saved) {
      if (graph_.value(id).producer == kNone) continue;
      const int at = positions_.of_value(id);
      if (at != kNowhere) saved_bytes_[index(at)] += graph_.type(id).num_bytes();
    }
  }

  ValueId storage_of(ValueId id) const {
    for (NodeId node = graph_.value(id).producer; node != kNone && graph_.node(node).op->is_view;
         node = graph_.value(id).producer)
      id = graph_.node(node).inputs[0];
    return id;
  }

  /// The cuts that the fewest values cross, as many as are needed.
  void find_places() {
    const std::vector<int> crossing = num_crossing();
    const size_t wanted = options_.devices.size() - 1;
    std::vector<int> counts(crossing.begin() + std::min<int64_t>(1, std::ssize(crossing)), crossing.end());
    if (counts.size() < wanted) {
      user_error(
          "expected a model that can be cut into {} stages, got one with places for {} cuts; try fewer "
          "devices",
          wanted + 1, counts.size());
    }
    std::ranges::sort(counts);
    const int most = wanted == 0 ? -1 : counts[wanted - 1];
    places_ = {0};
    for (size_t p = 1; p < crossing.size(); ++p) {
      if (crossing[p] <= most) places_.push_back(static_cast<int>(p));
    }
    places_.push_back(positions_.num_positions());
  }

  /// Values of a micro-batch that are made in front of each position and read behind it, on the way to the
  /// losses.
  std::vector<int> num_crossing() const {
    std::map<ValueId, int> last_read;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (positions_.is_free(i) || !positions_.is_on_path(i)) continue;
      for (const ValueId in : graph_.nodes[i].inputs) {
        if (in != kNone && is_of_micro_batch(in)) last_read[in] = positions_.of_node(i);
      }
    }
    std::vector<int> count(num_positions(), 0);
    for (const auto& [value, last] : last_read) {
      for (int p = positions_.of_value(value) + 1; p <= last; ++p) ++count[index(p)];
    }
    return count;
  }
  bool is_of_micro_batch(ValueId id) const {
    const NodeId producer = graph_.value(id).producer;
    return producer != kNone && !positions_.is_free(index(producer)) &&
           positions_.part(index(producer)) == MicroPart::forward;
  }

  const ir::Graph& graph_;
  const Positions& positions_;
  const StageOptions& options_;
  /// In front of each position.
  std::vector<double> seconds_;
  std::vector<int64_t> weight_bytes_, saved_bytes_;
  std::vector<int> places_;
};

int stage_of(const std::vector<int>& cuts, int position) {
  return static_cast<int>(std::upper_bound(cuts.begin(), cuts.end() - 1, position) - cuts.begin()) - 1;
}

/// What another stage has to send; weights that nothing trains are everywhere, and so is what is told to all.
bool is_sent(const ir::Graph& graph, const Positions& positions, ValueId id) {
  const ir::Value& value = graph.value(id);
  if (value.producer == kNone) return value.role == ir::Role::parameter;
  return !positions.is_free(index(value.producer));
}

std::vector<Crossing> find_crossings(const ir::Graph& graph, const Positions& positions, const Stages& stages,
                                     const std::vector<int>& cuts) {
  std::map<std::pair<ValueId, int>, Crossing> found;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int to = stages.of_node[i];
    for (const ValueId in : graph.nodes[i].inputs) {
      if (to == Stages::kEvery || in == kNone || !is_sent(graph, positions, in)) continue;
      const int from = stage_of(cuts, positions.of_value(in));
      if (from == to) continue;
      const NodeId producer = graph.value(in).producer;
      const bool once = producer == kNone || stages.part_of_node[index(producer)] == MicroPart::once;
      const MicroPart part = once ? MicroPart::once : from < to ? MicroPart::forward : MicroPart::backward;
      found.insert({{in, to}, {.value = in, .from = from, .to = to, .part = part}});
    }
  }
  std::vector<Crossing> crossings;
  for (const auto& [key, crossing] : found) crossings.push_back(crossing);
  return crossings;
}

}  // namespace

Stages split_stages(const TrainGraph& train, const StageOptions& options) {
  HEARTH_CHECK(!options.devices.empty() && train.losses != kNone);
  const Positions positions(train);
  const Cuts chooser(train.graph, positions, options);
  const std::vector<int> cuts = chooser.choose();
  Stages stages;
  for (size_t i = 0; i < train.graph.nodes.size(); ++i) {
    stages.of_node.push_back(positions.is_free(i) ? Stages::kEvery : stage_of(cuts, positions.of_node(i)));
    stages.part_of_node.push_back(positions.part(i));
  }
  stages.crossings = find_crossings(train.graph, positions, stages, cuts);
  for (size_t s = 0; s < options.devices.size(); ++s)
    stages.shares.push_back(chooser.share(s, cuts[s], cuts[s + 1]));
  return stages;
}

}  // namespace hearth::passes
