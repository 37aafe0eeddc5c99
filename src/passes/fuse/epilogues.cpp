#include <algorithm>
#include <span>
#include <string>

#include "ir/kernel_group.h"
#include "ir/op_def.h"
#include "ops/op_list.h"
#include "passes/fuse/fuse.h"
#include "passes/rewrite.h"

namespace hearth::passes {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

/// For each op that supports an epilogue, the names of its optional epilogue inputs; empty: not supported.
/// batch_norm has a bias, but it is no epilogue. batch_norm with given
/// statistics does not support silu, because it may itself be folded into a convolution later.
struct EpilogueSlots {
  std::string_view op;
  std::string_view bias;
  std::string_view residual;
  bool relu = false;
  bool silu = false;
};
constexpr EpilogueSlots kForwardSlots[] = {{"matmul", "bias", "residual", true},
                                           {"conv2d", "bias", "residual", true},
                                           {"batch_norm", "", "residual", true, true},
                                           {"batch_norm_infer", "", "residual", true},
                                           {"quantized_linear", "", "residual"}};
/// The ops that add the other term of a sum of gradients. The last one does so only on GPUs: on a CPU it
/// would add in a second loop, and an add in place makes plans tighter.
constexpr EpilogueSlots kGradientSlots[] = {
    {"matmul", "", "residual"},         {"quantized_linear", "", "residual"},
    {"rms_norm_grad", "", "residual"},  {"layer_norm_grad", "", "residual"},
    {"embedding_grad", "", "residual"}, {"conv2d_grad_input", "", "residual"}};

class FuseEpilogues {
 public:
  FuseEpilogues(ir::Graph& graph, std::span<const EpilogueSlots> slots) : graph_(graph), slots_(slots) {}

  void fold_all() { fold_each(&FuseEpilogues::fold_any); }
  void fold_sums() { fold_each(&FuseEpilogues::fold_later_term); }

 private:
  void fold_each(bool (FuseEpilogues::*try_fold)(NodeId)) {
    bool folded = false;
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes.size()); ++id) {
      if ((this->*try_fold)(id)) folded = true;
    }
    if (folded) graph_.remove_dead_nodes();
  }

  /// Folds node `id` into the producer of one of its inputs.
  bool fold_any(NodeId id) {
    const ir::Node& node = graph_.node(id);
    if (node.op->name == "cast") return fold_cast(id);
    if (node.op->name == "bias_add") return fold(id, 0, &FuseEpilogues::add_bias);
    if (node.op->name == "relu") return fold(id, 0, &FuseEpilogues::add_relu);
    if (node.op->name == "silu") return fold(id, 0, &FuseEpilogues::add_silu);
    return fold_sum(id);
  }
  bool fold_sum(NodeId id) {
    return graph_.node(id).op->name == "add" &&
           (fold(id, 0, &FuseEpilogues::add_residual) || fold(id, 1, &FuseEpilogues::add_residual));
  }

  /// Folds an add into the producer of the term that is computed last, which then has the other one.
  bool fold_later_term(NodeId id) {
    const ir::Node& node = graph_.node(id);
    if (node.op->name != "add") return false;
    const auto producer = [&](size_t input) { return graph_.value(node.inputs[input]).producer; };
    const size_t later = producer(1) > producer(0) ? 1 : 0;
    return fold(id, later, &FuseEpilogues::add_residual) || fold(id, 1 - later, &FuseEpilogues::add_residual);
  }

  bool fold(NodeId id, size_t input, bool (FuseEpilogues::*apply)(ir::Node&, const EpilogueSlots&, ValueId)) {
    const ir::Node epilogue = graph_.node(id);
    const ValueId made = epilogue.inputs[input];
    const NodeId producer = made == kNone ? kNone : graph_.value(made).producer;
    if (producer == kNone || graph_.node(producer).outputs[0] != made) return false;
    const EpilogueSlots* slots = slots_of(graph_.node(producer));
    if (slots == nullptr) return false;
    const auto use_counts = graph_.use_counts();
    if (use_counts[static_cast<size_t>(made)] != 1) return false;
    if (graph_.type(made) != graph_.type(epilogue.outputs[0])) return false;
    ir::Node fused = graph_.node(producer);
    const ValueId other = epilogue.inputs.size() > 1 ? epilogue.inputs[1 - input] : kNone;
    const bool waits = other != kNone && graph_.value(other).producer > producer;
    const bool has_readers = std::any_of(fused.outputs.begin() + 1, fused.outputs.end(), [&](ValueId out) {
      return use_counts[static_cast<size_t>(out)] > 0;
    });
    if (waits && (has_readers || is_overwritten(fused, producer, id))) return false;
    if (!(this->*apply)(fused, *slots, other)) return false;
    replace(producer, id, std::move(fused), waits);
    return true;
  }

  /// True if a node between `first` and `last` overwrites an input of `node`, such as an updated weight.
  bool is_overwritten(const ir::Node& node, NodeId first, NodeId last) const {
    for (NodeId id = first + 1; id < last; ++id) {
      const ir::Node& between = graph_.node(id);
      for (size_t k = 0; k < between.inputs.size(); ++k)
        if (ir::overwrites(between, k) && std::ranges::count(node.inputs, between.inputs[k]) > 0) return true;
    }
    return false;
  }

  /// Replaces node `id` and its producer by `fused`, at the position of node `id` if it waits for an input.
  void replace(NodeId producer, NodeId id, ir::Node fused, bool waits) {
    const ValueId made = fused.outputs[0];
    fused.outputs[0] = graph_.node(id).outputs[0];
    // The other position gets a placeholder, which nothing reads and which is removed as dead code.
    graph_.nodes[static_cast<size_t>(waits ? producer : id)] = placeholder(made);
    graph_.nodes[static_cast<size_t>(waits ? id : producer)] = std::move(fused);
    graph_.relink();
  }

  /// Lets the matmul or row norm before a cast write the cast's dtype. Matmuls that are added up by their
  /// residuals, as a linear layer and its adapter are, change together.
  bool fold_cast(NodeId id) {
    const ValueId cast = graph_.node(id).outputs[0];
    const DType dtype = graph_.type(cast).dtype;
    std::vector<ValueId> sums;
    for (ValueId made = graph_.node(id).inputs[0]; made != kNone;) {
      const NodeId producer = graph_.value(made).producer;
      if (producer == kNone || graph_.use_counts()[static_cast<size_t>(made)] != 1) return false;
      const ir::Node& node = graph_.node(producer);
      const bool is_matmul = node.op->name == "matmul" || node.op->name == "quantized_linear";
      const bool is_norm = node.op->name == "rms_norm" || node.op->name == "layer_norm";
      if (is_matmul ? dtype != DType::f32 : !is_norm || graph_.type(made).dtype != DType::f32) return false;
      if (node.outputs[0] != made) return false;
      sums.push_back(made);
      made = is_matmul ? input_or_none(node, "residual") : kNone;
    }
    for (const ValueId sum : sums) {
      graph_.values[static_cast<size_t>(sum)].type.dtype = dtype;
      graph_.nodes[static_cast<size_t>(graph_.value(sum).producer)].attrs.set("out_dtype",
                                                                              std::string(dtype_name(dtype)));
    }
    const NodeId producer = graph_.value(sums[0]).producer;
    replace(producer, id, graph_.node(producer), false);
    return true;
  }

  /// Returns a cheap node that produces `value`. It is removed as dead code at the end of the pass.
  ir::Node placeholder(ValueId value) {
    const ir::Type& type = graph_.type(value);
    ir::Node node{.op = ops::find_op("broadcast_scalar"),
                  .inputs = {kNone},
                  .outputs = {value},
                  .attrs = {},
                  .name = ""};
    node.attrs.set("shape", std::vector<int64_t>(type.shape.begin(), type.shape.end()));
    return node;
  }

  bool add_bias(ir::Node& node, const EpilogueSlots& slots, ValueId bias) {
    if (slots.bias.empty() || occupied(node, slots.bias) || occupied(node, slots.residual) ||
        has_activation(node))
      return false;
    set_input(node, slots.bias, bias);
    return true;
  }
  /// Adds the residual to the node, or to the first of the nodes that are added up by their residuals.
  bool add_residual(ir::Node& node, const EpilogueSlots& slots, ValueId residual) {
    if (has_activation(node)) return false;
    const ValueId earlier = input_or_none(node, slots.residual);
    if (earlier == kNone) {
      set_input(node, slots.residual, residual);
      return true;
    }
    const NodeId producer = graph_.value(earlier).producer;
    if (producer == kNone || graph_.use_counts()[static_cast<size_t>(earlier)] != 1) return false;
    const EpilogueSlots* earlier_slots = slots_of(graph_.node(producer));
    return earlier_slots != nullptr && graph_.node(producer).outputs[0] == earlier &&
           graph_.value(residual).producer < producer &&
           add_residual(graph_.nodes[static_cast<size_t>(producer)], *earlier_slots, residual);
  }
  bool add_relu(ir::Node& node, const EpilogueSlots& slots, ValueId) {
    if (!slots.relu || has_activation(node)) return false;
    node.attrs.set("activation", std::string("relu"));
    return true;
  }

  bool add_silu(ir::Node& node, const EpilogueSlots& slots, ValueId) {
    if (!slots.silu || occupied(node, slots.residual) || has_activation(node)) return false;
    node.attrs.set("activation", std::string("silu"));
    return true;
  }

  static bool occupied(const ir::Node& node, std::string_view slot) {
    return input_or_none(node, slot) != kNone;
  }
  static void set_input(ir::Node& node, std::string_view slot, ValueId id) {
    const size_t index = node.op->input_index(slot);
    if (node.inputs.size() <= index) node.inputs.resize(index + 1, kNone);
    node.inputs[index] = id;
  }

  const EpilogueSlots* slots_of(const ir::Node& node) const {
    const auto found = std::ranges::find(slots_, node.op->name, &EpilogueSlots::op);
    return found == slots_.end() ? nullptr : &*found;
  }

  ir::Graph& graph_;
  std::span<const EpilogueSlots> slots_;
};

}  // namespace

void fuse_epilogues(ir::Graph& graph) { FuseEpilogues(graph, kForwardSlots).fold_all(); }
void fuse_sums(ir::Graph& graph, bool on_gpu) {
  const std::span slots(kGradientSlots);
  FuseEpilogues(graph, on_gpu ? slots : slots.first(slots.size() - 1)).fold_sums();
}

void fuse_conv_pool(ir::Graph& graph) {
  for (ir::Node& pool : graph.nodes) {
    if (pool.op->name != "max_pool2d" || !is_produced_by(graph, pool.inputs[0], "conv2d")) continue;
    const ir::Node& conv = graph.node(graph.value(pool.inputs[0]).producer);
    const bool windows_fit = pool.attrs.integer("kernel") == 2 && pool.attrs.integer("stride") == 2 &&
                             pool.attrs.integer_or("padding", 0) == 0;
    const bool plain = input_or_none(conv, "residual") == kNone;
    const bool input_image = graph.value(input_or_none(conv, "x")).role == ir::Role::input;
    const bool one_reader = graph.use_counts()[static_cast<size_t>(pool.inputs[0])] == 1;
    const bool even =
        graph.type(pool.inputs[0]).shape[1] % 2 == 0 && graph.type(pool.inputs[0]).shape[2] % 2 == 0;
    if (!windows_fit || !plain || !input_image || !one_reader || !even) continue;
    const bool dense = conv.attrs.integer_or("dilation", 1) == 1 && conv.attrs.integer_or("groups", 1) == 1;
    if (!dense || conv.attrs.integer("stride") != 1) continue;
    if (conv.attrs.text_or("activation", "none") != "relu") continue;
    pool.op = ops::find_op("conv2d_pool");
    pool.attrs = {{"padding", conv.attrs.integer("padding")}};
    pool.inputs = conv.inputs;
    pool.inputs.resize(std::min(pool.inputs.size(), pool.op->inputs.size()));
    pool.name = conv.name;
  }
  graph.remove_dead_nodes();
}

}  // namespace hearth::passes
