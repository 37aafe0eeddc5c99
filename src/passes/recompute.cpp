#include "passes/recompute.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "ir/op_def.h"
#include "passes/rewrite.h"

namespace hearth::passes {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

double cost_seconds(const ir::Graph& graph, const ir::Node& node) {
  constexpr double kFlopsPerSecond = 1e11;
  constexpr double kBytesPerSecond = 1e10;
  const ir::Cost cost = ir::cost_of(graph, node);
  return cost.flops / kFlopsPerSecond + cost.bytes / kBytesPerSecond;
}

/// A value that is made, waits over the peak, and is read again later.
struct Candidate {
  std::vector<ValueId> chain = {};  ///< what is made again, in order; the value itself is last
  NodeId next_read = kNone;         ///< the first reader after the peak
  double seconds = 0;               ///< estimate of the extra work
  double score = 0;                 ///< bytes saved per second
};

/// The node that makes `value` again, without outputs; none if that is not possible.
std::optional<ir::Node> repeat_node(const ir::Graph& graph, ValueId value) {
  const ir::Node& node = graph.node(graph.value(value).producer);
  if (node.outputs.front() != value) return std::nullopt;
  if (node.op->repeat != nullptr) return node.op->repeat(node);
  if (!node.op->writes.empty() || node.op->is_view || node.outputs.size() != 1) return std::nullopt;
  ir::Node again = node;
  again.outputs.clear();
  return again;
}

class Recompute {
 public:
  Recompute(ir::Graph& graph, int64_t budget, const WorkspaceOf& workspace_of)
      : graph_(graph), budget_(budget), workspace_of_(workspace_of) {
    remember_ = [this](const ir::Node& node) { return workspace(node); };
  }

  RecomputeResult run() {
    RecomputeResult result;
    result.peak_before_bytes = result.peak_after_bytes = survey();
    const double flops_before = total_flops();
    seconds_left_ = kLargestShare * total_seconds();
    const ir::Graph original = graph_;
    size_t num_useful = 0;
    int patience = kPatience;
    while (result.peak_after_bytes > budget_ && patience-- > 0 && improve()) {
      const int64_t peak = survey();
      if (peak >= result.peak_after_bytes) continue;
      num_useful = inserted_.size();
      result.peak_after_bytes = peak;
      result.num_recomputed = static_cast<int>(copies_.size());
      patience = kPatience;
    }
    if (num_useful < inserted_.size()) insert_only(original, num_useful);
    result.extra_flops = total_flops() - flops_before;
    result.fits = result.peak_after_bytes <= budget_;
    return result;
  }

 private:
  double total_flops() const {
    double flops = 0;
    for (const ir::Node& node : graph_.nodes) flops += ir::cost_of(graph_, node).flops;
    return flops;
  }

  double total_seconds() const {
    double seconds = 0;
    for (const ir::Node& node : graph_.nodes) seconds += cost_seconds(graph_, node);
    return seconds;
  }

  /// The peak of the graph as it is now; notes where it stands.
  int64_t survey() {
    map_ = assign_storage(graph_);
    const std::vector<int64_t> live = live_bytes(graph_, map_, remember_);
    const auto peak = std::max_element(live.begin(), live.end());
    peak_ = static_cast<NodeId>(peak - live.begin());
    return live.empty() ? 0 : *peak;
  }

  /// A node's workspace, asked for once: its first output names it.
  int64_t workspace(const ir::Node& node) {
    if (!workspace_of_ || node.outputs.empty()) return workspace_of_ ? workspace_of_(node) : 0;
    const auto [found, added] = workspaces_.try_emplace(node.outputs.front(), 0);
    if (added) found->second = workspace_of_(node);
    return found->second;
  }

  /// Starts again and makes the first `count` insertions.
  void insert_only(const ir::Graph& original, size_t count) {
    graph_ = original;
    copies_.clear();
    const std::vector<Candidate> all = std::move(inserted_);
    for (size_t i = 0; i < count; ++i) insert_copies(all[i]);
  }

  /// Applies the best candidate over the present peak; false when there is none.
  bool improve() {
    const auto reads = readers(graph_);
    Candidate best;
    for (const Storage& storage : map_.storages) {
      auto candidate = consider(storage, reads[static_cast<size_t>(storage.value)]);
      if (candidate && candidate->score > best.score) best = std::move(*candidate);
    }
    if (best.chain.empty()) return false;
    seconds_left_ -= best.seconds;
    insert_copies(best);
    inserted_.push_back(std::move(best));
    return true;
  }

  std::optional<Candidate> consider(const Storage& storage, const std::vector<NodeId>& reads) const {
    const ValueId value = storage.value;
    if (storage.first >= peak_ || storage.last <= peak_ || is_output(value)) return std::nullopt;
    if (copies_.contains(value) || !repeat_node(graph_, value)) return std::nullopt;
    const auto next = std::find_if(reads.begin(), reads.end(), [&](NodeId id) { return id > peak_; });
    if (next == reads.end() || std::find(reads.begin(), reads.end(), peak_) != reads.end())
      return std::nullopt;
    Candidate candidate{.next_read = *next};
    const int64_t saved = storage.num_bytes - kept_bytes(value, candidate.chain);
    if (saved <= 0) return std::nullopt;
    for (const ValueId id : candidate.chain)
      candidate.seconds += cost_seconds(graph_, graph_.node(graph_.value(id).producer));
    if (candidate.seconds > seconds_left_) return std::nullopt;
    candidate.score = static_cast<double>(saved) / candidate.seconds;
    return candidate;
  }

  /// Appends to `chain` what must be made again to make `value` again, and returns the bytes that stay live
  /// over the peak only for that. An input that is gone by then is made again too, where that is possible.
  int64_t kept_bytes(ValueId value, std::vector<ValueId>& chain) const {
    int64_t bytes = 0;
    const std::vector<ValueId> inputs = repeat_node(graph_, value)->inputs;
    for (const ValueId in : inputs) {
      if (in == kNone || is_live_after_peak(in) || std::find(chain.begin(), chain.end(), in) != chain.end())
        continue;
      if (chain.size() < kLongestChain && repeat_node(graph_, in)) {
        bytes += kept_bytes(in, chain);
      } else {
        bytes += graph_.type(in).num_bytes();
      }
    }
    chain.push_back(value);
    return bytes;
  }

  bool is_live_after_peak(ValueId id) const {
    const int storage = map_.of_value[static_cast<size_t>(id)];
    return storage < 0 || map_.storages[static_cast<size_t>(storage)].last > peak_;
  }

  bool is_output(ValueId id) const {
    return std::find(graph_.outputs.begin(), graph_.outputs.end(), id) != graph_.outputs.end();
  }

  /// Makes the chain again before the first late reader; all later readers, also of earlier copies, read the
  /// new values.
  void insert_copies(const Candidate& candidate) {
    auto at = static_cast<size_t>(candidate.next_read);
    std::map<ValueId, ValueId> made;
    for (const ValueId value : candidate.chain) {
      ir::Node copy = *repeat_node(graph_, value);
      for (ValueId& in : copy.inputs) in = made.contains(in) ? made[in] : in;
      const ir::Value original = graph_.value(value);
      const ValueId again = graph_.add_value(original.name, original.type, original.role);
      made[value] = again;
      copy.outputs = {again};
      add_other_outputs(graph_.node(graph_.value(value).producer), copy);
      copy.name += " again";
      graph_.nodes.insert(graph_.nodes.begin() + static_cast<int64_t>(at++), std::move(copy));
    }
    for (auto i = at; i < graph_.nodes.size(); ++i) {
      for (ValueId& in : graph_.nodes[i].inputs) {
        const auto copy = copies_.find(in);
        const auto found = made.find(copy == copies_.end() ? in : copy->second);
        if (found != made.end()) in = found->second;
      }
    }
    for (const auto& [value, again] : made) copies_[again] = value;
    graph_.remove_dead_nodes();
  }

  /// What an op makes besides its first output it makes again too, for nobody.
  void add_other_outputs(const ir::Node& original, ir::Node& copy) {
    for (size_t k = 1; copy.op == original.op && k < original.outputs.size(); ++k)
      copy.outputs.push_back(graph_.add_value("", graph_.type(original.outputs[k]), ir::Role::activation));
  }

  static constexpr size_t kLongestChain = 16;
  /// Rounds without gain before giving up: several values can share a plateau.
  static constexpr int kPatience = 24;
  /// Of a step's work, all that may be added: beyond it, a smaller micro-batch costs less.
  static constexpr double kLargestShare = 0.5;

  ir::Graph& graph_;
  int64_t budget_;
  const WorkspaceOf& workspace_of_;
  WorkspaceOf remember_;
  std::unordered_map<ValueId, int64_t> workspaces_;
  std::vector<Candidate> inserted_;
  std::map<ValueId, ValueId> copies_;  ///< the original of each value that was made again
  StorageMap map_;
  NodeId peak_ = 0;
  double seconds_left_ = 0;
};

}  // namespace

RecomputeResult recompute(ir::Graph& graph, int64_t budget_bytes, const WorkspaceOf& workspace_of) {
  if (budget_bytes <= 0) {
    const int64_t peak = peak_bytes(graph, workspace_of);
    return {.peak_before_bytes = peak, .peak_after_bytes = peak};
  }
  return Recompute(graph, budget_bytes, workspace_of).run();
}

}  // namespace hearth::passes
