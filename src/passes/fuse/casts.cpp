#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "ir/op_def.h"
#include "passes/fuse/fuse.h"

namespace hearth::passes {
namespace {

using ir::kNone;
using ir::ValueId;

/// Implements share_casts().
class ShareCasts {
 public:
  ShareCasts(ir::Graph& graph, bool store_copies)
      : graph_(graph), store_copies_(store_copies), same_as_(graph.values.size()) {
    std::iota(same_as_.begin(), same_as_.end(), 0);
  }

  void run() {
    for (ir::Node& node : graph_.nodes) {
      for (ValueId& input : node.inputs) input = shared(input);
      if (node.op->name == "cast" && replace(node)) continue;
      for (const ValueId out : node.outputs) new_producer_[out] = kept_.size();
      kept_.push_back(std::move(node));
    }
    for (ValueId& output : graph_.outputs) output = shared(output);
    graph_.nodes = std::move(kept_);
    graph_.relink();
  }

 private:
  ValueId shared(ValueId id) const { return id == kNone ? id : same_as_[static_cast<size_t>(id)]; }

  bool replace(const ir::Node& cast) {
    const ValueId from = cast.inputs[0], to = cast.outputs[0];
    const auto [earlier, is_new] = casts_.try_emplace({from, graph_.type(to).dtype}, to);
    if (!is_new) {
      same_as_[static_cast<size_t>(to)] = earlier->second;
      return true;
    }
    const auto producer = new_producer_.find(from);
    if (!store_copies_ || producer == new_producer_.end()) return false;
    ir::Node& norm = kept_[producer->second];
    const bool is_norm = norm.op->name == "rms_norm_grad" || norm.op->name == "layer_norm_grad";
    if (!is_norm || norm.outputs[0] != from || norm.attrs.contains("out_dtype")) return false;
    norm.attrs.set("out_dtype", cast.attrs.text("dtype"));
    norm.outputs.push_back(to);
    return true;
  }

  ir::Graph& graph_;
  bool store_copies_;
  std::vector<ValueId> same_as_;                        ///< for each value, the one that replaces it
  std::vector<ir::Node> kept_;                          ///< the new list of nodes
  std::map<ValueId, size_t> new_producer_;              ///< index in kept_
  std::map<std::pair<ValueId, DType>, ValueId> casts_;  ///< results by input and dtype
};

}  // namespace

void share_casts(ir::Graph& graph, bool store_copies) { ShareCasts(graph, store_copies).run(); }

}  // namespace hearth::passes
