// Problem: choose values to drop after the forward pass, so that the memory peak is within a budget at
// minimal extra work. Method: each round considers the node with the most live bytes. For every value that is
// live there but not used, it estimates how many bytes the peak would lose if the value were dropped, and the
// cost of restoring it before its next reader: either by recomputing it from values that are live then, or by
// a copy to the host and back. The value with the most bytes per second of extra work is dropped, together
// with equal values of other layers, and the peak of the changed graph is measured. Correctness: the graph
// computes the same values with the same ops, so bits cannot change, and the reported peak is that of the
// final graph, not an estimate. This is the greedy form of Checkmate's problem (Jain et al., MLSys 2020),
// whose exact form is an integer program.
#include "passes/memory/recompute.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "cost/seconds.h"
#include "ir/op_def.h"
#include "ops/op_list.h"
#include "passes/memory/repeat.h"
#include "passes/rewrite.h"

namespace hearth::passes {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

/// A way to lower the peak: a value that is produced before the peak and next read after it, and how to
/// restore it.
struct Candidate {
  std::vector<ValueId> chain = {};  ///< values to recompute, in order; the last one is the value itself
  NodeId next_read = kNone;         ///< first reader after the peak
  /// True if the value is offloaded to the host and fetched back instead; `chain` is then the value alone.
  bool stashed = false;
  /// True if the peak's node is to use a smaller workspace instead; `chain` is then the node's first output.
  bool smaller = false;
  int64_t saved_bytes = 0;
  double seconds = 0;  ///< estimated extra time in seconds
  double score = 0;    ///< saved bytes per second of extra time
};

class Recompute {
 public:
  Recompute(ir::Graph& graph, int64_t budget, const WorkspaceOf& workspace_of, const cost::Device& device,
            const OffloadOptions& offload)
      : graph_(graph), budget_(budget), workspace_of_(workspace_of), device_(device), offload_(offload) {
    cached_workspace_of_ = [this](const ir::Node& node) { return workspace(node); };
  }

  RecomputeResult run() {
    RecomputeResult result;
    result.peak_before_bytes = result.peak_after_bytes = survey();
    const double flops_before = total_flops();
    const cost::StepTime time = cost::simulate(graph_, device_);
    seconds_left_ = kMaxExtraFraction * time.compute_seconds;
    link_seconds_left_ = time.compute_seconds - time.link_seconds;
    const ir::Graph original = graph_;
    size_t num_useful = 0;
    int64_t peak = result.peak_after_bytes;
    int rounds_left = kMaxRoundsWithoutGain;
    while (result.peak_after_bytes > budget_ && rounds_left-- > 0 && improve(peak - budget_)) {
      peak = survey();
      if (peak >= result.peak_after_bytes) continue;
      num_useful = inserted_.size();
      result.peak_after_bytes = peak;
      result.num_stashed = num_stashed_;
      result.num_recomputed = num_recomputed_;
      result.num_smaller = static_cast<int>(smaller_.size());
      rounds_left = kMaxRoundsWithoutGain;
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

  /// Computes and returns the peak of the current graph, and stores its node in peak_.
  int64_t survey() {
    map_ = assign_storage(graph_);
    const std::vector<int64_t> live = live_bytes(graph_, map_, cached_workspace_of_);
    const auto peak = std::max_element(live.begin(), live.end());
    peak_ = static_cast<NodeId>(peak - live.begin());
    overwritten_ = overwriting_nodes(graph_);
    return live.empty() ? 0 : *peak;
  }

  /// True if the chain can be recomputed at node `at`: none of its inputs has been overwritten before.
  bool can_read(const std::vector<ValueId>& chain, NodeId at) const {
    for (const ValueId id : chain) {
      for (const ValueId in : repeat_inputs(graph_, id)) {
        if (in != kNone && overwritten_[static_cast<size_t>(in)] < at) return false;
      }
    }
    return true;
  }

  /// Returns a node's workspace bytes, cached by its first output.
  int64_t workspace(const ir::Node& node) const {
    if (!workspace_of_ || node.outputs.empty()) return workspace_of_ ? workspace_of_(node) : 0;
    if (workspaces_.size() < graph_.values.size()) workspaces_.resize(graph_.values.size(), -1);
    int64_t& bytes = workspaces_[static_cast<size_t>(node.outputs.front())];
    if (bytes < 0) bytes = workspace_of_(node);
    return bytes;
  }

  /// Returns the seconds to compute a value, cached.
  double seconds_of(ValueId value) const {
    if (seconds_.size() < graph_.values.size()) seconds_.resize(graph_.values.size(), -1);
    double& seconds = seconds_[static_cast<size_t>(value)];
    if (seconds < 0) {
      const ir::Node& node = graph_.node(graph_.value(value).producer);
      seconds = cost::seconds_of(graph_, node, device_) + device_.launch_seconds;
    }
    return seconds;
  }

  /// Restores the original graph, and applies only the first `count` rounds.
  void insert_only(const ir::Graph& original, size_t count) {
    graph_ = original;
    original_.clear();
    num_recomputed_ = num_stashed_ = 0;
    smaller_.clear();
    const std::vector<std::vector<Candidate>> all = std::move(inserted_);
    for (size_t i = 0; i < count; ++i) apply(all[i]);
  }

  void apply(const std::vector<Candidate>& candidates) {
    if (!candidates.front().smaller) return insert_all(candidates);
    const ValueId value = candidates.front().chain.front();
    ir::Node& node = graph_.nodes[static_cast<size_t>(graph_.value(value).producer)];
    node.attrs = *smaller_attrs(node);
    smaller_.insert(value);
    workspaces_[static_cast<size_t>(value)] = workspace_of_(node);
    if (static_cast<size_t>(value) < seconds_.size()) seconds_[static_cast<size_t>(value)] = -1;
  }

  std::optional<ir::Attrs> smaller_attrs(const ir::Node& node) const {
    if (node.op->smaller == nullptr) return std::nullopt;
    return node.op->smaller(ir::NodeTypes(graph_, node).view(node));
  }

  /// Applies the best candidates for the current peak. If there are several equally good ones (the same value
  /// in repeated layers), as many as are needed to save `wanted` bytes. Returns false if there is no
  /// candidate.
  bool improve(int64_t wanted) {
    reads_ = Readers(graph_);
    std::vector<Candidate> best;
    const std::vector<ValueId> waiting = values_read_after_peak();
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i] == kNone) continue;
      auto candidate = consider(map_.storages[i], waiting[i]);
      if (!candidate || (!best.empty() && candidate->score < best[0].score)) continue;
      if (!best.empty() && candidate->score > best[0].score) best.clear();
      best.push_back(std::move(*candidate));
    }
    auto smaller = made_smaller();
    if (smaller && (best.empty() || smaller->score > best[0].score)) {
      best.clear();
      best.push_back(std::move(*smaller));
    }
    if (best.empty()) return false;
    keep_independent(best, wanted);
    std::sort(best.begin(), best.end(),
              [](const Candidate& a, const Candidate& b) { return a.next_read < b.next_read; });
    apply(best);
    inserted_.push_back(std::move(best));
    return true;
  }

  /// Reduces `candidates` to the first ones that together save `wanted` bytes and do not depend on each
  /// other.
  void keep_independent(std::vector<Candidate>& candidates, int64_t wanted) {
    std::set<ValueId> dropped;
    std::set<ValueId> needed;
    std::vector<Candidate> kept;
    for (Candidate& candidate : candidates) {
      if (!kept.empty() && (wanted <= 0 || candidate.seconds > seconds_left_)) break;
      std::vector<ValueId> inputs;
      for (const ValueId id : candidate.chain) {
        if (candidate.stashed || candidate.smaller) continue;
        const std::vector<ValueId> of_node = repeat_inputs(graph_, id);
        inputs.insert(inputs.end(), of_node.begin(), of_node.end());
      }
      if (needed.contains(candidate.chain.back()) ||
          std::any_of(inputs.begin(), inputs.end(), [&](ValueId id) { return dropped.contains(id); }))
        continue;
      dropped.insert(candidate.chain.back());
      needed.insert(inputs.begin(), inputs.end());
      wanted -= candidate.saved_bytes;
      seconds_left_ -= candidate.seconds;
      if (candidate.stashed)
        link_seconds_left_ -= static_cast<double>(candidate.saved_bytes) / device_.link_bytes_per_second;
      kept.push_back(std::move(candidate));
    }
    candidates = std::move(kept);
  }

  /// The stash nodes to insert, by the node after which they are inserted.
  using Stashes = std::map<NodeId, std::vector<ir::Node>>;

  /// Inserts the copies of each chain before the candidate's next reader. All later readers, including those
  /// that earlier rounds have inserted, then read the new values. `candidates` are sorted by reader.
  void insert_all(const std::vector<Candidate>& candidates) {
    Stashes stashes;
    std::vector<std::vector<ir::Node>> copies;
    for (const Candidate& candidate : candidates) copies.push_back(make_copies(candidate, stashes));
    std::vector<ValueId> newest(graph_.values.size(), kNone);
    std::vector<ir::Node> nodes;
    nodes.reserve(graph_.nodes.size() + copies.size());
    const auto append = [&](ir::Node node) {
      for (ValueId& in : node.inputs) {
        if (in == kNone) continue;
        if (const ValueId again = newest[static_cast<size_t>(original(in))]; again != kNone) in = again;
      }
      nodes.push_back(std::move(node));
    };
    size_t next = 0;
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes.size()); ++id) {
      for (; next < candidates.size() && candidates[next].next_read == id; ++next) {
        for (ir::Node& copy : copies[next]) {
          // append() replaces inputs by copies, because an earlier copy in this round may have recomputed an
          // input.
          const ValueId made = copy.outputs[0];
          append(std::move(copy));
          newest[static_cast<size_t>(original(made))] = made;
        }
      }
      append(std::move(graph_.nodes[static_cast<size_t>(id)]));
      const auto away = stashes.find(id);
      if (away == stashes.end()) continue;
      for (ir::Node& stash : away->second) append(std::move(stash));
    }
    graph_.nodes = std::move(nodes);
    graph_.remove_dead_nodes();
  }

  /// Returns, for each storage, the only value in it that is read after the peak; kNone if there is none, or
  /// if there are several because of in-place results.
  std::vector<ValueId> values_read_after_peak() const {
    std::vector<ValueId> waiting(map_.storages.size(), kNone);
    std::vector<char> num_waiting(map_.storages.size(), 0);
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      const auto value = static_cast<ValueId>(i);
      if (map_.of_value[i] < 0 || !is_read_after_peak(value)) continue;
      const auto storage = static_cast<size_t>(map_.of_value[i]);
      waiting[storage] = num_waiting[storage]++ == 0 ? value : kNone;
      num_waiting[storage] = std::min<char>(num_waiting[storage], 2);
    }
    return waiting;
  }

  bool is_read_after_peak(ValueId value) const {
    const auto reads = reads_[value];
    return !reads.empty() && reads.back() > peak_;
  }

  std::optional<Candidate> consider(const Storage& storage, ValueId value) const {
    const auto reads = reads_[value];
    if (storage.first >= peak_ || storage.last <= peak_ || storage.on_host || is_output(value) ||
        original(value) != value)
      return std::nullopt;
    const auto next = std::find_if(reads.begin(), reads.end(), [&](NodeId id) { return id > peak_; });
    if (graph_.value(value).producer >= peak_ || std::find(reads.begin(), reads.end(), peak_) != reads.end())
      return std::nullopt;
    std::optional<Candidate> best;
    for (const std::optional<Candidate>& way :
         {recompute_candidate(value, *next), copied_back(value, *next)}) {
      if (way && way->seconds <= seconds_left_ && (!best || way->score > best->score)) best = way;
    }
    return best;
  }

  /// Returns the candidate that lets the node at the peak use a smaller workspace, if its op can.
  std::optional<Candidate> made_smaller() const {
    const ir::Node& node = graph_.node(peak_);
    const auto attrs = smaller_attrs(node);
    if (!attrs || !workspace_of_) return std::nullopt;
    ir::Node other = node;
    other.attrs = *attrs;
    Candidate candidate{.chain = {node.outputs.front()}, .smaller = true};
    candidate.saved_bytes = workspace(node) - workspace_of_(other);
    candidate.seconds = cost::seconds_of(graph_, other, device_) - cost::seconds_of(graph_, node, device_);
    if (candidate.saved_bytes <= 0 || candidate.seconds > seconds_left_) return std::nullopt;
    candidate.score = static_cast<double>(candidate.saved_bytes) / candidate.seconds;
    return candidate;
  }

  std::optional<Candidate> copied_back(ValueId value, NodeId next_read) const {
    const int64_t num_bytes = padded_bytes(graph_.type(value).num_bytes());
    if (!offload_.activations || num_bytes < offload_.min_bytes) return std::nullopt;
    const double crossing = static_cast<double>(num_bytes) / device_.link_bytes_per_second;
    Candidate candidate{.chain = {value}, .next_read = next_read, .stashed = true};
    candidate.saved_bytes = num_bytes;
    candidate.seconds = crossing <= link_seconds_left_ ? kHiddenShare * crossing : 2 * crossing;
    candidate.score = static_cast<double>(candidate.saved_bytes) / candidate.seconds;
    return candidate;
  }

  std::optional<Candidate> recompute_candidate(ValueId value, NodeId next_read) const {
    if (!can_repeat(graph_, value)) return std::nullopt;
    Candidate candidate{.next_read = next_read};
    candidate.saved_bytes = padded_bytes(graph_.type(value).num_bytes()) - kept_bytes(value, candidate.chain);
    if (candidate.saved_bytes <= 0 || !can_read(candidate.chain, next_read)) return std::nullopt;
    for (const ValueId id : candidate.chain) candidate.seconds += seconds_of(id);
    candidate.score = static_cast<double>(candidate.saved_bytes) / candidate.seconds;
    return candidate;
  }

  /// Appends to `chain` the values to recompute in order to restore `value`, in order. Inputs that are not
  /// live after the peak are recomputed too, if possible. Returns the bytes of the other inputs, which must
  /// stay live over the peak.
  int64_t kept_bytes(ValueId value, std::vector<ValueId>& chain) const {
    int64_t bytes = 0;
    for (const ValueId in : repeat_inputs(graph_, value)) {
      if (in == kNone || is_live_after_peak(in) || std::find(chain.begin(), chain.end(), in) != chain.end())
        continue;
      if (chain.size() < kLongestChain && can_repeat(graph_, in)) {
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
    return storage < 0 || map_.storages[static_cast<size_t>(storage)].on_host || is_read_after_peak(id);
  }

  bool is_output(ValueId id) const {
    return std::find(graph_.outputs.begin(), graph_.outputs.end(), id) != graph_.outputs.end();
  }

  /// Returns the nodes that recompute a chain from the original values, or that fetch a value from the host.
  std::vector<ir::Node> make_copies(const Candidate& candidate, Stashes& stashes) {
    std::vector<ir::Node> copies;
    for (const ValueId value : candidate.chain) {
      const NodeId producer = graph_.value(value).producer;
      ir::Node copy = candidate.stashed ? fetch_of_stash(value, stashes[producer])
                                        : repeat_node(graph_.node(producer), value);
      const ir::Value made = graph_.value(value);
      copy.outputs = {graph_.add_value(made.name, made.type, made.role)};
      original_.resize(graph_.values.size(), kNone);
      original_.back() = value;
      if (candidate.stashed) {
        ++num_stashed_;
      } else {
        ++num_recomputed_;
        add_other_outputs(graph_, graph_.node(producer), copy);
        copy.name += " again";
      }
      copies.push_back(std::move(copy));
    }
    return copies;
  }

  /// Returns the original value if `id` is a recomputed copy; otherwise `id` itself.
  ValueId original(ValueId id) const {
    const auto index = static_cast<size_t>(id);
    return index < original_.size() && original_[index] != kNone ? original_[index] : id;
  }

  ir::Node fetch_of_stash(ValueId value, std::vector<ir::Node>& stashes) {
    const std::string name = graph_.node(graph_.value(value).producer).name;
    const ValueId away = graph_.add_value("", graph_.type(value), ir::Role::activation);
    stashes.push_back(
        {.op = ops::find_op("stash"), .inputs = {value}, .outputs = {away}, .attrs = {}, .name = name});
    return {.op = ops::find_op("fetch"), .inputs = {away}, .outputs = {}, .attrs = {}, .name = name};
  }

  static constexpr size_t kLongestChain = 64;
  /// Number of rounds without a lower peak before giving up. More than one, because several nodes may have
  /// the same peak.
  static constexpr int kMaxRoundsWithoutGain = 24;
  /// Max extra work, as a fraction of a step's time. Beyond it, a smaller micro-batch would be faster.
  static constexpr double kMaxExtraFraction = 0.5;
  /// Cost of a copy that overlaps with computing, as a fraction of the time that it takes.
  static constexpr double kHiddenShare = 0.1;

  ir::Graph& graph_;
  int64_t budget_;
  const WorkspaceOf& workspace_of_;
  const cost::Device& device_;
  const OffloadOptions& offload_;
  WorkspaceOf cached_workspace_of_;
  /// Workspace bytes of nodes, indexed by the node's first output; -1: not computed yet.
  mutable std::vector<int64_t> workspaces_;
  /// Seconds to compute a value, indexed by value; -1: not computed yet.
  mutable std::vector<double> seconds_;
  std::vector<std::vector<Candidate>> inserted_;  ///< candidates that were applied in each round
  std::set<ValueId> smaller_;                     ///< first outputs of nodes that use a smaller workspace
  std::vector<ValueId> original_;  ///< for each recomputed value, the value that it is a copy of
  /// For each value, the node that overwrites it; the number of nodes if none does.
  std::vector<NodeId> overwritten_;
  StorageMap map_;
  Readers reads_;
  NodeId peak_ = 0;
  double seconds_left_ = 0;
  double link_seconds_left_ = 0;
  int num_recomputed_ = 0;
  int num_stashed_ = 0;
};

}  // namespace

RecomputeResult recompute(ir::Graph& graph, int64_t budget_bytes, const WorkspaceOf& workspace_of,
                          const cost::Device& device, const OffloadOptions& offload) {
  if (budget_bytes <= 0) {
    const int64_t peak = peak_bytes(graph, workspace_of);
    return {.peak_before_bytes = peak, .peak_after_bytes = peak};
  }
  return Recompute(graph, budget_bytes, workspace_of, device, offload).run();
}

}  // namespace hearth::passes
