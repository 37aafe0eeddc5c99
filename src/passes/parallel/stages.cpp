#include "passes/parallel/stages.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "base/error.h"
#include "cost/seconds.h"
#include "ir/op_def.h"
#include "passes/parallel/stage_positions.h"

namespace hearth::passes {
namespace {

using ir::index;
using ir::kNone;
using ir::NodeId;
using ir::ValueId;

constexpr int kNowhere = Positions::kNowhere;
/// Chooses the cuts between stages by dynamic programming: best[s][p] is the best partition of everything
/// before cut position p into s stages. Takes O(stages * positions^2). A cut at c is before position c.
class Cuts {
 public:
  Cuts(const ir::Graph& graph, const Positions& positions, const StageOptions& options)
      : graph_(graph), positions_(positions), options_(options) {
    add_seconds();
    add_weights();
    add_activations();
    add_up(seconds_);
    add_up(weight_bytes_);
    add_up(num_trained_);
    add_up(saved_bytes_);
    add_homes();
    find_cut_positions();
  }

  /// Returns the cuts: stage s has the positions [result[s], result[s + 1]).
  std::vector<int> choose() const {
    const size_t num_stages = options_.devices.size(), num_cut_positions = cut_positions_.size();
    std::vector<std::vector<Partition>> best(num_stages + 1, std::vector<Partition>(num_cut_positions));
    best[0][0] = {.excess_bytes = 0};
    for (size_t s = 0; s < num_stages; ++s) {
      for (size_t end = s + 1; end < num_cut_positions; ++end) {
        for (size_t begin = s; begin < end; ++begin) {
          const Partition partition =
              with_stage(best[s][begin], begin, s, cut_positions_[begin], cut_positions_[end]);
          if (partition < best[s + 1][end]) best[s + 1][end] = partition;
        }
      }
    }
    std::vector<int> cuts = {cut_positions_.back()};
    size_t place = num_cut_positions - 1;
    for (size_t s = num_stages; s > 0; --s) {
      place = best[s][place].from;
      cuts.insert(cuts.begin(), cut_positions_[place]);
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
  /// Cost of a partition of the first stages. Compared lexicographically: number of weights whose home is
  /// another stage plus stages without trained weights; bytes that do not fit into memory; time of the
  /// slowest stage.
  struct Partition {
    int64_t num_remote_weights = 0;
    int64_t excess_bytes = std::numeric_limits<int64_t>::max();
    double seconds = 0;
    size_t from = 0;
    bool operator<(const Partition& other) const {
      return std::tie(num_remote_weights, excess_bytes, seconds) <
             std::tie(other.num_remote_weights, other.excess_bytes, other.seconds);
    }
  };

  Partition with_stage(Partition partition, size_t from, size_t stage, int begin, int end) const {
    if (partition.excess_bytes == std::numeric_limits<int64_t>::max()) return partition;
    const StageShare own = share(stage, begin, end);
    const int64_t max_crossing = options_.devices[stage].memory_bytes;
    if (max_crossing > 0)
      partition.excess_bytes += std::max<int64_t>(0, own.weight_bytes + own.activation_bytes - max_crossing);
    const std::vector<int64_t>& away = num_remote_weights_[stage];
    partition.num_remote_weights += away[index(end)] - away[index(begin)];
    if (num_trained_[index(end)] == num_trained_[index(begin)]) ++partition.num_remote_weights;
    partition.seconds = std::max(partition.seconds, own.seconds);
    partition.from = from;
    return partition;
  }

  size_t num_positions() const { return index(positions_.num_positions()); }

  /// Replaces values[p] by the sum of the values before position p, for all p.
  template <typename T>
  static void add_up(std::vector<T>& values) {
    values.push_back(0);
    std::exclusive_scan(values.begin(), values.end(), values.begin(), T{0});
  }

  void add_seconds() {
    seconds_.resize(num_positions());
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (const int at = positions_.of_node(i); at != kNowhere)
        seconds_[index(at)] += cost::seconds_of(graph_, graph_.nodes[i], options_.device);
    }
  }

  void add_weights() {
    weight_bytes_.resize(num_positions());
    num_trained_.resize(num_positions());
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      const ir::Value& value = graph_.values[i];
      if (value.producer != kNone || !ir::is_persistent(value.role) || value.role == ir::Role::carried)
        continue;
      const int at = positions_.of_value(static_cast<ValueId>(i));
      if (at == kNowhere) continue;
      const auto num_bytes = static_cast<double>(value.type.num_bytes());
      const double copies = value.role == ir::Role::parameter ? options_.weight_copies : 1;
      num_trained_[index(at)] += value.role == ir::Role::parameter ? 1 : 0;
      weight_bytes_[index(at)] += static_cast<int64_t>(copies * num_bytes);
    }
  }

  /// Adds up, by position, the bytes of forward activations that the backward pass reads.
  void add_activations() {
    saved_bytes_.resize(num_positions());
    std::set<ValueId> saved;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (positions_.is_free(i) || positions_.part(i) != MicroPart::backward) continue;
      for (const ValueId in : graph_.nodes[i].inputs) {
        if (in != kNone && !positions_.is_backward_value(in)) saved.insert(storage_of(in));
      }
    }
    for (const ValueId id : saved) {
      if (graph_.value(id).producer == kNone) continue;
      const int at = positions_.of_value(id);
      if (at != kNowhere) saved_bytes_[index(at)] += graph_.type(id).num_bytes();
    }
  }

  void add_homes() {
    num_remote_weights_.assign(options_.devices.size(), std::vector<int64_t>(num_positions()));
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      const auto id = static_cast<ValueId>(i);
      const std::optional<int> home = positions_.home_of(id);
      if (!home || positions_.of_value(id) == kNowhere) continue;
      for (size_t stage = 0; stage < num_remote_weights_.size(); ++stage) {
        if (static_cast<int>(stage) != *home) ++num_remote_weights_[stage][index(positions_.of_value(id))];
      }
    }
    for (std::vector<int64_t>& away : num_remote_weights_) add_up(away);
  }

  ValueId storage_of(ValueId id) const {
    for (NodeId node = graph_.value(id).producer; node != kNone && graph_.node(node).op->is_view;
         node = graph_.value(id).producer)
      id = graph_.node(node).inputs[0];
    return id;
  }

  /// Selects as cut positions those that the fewest values cross, at least as many as are needed.
  void find_cut_positions() {
    const std::vector<int> crossing = num_crossing();
    const size_t wanted = options_.devices.size() - 1;
    std::vector<int> counts(crossing.begin() + std::min<int64_t>(1, std::ssize(crossing)), crossing.end());
    if (counts.size() < wanted) {
      user_error(
          "the model cannot be cut into {} pipeline stages, because it has only {} positions for cuts; try "
          "fewer devices",
          wanted + 1, counts.size());
    }
    std::ranges::sort(counts);
    const int max_crossing = wanted == 0 ? -1 : counts[wanted - 1];
    cut_positions_ = {0};
    for (size_t p = 1; p < crossing.size(); ++p) {
      if (crossing[p] <= max_crossing) cut_positions_.push_back(static_cast<int>(p));
    }
    cut_positions_.push_back(positions_.num_positions());
  }

  /// Returns, for each position, the number of values of the micro-batch that are computed before it and read
  /// after it on the forward path.
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
  /// Sums over all positions before each position.
  std::vector<double> seconds_;
  std::vector<int64_t> weight_bytes_, num_trained_, saved_bytes_;
  /// For each stage and position: number of weights before the position whose home is another stage.
  std::vector<std::vector<int64_t>> num_remote_weights_;
  std::vector<int> cut_positions_;
};

int stage_of(const std::vector<int>& cuts, int position) {
  return static_cast<int>(std::upper_bound(cuts.begin(), cuts.end() - 1, position) - cuts.begin()) - 1;
}

/// Returns the stage of a value.
int stage_of(const std::vector<int>& cuts, const Positions& positions, ValueId id) {
  const std::optional<int> home = positions.home_of(id);
  return home ? *home : stage_of(cuts, positions.of_value(id));
}

/// Returns the stage that stores each persistent value, except values carried between micro-batches.
std::map<std::string, int> find_homes(const ir::Graph& graph, const Positions& positions,
                                      const std::vector<int>& cuts) {
  std::map<std::string, int> homes;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const ir::Value& value = graph.values[i];
    const auto id = static_cast<ValueId>(i);
    if (value.producer != kNone || positions.of_value(id) == kNowhere) continue;
    if (ir::is_persistent(value.role) && value.role != ir::Role::carried)
      homes[value.name] = stage_of(cuts, positions, id);
  }
  return homes;
}

/// True if the value must be sent to other stages that read it. Not for frozen weights, which every stage
/// has, and for values that every stage computes.
bool is_sent(const ir::Graph& graph, const Positions& positions, ValueId id) {
  const ir::Value& value = graph.value(id);
  if (value.role == ir::Role::frozen) return false;
  if (value.producer == kNone) return value.role == ir::Role::parameter || positions.home_of(id);
  return !positions.is_free(index(value.producer));
}

/// Returns the phase in which a value that was computed in phase `made` is sent from stage `from` to stage
/// `to`.
MicroPart part_of(MicroPart made, int from, int to) {
  if (made == MicroPart::once || made == MicroPart::early) return made;
  if (from > to) return MicroPart::backward;
  return made == MicroPart::forward ? made : MicroPart::late;
}

/// Moves nodes that look up rows of a large table to the stage that stores the table.
void move_early(const ir::Graph& graph, const Positions& positions, const std::vector<int>& cuts,
                Stages& stages) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ValueId weight = positions.larger_weight(i);
    if (weight == kNone || !is_sent(graph, positions, weight)) continue;
    const int stage = stage_of(cuts, positions, weight);
    if (stage <= stages.of_node[i]) continue;
    stages.of_node[i] = stage;
    stages.part_of_node[i] = MicroPart::early;
  }
}

/// Sets the phase `late` for nodes that need a result of an earlier stage's backward pass.
void find_late(const ir::Graph& graph, Stages& stages) {
  const auto is_late_for = [&](ValueId in, int stage) {
    const NodeId producer = in == kNone ? kNone : graph.value(in).producer;
    const int from = producer == kNone ? Stages::kEvery : stages.of_node[index(producer)];
    if (from == Stages::kEvery) return false;
    const MicroPart made = stages.part_of_node[index(producer)];
    return made == MicroPart::late || (made == MicroPart::backward && from < stage);
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int stage = stages.of_node[i];
    if (stages.part_of_node[i] != MicroPart::backward || stage == Stages::kEvery) continue;
    if (std::ranges::any_of(graph.nodes[i].inputs, [&](ValueId in) { return is_late_for(in, stage); }))
      stages.part_of_node[i] = MicroPart::late;
  }
}

std::vector<Crossing> find_crossings(const ir::Graph& graph, const Positions& positions, const Stages& stages,
                                     const std::vector<int>& cuts) {
  std::map<std::pair<ValueId, int>, Crossing> found;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int to = stages.of_node[i];
    for (const ValueId in : graph.nodes[i].inputs) {
      if (to == Stages::kEvery || in == kNone || !is_sent(graph, positions, in)) continue;
      const NodeId producer = graph.value(in).producer;
      const int from = producer == kNone ? stage_of(cuts, positions, in) : stages.of_node[index(producer)];
      if (from == to) continue;
      const MicroPart made = producer == kNone ? MicroPart::once : stages.part_of_node[index(producer)];
      found.insert({{in, to}, {.value = in, .from = from, .to = to, .part = part_of(made, from, to)}});
    }
  }
  std::vector<Crossing> crossings;
  for (const auto& [key, crossing] : found) crossings.push_back(crossing);
  return crossings;
}

}  // namespace

Stages split_stages(const TrainGraph& train, const StageOptions& options) {
  HEARTH_CHECK(!options.devices.empty() && train.losses != kNone);
  const Positions positions(train, options.homes);
  const Cuts chooser(train.graph, positions, options);
  const std::vector<int> cuts = chooser.choose();
  Stages stages;
  for (size_t i = 0; i < train.graph.nodes.size(); ++i) {
    stages.of_node.push_back(positions.is_free(i) ? Stages::kEvery : stage_of(cuts, positions.of_node(i)));
    stages.part_of_node.push_back(positions.part(i));
  }
  move_early(train.graph, positions, cuts, stages);
  find_late(train.graph, stages);
  stages.crossings = find_crossings(train.graph, positions, stages, cuts);
  for (size_t s = 0; s < options.devices.size(); ++s)
    stages.shares.push_back(chooser.share(s, cuts[s], cuts[s + 1]));
  stages.homes = find_homes(train.graph, positions, cuts);
  return stages;
}

}  // namespace hearth::passes
