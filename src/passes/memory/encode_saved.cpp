// Rows of activations fit E4M3 well, because gradients are sums over many of them, in which rounding errors
// average out. Values of which small differences matter (scores of attention, logits) are excluded by the
// list of readers.
//
//   %1 = rms_norm(%0)              %1 = rms_norm(%0)
//   ...                            %c = encode_fp8(%0)    after the last reader in the forward pass
//   ... backward ...               ... backward ...
//                                  %0' = decode_fp8(%c)   before the first reader in the backward pass
//                                  %1' = rms_norm(%0')
//   %3 = matmul(%2, %1)            %3 = matmul(%2, %1')
//   %5 = rms_norm_grad(%0, ...)    %5 = rms_norm_grad(%0', ...)
#include "passes/memory/encode_saved.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "cost/seconds.h"
#include "ir/op_def.h"
#include "ops/op_list.h"
#include "passes/memory/repeat.h"
#include "passes/memory/storage.h"
#include "passes/rewrite.h"

namespace hearth::passes {
namespace {

using ir::index;
using ir::kNone;
using ir::NodeId;
using ir::ValueId;

/// Shorter rows, such as those of adapters, are not encoded: they save too little for two kernel launches.
constexpr int64_t kMinColumns = 32;

struct OpInput {
  std::string_view op;
  std::string_view input;
  bool operator==(const OpInput&) const = default;
};
/// Inputs of ops of the backward pass that may have rounding errors.
constexpr OpInput kTolerantInputs[] = {
    {"matmul", "a"},
    {"matmul", "b"},
    {"matmul_accumulate", "a"},
    {"matmul_accumulate", "b"},
    {"conv2d_grad_weight", "x"},
    {"conv2d_pool_grad_weight", "x"},
    {"rms_norm_grad", "x"},
    {"layer_norm_grad", "x"},
    {"modulated_norm_grad", "x"},
    {"group_norm_grad", "x"},
    {"batch_norm_grad", "x"},
    {"batch_norm_grad", "y"},
    {"glu_grad", "gate"},
    {"glu_grad", "up"},
    {"relu_grad", "y"},
    {"tanh_grad", "y"},
    {"sigmoid_grad", "y"},
    {"silu_grad", "x"},
    {"gelu_grad", "x"},
    {"gelu_tanh_grad", "x"},
    {"softplus_grad", "x"},
    {"hardsigmoid_grad", "x"},
    {"hardswish_grad", "x"},
    {"gated_add_grad", "branch"},
    {"fused_elementwise", "x"},
    {"mul", "a"},
    {"mul", "b"},
};
/// Ops that increase the relative error of their input little, and cost about as much as decoding their
/// output.
constexpr std::string_view kRecomputedOps[] = {
    "rms_norm", "layer_norm", "modulated_norm", "batch_norm", "group_norm", "glu",
    "relu",     "silu",       "gelu",           "gelu_tanh",  "hardswish",
};

bool tolerates_errors(const ir::Node& node, size_t input) {
  const OpInput read{node.op->name, node.op->input_name(input)};
  return std::ranges::find(kTolerantInputs, read) != std::end(kTolerantInputs);
}

class EncodeSaved {
 public:
  EncodeSaved(TrainGraph& train, const cost::Device& device, int64_t min_bytes)
      : graph_(train.graph),
        device_(device),
        min_bytes_(min_bytes),
        backward_(depending_on([&](ValueId id) { return id == train.loss_weight; })) {}

  EncodeResult run() {
    choose();
    if (saved_.empty()) return {};
    const std::vector<ir::Node> old = std::exchange(graph_.nodes, {});
    for (size_t i = 0; i < old.size(); ++i) {
      for (const ValueId id : restored_before_[i]) restored(id, old);
      ir::Node node = old[i];
      if (backward_[i] != 0) read_restored(node, old);
      graph_.nodes.push_back(std::move(node));
      for (const ValueId id : encoded_after_[i]) encode(id);
    }
    graph_.relink();
    return result_;
  }

 private:
  /// A value that the backward pass reads with rounding errors.
  struct Saved {
    NodeId last_exact = kNone;   ///< last node that needs the exact value, or its producer
    NodeId first_read = kNone;   ///< first node of the backward pass that reads it
    bool is_recomputed = false;  ///< from decoded inputs, instead of being encoded
    ValueId codes = kNone;
    ValueId restored = kNone;  ///< decoded or recomputed value; kNone before its first reader
  };

  /// Returns, for each node, 1 if it depends on a value for which is_source(id) is true.
  template <typename IsSource>
  std::vector<char> depending_on(IsSource is_source) const {
    std::vector<char> nodes(graph_.nodes.size(), 0), values(graph_.values.size(), 0);
    for (size_t i = 0; i < values.size(); ++i) values[i] = is_source(static_cast<ValueId>(i)) ? 1 : 0;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const ir::Node& node = graph_.nodes[i];
      const auto depends = [&](ValueId in) { return in != kNone && values[index(in)] != 0; };
      nodes[i] = std::ranges::any_of(node.inputs, depends) ? 1 : 0;
      for (const ValueId out : node.outputs) values[index(out)] |= nodes[i];
    }
    return nodes;
  }

  /// Fills saved_, encoded_after_ and restored_before_.
  void choose() {
    const Readers readers(graph_);
    // Values that depend on weights alone are excluded.
    const std::vector<char> varies =
        depending_on([&](ValueId id) { return graph_.value(id).role == ir::Role::input; });
    std::vector<ValueId> order;
    for (const ir::Node& node : graph_.nodes) {
      for (const ValueId id : node.outputs) {
        const ir::Value& value = graph_.value(id);
        if (varies[index(value.producer)] == 0 || value.role != ir::Role::activation) continue;
        if (backward_[index(value.producer)] != 0 || !is_large_float(value.type)) continue;
        if (add_candidate(id, readers[id])) order.push_back(id);
      }
    }
    drop_shared(readers);
    overwriting_ = overwriting_nodes(graph_);
    encoded_after_.resize(graph_.nodes.size());
    restored_before_.resize(graph_.nodes.size());
    for (const ValueId id : order) {
      const auto found = saved_.find(id);
      if (found == saved_.end()) continue;
      Saved& saved = found->second;
      const NodeId at = recomputed_before(id);
      saved.is_recomputed = is_recomputable(id, at);
      if (!saved.is_recomputed) {
        encoded_after_[index(saved.last_exact)].push_back(id);
      } else if (at < saved.first_read) {
        restored_before_[index(at)].push_back(id);
      }
      result_.full_bytes += graph_.type(id).num_bytes();
    }
  }

  bool is_large_float(const ir::Type& type) const {
    const bool has_codes = type.dtype == DType::f32 || type.dtype == DType::bf16 || type.dtype == DType::f16;
    return has_codes && type.shape.rank() > 0 && type.shape.back() >= kMinColumns &&
           type.num_bytes() >= min_bytes_;
  }

  /// Adds the value to saved_ and returns true, if all its readers in the backward pass tolerate errors and
  /// come after all other readers.
  bool add_candidate(ValueId id, std::span<const NodeId> readers) {
    Saved saved{.last_exact = graph_.value(id).producer};
    for (const NodeId reader : readers) {
      const ir::Node& node = graph_.node(reader);
      if (backward_[index(reader)] == 0) {
        saved.last_exact = std::max(saved.last_exact, reader);
        continue;
      }
      for (size_t k = 0; k < node.inputs.size(); ++k)
        if (node.inputs[k] == id && !tolerates_errors(node, k)) return false;
      if (saved.first_read == kNone) saved.first_read = reader;
    }
    const bool is_output = std::ranges::find(graph_.outputs, id) != graph_.outputs.end();
    if (saved.first_read == kNone || saved.first_read <= saved.last_exact || is_output) return false;
    saved_[id] = saved;
    return true;
  }

  /// Removes the candidates whose bytes encoding would not free, because the backward pass reads another
  /// value in the same storage (a view, or a result in place).
  void drop_shared(const Readers& readers) {
    const StorageMap map = assign_storage(graph_);
    std::vector<int> num_saved(map.storages.size(), 0);
    const auto in_backward = [&](NodeId reader) { return backward_[index(reader)] != 0; };
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      if (map.of_value[i] >= 0 && std::ranges::any_of(readers[static_cast<ValueId>(i)], in_backward))
        ++num_saved[static_cast<size_t>(map.of_value[i])];
    }
    std::erase_if(saved_, [&](const auto& candidate) {
      const int storage = map.of_value[index(candidate.first)];
      return storage < 0 || num_saved[static_cast<size_t>(storage)] != 1;
    });
  }

  /// Returns the node before which a value has to be recomputed: its first reader, or an earlier node that
  /// overwrites one of the weights. An update of weights within the backward pass thus changes no result.
  NodeId recomputed_before(ValueId id) const {
    NodeId at = saved_.at(id).first_read;
    for (const ValueId in : repeat_inputs(graph_, id)) {
      if (in != kNone && !saved_.contains(in)) at = std::min(at, overwriting_[index(in)]);
    }
    return at;
  }
  /// True if the value can be recomputed before node `at` from saved values, weights and small values. For
  /// the inputs, is_recomputed has been decided.
  bool is_recomputable(ValueId id, NodeId at) const {
    const ir::Node& node = graph_.node(graph_.value(id).producer);
    if (std::ranges::find(kRecomputedOps, node.op->name) == std::end(kRecomputedOps)) return false;
    if (!can_repeat(graph_, id)) return false;
    const std::vector<ValueId> inputs = repeat_inputs(graph_, id);
    return std::ranges::any_of(inputs, [&](ValueId in) { return saved_.contains(in); }) &&
           std::ranges::all_of(inputs, [&](ValueId in) { return in == kNone || is_available(in, at); });
  }
  /// True if the value or its codes can be read before node `at`.
  bool is_available(ValueId id, NodeId at) const {
    if (const auto found = saved_.find(id); found != saved_.end()) {
      const Saved& saved = found->second;
      return saved.last_exact < at && (!saved.is_recomputed || is_recomputable(id, at));
    }
    return graph_.value(id).producer == kNone || graph_.type(id).num_bytes() < min_bytes_;
  }

  /// Replaces the saved values that a node of the backward pass reads by restored ones.
  void read_restored(ir::Node& node, const std::vector<ir::Node>& old) {
    for (ValueId& in : node.inputs) {
      if (in != kNone && saved_.contains(in)) in = restored(in, old);
    }
  }

  ValueId restored(ValueId id, const std::vector<ir::Node>& old) {
    Saved& saved = saved_.at(id);
    if (saved.restored != kNone) return saved.restored;
    if (saved.is_recomputed) return saved.restored = recompute(id, old);
    const ir::Type type = graph_.type(id);
    const ir::Attrs attrs = {{"dtype", std::string(dtype_name(type.dtype))},
                             {"shape", std::vector<int64_t>(type.shape.begin(), type.shape.end())}};
    saved.restored = append({.op = ops::find_op("decode_fp8"),
                             .inputs = {saved.codes},
                             .outputs = {add_copy(id)},
                             .attrs = attrs,
                             .name = old[index(graph_.value(id).producer)].name});
    return saved.restored;
  }

  ValueId recompute(ValueId id, const std::vector<ir::Node>& old) {
    const ir::Node& original = old[index(graph_.value(id).producer)];
    ir::Node copy = repeat_node(original, id);
    read_restored(copy, old);
    copy.outputs = {add_copy(id)};
    add_other_outputs(graph_, original, copy);
    copy.name += " again";
    ++result_.num_recomputed;
    return append(std::move(copy));
  }

  ValueId add_copy(ValueId id) { return graph_.add_value("", graph_.type(id), ir::Role::activation); }

  void encode(ValueId id) {
    const std::string name = graph_.nodes.back().name;
    const ir::OpDef& op = *ops::find_op("encode_fp8");
    const ValueId codes = graph_.add1(op, {id}, {}, name);
    saved_.at(id).codes = codes;
    ++result_.num_encoded;
    result_.encoded_bytes += graph_.type(codes).num_bytes();
    count_seconds(graph_.nodes.back());
  }

  /// Appends a node and returns its first output.
  ValueId append(ir::Node node) {
    count_seconds(node);
    graph_.nodes.push_back(std::move(node));
    return graph_.nodes.back().outputs.front();
  }

  void count_seconds(const ir::Node& node) {
    result_.seconds += cost::seconds_of(graph_, node, device_) + device_.launch_seconds;
  }

  ir::Graph& graph_;
  const cost::Device& device_;
  int64_t min_bytes_;
  std::vector<char> backward_;  ///< for each node, 1 if it depends on the gradient of the loss
  std::map<ValueId, Saved> saved_;
  std::vector<NodeId> overwriting_;                    ///< overwriting_nodes()
  std::vector<std::vector<ValueId>> encoded_after_;    ///< for each node, the values to encode after it
  std::vector<std::vector<ValueId>> restored_before_;  ///< values to restore before they are read
  EncodeResult result_;
};

}  // namespace

EncodeResult encode_saved(TrainGraph& train, const cost::Device& device, int64_t min_bytes) {
  return EncodeSaved(train, device, min_bytes).run();
}

}  // namespace hearth::passes
