#include <algorithm>
#include <string>

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
/// All of these ops support relu. batch_norm has a bias, but it is no epilogue. batch_norm with given
/// statistics does not support silu, because it may itself be folded into a convolution later.
struct EpilogueSlots {
  std::string_view op;
  std::string_view bias;
  std::string_view residual;
  bool silu = false;
};
constexpr EpilogueSlots kSlots[] = {{"matmul", "bias", "residual"},
                                    {"conv2d", "bias", "residual"},
                                    {"batch_norm", "", "residual", true},
                                    {"batch_norm_infer", "", "residual"}};

const EpilogueSlots* slots_of(const ir::Node& node) {
  for (const EpilogueSlots& slots : kSlots) {
    if (slots.op == node.op->name) return &slots;
  }
  return nullptr;
}

class FuseEpilogues {
 public:
  explicit FuseEpilogues(ir::Graph& graph) : graph_(graph) {}

  void run() {
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes.size()); ++id) {
      if (try_fold(id)) folded_ = true;
    }
    if (folded_) graph_.remove_dead_nodes();
  }

 private:
  /// Folds node `id` into the producer of one of its inputs. The fused node takes the position of node `id`.
  bool try_fold(NodeId id) {
    const ir::Node& node = graph_.node(id);
    if (node.op->name == "bias_add") return fold(id, 0, &FuseEpilogues::add_bias);
    if (node.op->name == "relu") return fold(id, 0, &FuseEpilogues::add_relu);
    if (node.op->name == "silu") return fold(id, 0, &FuseEpilogues::add_silu);
    if (node.op->name == "add") {
      return fold(id, 0, &FuseEpilogues::add_residual) || fold(id, 1, &FuseEpilogues::add_residual);
    }
    return false;
  }

  bool fold(NodeId id, size_t input, bool (FuseEpilogues::*apply)(ir::Node&, const EpilogueSlots&, ValueId)) {
    const ir::Node epilogue = graph_.node(id);
    const ValueId made = epilogue.inputs[input];
    const NodeId producer = made == kNone ? kNone : graph_.value(made).producer;
    if (producer == kNone || graph_.node(producer).outputs[0] != made) return false;
    const EpilogueSlots* slots = slots_of(graph_.node(producer));
    if (slots == nullptr || graph_.use_counts()[static_cast<size_t>(made)] != 1) return false;
    if (graph_.type(made) != graph_.type(epilogue.outputs[0])) return false;
    ir::Node fused = graph_.node(producer);
    const ValueId other = epilogue.inputs.size() > 1 ? epilogue.inputs[1 - input] : kNone;
    if (!(this->*apply)(fused, *slots, other)) return false;
    // The fused node replaces node `id`. The old producer is replaced by a placeholder, which nothing reads.
    fused.outputs[0] = epilogue.outputs[0];
    graph_.nodes[static_cast<size_t>(id)] = std::move(fused);
    graph_.nodes[static_cast<size_t>(producer)] = placeholder(made);
    graph_.relink();
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
  bool add_residual(ir::Node& node, const EpilogueSlots& slots, ValueId residual) {
    if (occupied(node, slots.residual) || has_activation(node)) return false;
    set_input(node, slots.residual, residual);
    return true;
  }
  bool add_relu(ir::Node& node, const EpilogueSlots&, ValueId) {
    if (has_activation(node)) return false;
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

  ir::Graph& graph_;
  bool folded_ = false;
};

}  // namespace

void fuse_epilogues(ir::Graph& graph) { FuseEpilogues(graph).run(); }

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
