#include "passes/recompute.h"

#include <algorithm>
#include <map>
#include <optional>

#include "ir/op_def.h"
#include "ops/op_list.h"
#include "passes/rewrite.h"

namespace hearth::passes {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

double cost_seconds(const ir::Graph& graph, const ir::Node& node) {
  constexpr double kFlopsPerSecond = 1e11;
  constexpr double kBytesPerSecond = 1e10;
  const std::vector<ir::Type> in = graph.input_types(node);
  std::vector<ir::Type> out;
  double bytes = 0;
  for (const ValueId id : node.outputs) out.push_back(graph.type(id));
  for (const auto& types : {in, out}) {
    for (const ir::Type& type : types) bytes += static_cast<double>(type.num_bytes());
  }
  const double flops =
      node.op->cost != nullptr ? node.op->cost({.attrs = node.attrs, .in = in, .out = out}).flops : 0;
  return flops / kFlopsPerSecond + bytes / kBytesPerSecond;
}

/// A value that is made, waits over the peak, and is read again later.
struct Candidate {
  ValueId value = kNone;
  NodeId next_read = kNone;  ///< the first reader after the peak
  double score = 0;          ///< bytes saved per second of extra work
};

class Recompute {
 public:
  Recompute(ir::Graph& graph, int64_t budget, const WorkspaceOf& workspace_of)
      : graph_(graph), budget_(budget), workspace_of_(workspace_of) {}

  RecomputeResult run() {
    RecomputeResult result;
    result.peak_before_bytes = result.peak_after_bytes = peak_bytes(graph_, workspace_of_);
    const double flops_before = total_flops();
    int failures = 0;
    while (result.peak_after_bytes > budget_ && failures < 8) {
      if (!improve()) break;
      ++result.num_recomputed;
      const int64_t peak = peak_bytes(graph_, workspace_of_);
      // Several values can share a plateau, so a few rounds without gain are allowed.
      failures = peak < best_peak(result) ? 0 : failures + 1;
      if (peak <= result.peak_after_bytes) best_ = graph_;
      result.peak_after_bytes = std::min(result.peak_after_bytes, peak);
    }
    if (best_) graph_ = std::move(*best_);
    result.extra_flops = total_flops() - flops_before;
    result.fits = result.peak_after_bytes <= budget_;
    return result;
  }

 private:
  static int64_t best_peak(const RecomputeResult& result) { return result.peak_after_bytes; }

  double total_flops() const {
    double flops = 0;
    for (const ir::Node& node : graph_.nodes) {
      if (node.op->cost == nullptr) continue;
      const std::vector<ir::Type> in = graph_.input_types(node);
      std::vector<ir::Type> out;
      for (const ValueId id : node.outputs) out.push_back(graph_.type(id));
      flops += node.op->cost({.attrs = node.attrs, .in = in, .out = out}).flops;
    }
    return flops;
  }

  /// Applies the best candidate over the present peak; false when there is none.
  bool improve() {
    const StorageMap map = assign_storage(graph_);
    const std::vector<int64_t> live = live_bytes(graph_, map, workspace_of_);
    const auto peak = static_cast<NodeId>(std::max_element(live.begin(), live.end()) - live.begin());
    const auto reads = readers(graph_);
    Candidate best;
    for (const Storage& storage : map.storages) {
      const auto candidate = consider(storage, peak, reads[static_cast<size_t>(storage.value)]);
      if (candidate && candidate->score > best.score) best = *candidate;
    }
    if (best.value == kNone) return false;
    insert_copy(best);
    return true;
  }

  std::optional<Candidate> consider(const Storage& storage, NodeId peak,
                                    const std::vector<NodeId>& reads) const {
    const ValueId value = storage.value;
    const NodeId producer = graph_.value(value).producer;
    if (storage.first >= peak || storage.last <= peak || is_output(value)) return std::nullopt;
    const ir::Node& node = graph_.node(producer);
    if (!can_repeat(node) || copies_.contains(value)) return std::nullopt;
    const auto next = std::find_if(reads.begin(), reads.end(), [&](NodeId id) { return id > peak; });
    if (next == reads.end() || std::find(reads.begin(), reads.end(), peak) != reads.end())
      return std::nullopt;
    int64_t saved = storage.num_bytes;
    for (const ValueId in : repeat_inputs(node)) saved -= newly_kept_bytes(in, peak);
    if (saved <= 0) return std::nullopt;
    const double seconds = cost_seconds(graph_, node);
    return Candidate{.value = value, .next_read = *next, .score = static_cast<double>(saved) / seconds};
  }

  static bool can_repeat(const ir::Node& node) {
    return node.op->name == "batch_norm" ||
           (node.op->writes.empty() && !node.op->is_view && node.outputs.size() == 1);
  }

  /// What the copy reads: for batch norm the saved statistics, so that running averages move only once.
  static std::vector<ValueId> repeat_inputs(const ir::Node& node) {
    if (node.op->name != "batch_norm") return node.inputs;
    std::vector<ValueId> inputs = {node.inputs[0], node.inputs[1], node.inputs[2], node.outputs[1],
                                   node.outputs[2]};
    if (node.inputs.size() > 5) inputs.push_back(node.inputs[5]);
    return inputs;
  }

  /// Bytes that would have to stay live over the peak only for the copy's sake.
  int64_t newly_kept_bytes(ValueId id, NodeId peak) const {
    if (id == kNone || graph_.value(id).role != ir::Role::activation) return 0;
    ValueId source = id;
    while (graph_.value(source).producer != kNone && graph_.node(graph_.value(source).producer).op->is_view) {
      source = graph_.node(graph_.value(source).producer).inputs[0];
    }
    if (graph_.value(source).role != ir::Role::activation) return 0;
    NodeId last = -1;
    for (NodeId i = 0; i < static_cast<NodeId>(graph_.nodes.size()); ++i) {
      for (const ValueId in : graph_.node(i).inputs) {
        if (in == source || in == id) last = i;
      }
    }
    return last > peak ? 0 : graph_.type(source).num_bytes();
  }

  bool is_output(ValueId id) const {
    return std::find(graph_.outputs.begin(), graph_.outputs.end(), id) != graph_.outputs.end();
  }

  void insert_copy(const Candidate& candidate) {
    ir::Node copy = graph_.node(graph_.value(candidate.value).producer);
    copy.inputs = repeat_inputs(copy);
    if (copy.op->name == "batch_norm") {
      copy.op = ops::find_op("batch_norm_infer");
      copy.attrs.set("statistics", std::string("rstd"));
    }
    const ir::Value original = graph_.value(candidate.value);
    const ValueId again = graph_.add_value(original.name, original.type, original.role);
    copies_[again] = candidate.value;
    copy.outputs = {again};
    copy.name += " again";
    for (auto i = static_cast<size_t>(candidate.next_read); i < graph_.nodes.size(); ++i) {
      std::replace(graph_.nodes[i].inputs.begin(), graph_.nodes[i].inputs.end(), candidate.value, again);
    }
    graph_.nodes.insert(graph_.nodes.begin() + candidate.next_read, std::move(copy));
    graph_.relink();
  }

  ir::Graph& graph_;
  int64_t budget_;
  const WorkspaceOf& workspace_of_;
  std::map<ValueId, ValueId> copies_;
  std::optional<ir::Graph> best_;
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
