#include "nn/int8.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

#include "base/group_format.h"
#include "ir/op_def.h"
#include "ops/op_list.h"

namespace hearth::nn {
namespace {

using ir::Node;
using ir::NodeId;
using ir::ValueId;

/// Role of a node in int8 arithmetic.
enum class Kind : uint8_t {
  other,      ///< computes with unrounded values
  layer,      ///< multiplies by an int8 weight
  affine,     ///< bias or batch norm: part of the layer before it, if it is the layer's only reader
  relu,       ///< part of the op before it, if it is its only reader
  selecting,  ///< returns elements of its input, which are rounded if the input is
  joining     ///< computes with rounded values
};

struct Row {
  std::string_view op;
  Kind kind;
};
constexpr auto kKinds = std::to_array<Row>({{"conv2d", Kind::layer},
                                            {"matmul", Kind::layer},
                                            {"bias_add", Kind::affine},
                                            {"batch_norm", Kind::affine},
                                            {"batch_norm_infer", Kind::affine},
                                            {"relu", Kind::relu},
                                            {"add", Kind::joining},
                                            {"concat_last", Kind::joining},
                                            {"global_avg_pool", Kind::joining},
                                            {"resize", Kind::joining},
                                            {"scale_channels", Kind::joining},
                                            {"hardsigmoid", Kind::joining},
                                            {"hardswish", Kind::joining},
                                            {"sigmoid", Kind::joining},
                                            {"silu", Kind::joining}});

/// Finds the activations to round.
class Search {
 public:
  explicit Search(Builder& builder) : graph_(builder.graph()), uses_(graph_.use_counts()) {
    for (const Tensor& tensor : builder.tensors()) weights_.insert(tensor.value);
    find_needed();
  }

  std::vector<RoundedActivation> run() {
    for (const Node& node : graph_.nodes) visit(node);
    return std::move(found_);
  }

  Kind kind_of(const Node& node) const {
    if (selects_elements(node)) return Kind::selecting;
    const auto found = std::ranges::find(kKinds, node.op->name, &Row::op);
    if (found == kKinds.end()) return Kind::other;
    return found->kind == Kind::layer && !weights_.contains(node.inputs[1]) ? Kind::other : found->kind;
  }

 private:
  const Node* producer(ValueId value) const {
    const NodeId id = graph_.value(value).producer;
    return id == ir::kNone ? nullptr : &graph_.node(id);
  }
  Kind kind_before(ValueId value) const {
    const Node* before = producer(value);
    return before == nullptr ? Kind::other : kind_of(*before);
  }
  bool is_needed(const Node& node) const { return needed_[ir::index(node.outputs[0])] != 0; }

  /// Marks the values that reach a layer through nodes that compute with rounded values.
  void find_needed() {
    needed_.assign(graph_.values.size(), 0);
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const Node& node = graph_.nodes[i];
      const Kind kind = kind_of(node);
      if (kind == Kind::other || (kind != Kind::layer && !is_needed(node))) continue;
      const size_t num_inputs = kind == Kind::joining ? node.inputs.size() : 1;
      for (size_t k = 0; k < num_inputs; ++k) needed_[ir::index(node.inputs[k])] = 1;
    }
  }

  /// True if the node is computed together with the node before it, on unrounded values.
  bool is_absorbed(const Node& node) const {
    if (uses_[ir::index(node.inputs[0])] != 1) return false;
    const Kind before = kind_before(node.inputs[0]);
    if (kind_of(node) == Kind::relu) return before != Kind::selecting;
    return before == Kind::layer || (before == Kind::affine && is_absorbed(*producer(node.inputs[0])));
  }

  void visit(const Node& node) {
    const Kind kind = kind_of(node);
    if (kind == Kind::layer) return round(node.inputs[0]);
    if (kind == Kind::other || kind == Kind::selecting || !is_needed(node)) return;
    if (kind == Kind::joining) {
      for (const ValueId input : node.inputs) round(input);
    } else if (!is_absorbed(node)) {
      round(node.inputs[0]);
    }
  }

  void round(ValueId value) {
    while (kind_before(value) == Kind::selecting) value = producer(value)->inputs[0];
    if (!rounded_.insert(value).second || graph_.type(value).dtype != DType::f32) return;
    const Node* before = producer(value);
    const std::string& name = before == nullptr ? graph_.value(value).name : before->name;
    const int64_t number = ++names_[name];
    found_.push_back(
        {.value = value,
         .range = fmt::format("{}.activation_range{}", name, number > 1 ? fmt::format("_{}", number) : "")});
  }

  const ir::Graph& graph_;
  std::vector<int> uses_;
  std::set<ValueId> weights_, rounded_;
  std::vector<char> needed_;
  std::map<std::string, int64_t> names_;
  std::vector<RoundedActivation> found_;
};

/// Appends rounding nodes to the graph, then moves each to its place.
class Insertion {
 public:
  explicit Insertion(Builder& builder)
      : builder_(builder), graph_(builder.graph()), search_(builder), num_nodes_(graph_.nodes.size()) {}

  void run() {
    const std::vector<RoundedActivation> activations = search_.run();
    const std::vector<ValueId> weights = weights_to_round();
    for (const RoundedActivation& activation : activations) round(activation);
    for (const ValueId weight : weights) round(weight);
    sort();
  }

 private:
  std::vector<ValueId> weights_to_round() {
    std::vector<ValueId> found;
    for (const Node& node : graph_.nodes) {
      if (search_.kind_of(node) == Kind::layer && std::ranges::find(found, node.inputs[1]) == found.end())
        found.push_back(node.inputs[1]);
    }
    return found;
  }

  /// Adds a node that belongs after the producer of a value or, without one, before the first reader.
  ValueId add(std::string_view op, std::vector<ValueId> inputs, ir::Attrs attrs, ValueId value) {
    const NodeId producer = graph_.value(value).producer;
    const std::string name = producer == ir::kNone ? graph_.value(value).name : graph_.node(producer).name;
    places_.push_back(producer == ir::kNone ? 2 * first_reader(value) : 2 * ir::index(producer) + 2);
    return graph_.add1(*ops::find_op(op), std::move(inputs), std::move(attrs), name);
  }

  size_t first_reader(ValueId value) const {
    const auto reads = [&](const Node& node) { return std::ranges::count(node.inputs, value) > 0; };
    return static_cast<size_t>(std::ranges::find_if(graph_.nodes, reads) - graph_.nodes.begin());
  }

  /// Adds the rounding of a value and lets the value's readers read its result. `range`: kNone for a weight.
  void replace(ValueId value, GroupFormat format, int64_t group, ValueId range) {
    std::vector<ValueId> inputs = {value};
    if (range != ir::kNone) inputs.insert(inputs.end(), {ir::kNone, range});
    const ValueId rounded =
        add("fake_quantize_groups", std::move(inputs),
            {{"format", std::string(name_of(format))}, {"group", group}, {"first_step", int64_t{0}}}, value);
    for (size_t i = 0; i < num_nodes_; ++i) std::ranges::replace(graph_.nodes[i].inputs, value, rounded);
  }

  void round(const RoundedActivation& activation) {
    replace(activation.value, GroupFormat::int8_affine, 0, builder_.memory(activation.range, {2}));
  }

  void round(ValueId weight) {
    // Convolutions store output channels last, linear layers first.
    const Shape& shape = graph_.type(weight).shape;
    replace(weight, GroupFormat::int8_channel, shape.rank() == 4 ? 0 : shape.back(), ir::kNone);
  }

  void sort() {
    std::vector<size_t> place(num_nodes_), order(graph_.nodes.size());
    for (size_t i = 0; i < num_nodes_; ++i) place[i] = 2 * i + 1;
    place.insert(place.end(), places_.begin(), places_.end());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, {}, [&](size_t node) { return place[node]; });
    std::vector<Node> nodes;
    for (const size_t node : order) nodes.push_back(std::move(graph_.nodes[node]));
    graph_.nodes = std::move(nodes);
    graph_.relink();
  }

  Builder& builder_;
  ir::Graph& graph_;
  Search search_;
  size_t num_nodes_;
  std::vector<size_t> places_;  ///< for each added node, its place among the nodes (2 i + 1: node i)
};

}  // namespace

bool selects_elements(const ir::Node& node) {
  constexpr std::string_view kSelecting[] = {"max_pool2d", "reshape", "slice_last", "dropout"};
  if (node.op->name == "resize") return node.attrs.integer("linear") == 0;
  return std::ranges::find(kSelecting, node.op->name) != std::end(kSelecting);
}

std::vector<RoundedActivation> activations_to_round(Builder& builder) { return Search(builder).run(); }

void round_to_int8(Builder& builder) { Insertion(builder).run(); }

}  // namespace hearth::nn
