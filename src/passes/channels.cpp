#include "passes/channels.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "ops/elementwise/formulas.h"

namespace hearth::passes {
namespace {

using ir::ValueId;
using Sets = std::vector<ChannelSet>;

/// Max length of an axis that is followed. Bounds the memory for flattened images.
constexpr int64_t kMaxFollowed = 1 << 20;

/// Ops that compute each channel of their outputs from the same channel of input 0, and that map zeros to
/// zeros.
constexpr std::string_view kPerChannel[] = {"cast",   "dropout", "max_pool2d", "global_avg_pool",
                                            "resize", "rope"};

/// Follows channels through a graph with a union-find structure over single channels.
class Follower {
 public:
  explicit Follower(const ir::Graph& graph)
      : graph_(graph),
        axes_(graph.values.size()),
        heads_(graph.values.size(), 1),
        is_nonzero_(graph.values.size(), 0),
        parent_{kFixedChannels} {
    for (size_t i = 0; i < axes_.size(); ++i) {
      const ir::Value& value = graph.values[i];
      axes_[i].resize(static_cast<size_t>(value.type.shape.rank()));
      if (!ir::is_persistent(value.role)) continue;
      for (int axis = 0; axis < value.type.shape.rank(); ++axis)
        axes_[i][static_cast<size_t>(axis)] = fresh(value.type.shape[axis]);
    }
  }

  Channels run() {
    for (const ir::Node& node : graph_.nodes) follow(node);
    for (const ValueId output : graph_.outputs) fix_all(output);
    Channels made{.axes = std::move(axes_), .num_sets = std::ssize(parent_), .layers = std::move(layers_)};
    for (auto& axes : made.axes)
      for (Sets& sets : axes) settle(sets);
    return made;
  }

 private:
  Sets fresh(int64_t count) {
    if (count > kMaxFollowed) return {};
    Sets made(static_cast<size_t>(count));
    std::iota(made.begin(), made.end(), static_cast<ChannelSet>(parent_.size()));
    parent_.resize(parent_.size() + made.size());
    std::iota(parent_.end() - count, parent_.end(), made.empty() ? 0 : made[0]);
    return made;
  }
  ChannelSet root(ChannelSet set) {
    while (parent_[ir::index(set)] != set) {
      parent_[ir::index(set)] = parent_[ir::index(parent_[ir::index(set)])];
      set = parent_[ir::index(set)];
    }
    return set;
  }
  /// Joins two sets. The smaller id is the root, so that kFixedChannels stays the root of its set.
  void join(ChannelSet a, ChannelSet b) {
    a = root(a), b = root(b);
    parent_[ir::index(std::max(a, b))] = std::min(a, b);
  }
  void join(const Sets& a, const Sets& b) {
    if (a.size() != b.size()) return fix(a), fix(b);
    for (size_t i = 0; i < a.size(); ++i) join(a[i], b[i]);
  }
  void fix(const Sets& sets) {
    for (const ChannelSet set : sets) join(set, kFixedChannels);
  }
  void fix_all(ValueId id) {
    for (const Sets& sets : axes_[ir::index(id)]) fix(sets);
  }
  void settle(Sets& sets) {
    for (ChannelSet& set : sets) set = root(set);
    if (std::ranges::all_of(sets, [](ChannelSet set) { return set == kFixedChannels; })) sets.clear();
  }

  const Shape& shape(ValueId id) const { return graph_.type(id).shape; }
  Sets& axis(ValueId id, int number) { return axes_[ir::index(id)][static_cast<size_t>(number)]; }
  /// Returns the sets of the last axis; empty if it is not followed.
  Sets& last(ValueId id) {
    if (id == ir::kNone || axes_[ir::index(id)].empty()) return none_ = {};
    return axes_[ir::index(id)].back();
  }
  bool has_heads(ValueId id) const { return id != ir::kNone && heads_[ir::index(id)] > 1; }
  bool is_weight(ValueId id) const { return ir::is_persistent(graph_.value(id).role); }
  char& is_nonzero(ValueId id) { return is_nonzero_[ir::index(id)]; }

  /// Assigns `sets` to each output whose last axis has as many channels as there are sets.
  void set_outputs(const ir::Node& node, const Sets& sets, bool nonzero) {
    for (const ValueId out : node.outputs) {
      is_nonzero(out) = nonzero;
      if (shape(out).rank() > 0 && shape(out).back() == std::ssize(sets)) last(out) = sets;
    }
  }

  void follow(const ir::Node& node) {
    const std::string_view op = node.op->name;
    if (op == "reshape") return reshape(node);
    if (op == "rms_norm" && has_heads(node.inputs[0])) return head_norm(node);
    if (std::ranges::any_of(node.inputs, [&](ValueId in) { return has_heads(in); })) return fix_node(node);
    if (op == "conv2d") return conv(node);
    if (op == "conv2d_grad_input") return conv_transpose(node);
    if (op == "matmul") return matmul(node);
    if (op == "slice_last") return slice(node);
    if (op == "concat_last") return concat(node);
    if (op == "attention") return attention(node);
    if (op == "batch_norm" || op == "batch_norm_infer" || op == "bias_add") return scale_and_shift(node);
    if (op == "scale_channels" || op == "glu" || op == "mul") return gate(node);
    if (std::ranges::find(kPerChannel, op) != std::end(kPerChannel))
      return set_outputs(node, last(node.inputs[0]), is_nonzero(node.inputs[0]) != 0);
    if (node.op->elementwise != nullptr) return elementwise(node);
    fix_node(node);
  }

  void fix_node(const ir::Node& node) {
    for (const ValueId in : node.inputs)
      if (in != ir::kNone) fix_all(in);
  }

  void add_layer(ValueId weight, int axis) {
    const std::string& name = graph_.value(weight).name;
    if (std::ranges::find(layers_, weight, &ChannelLayer::weight) == layers_.end())
      layers_.push_back({.name = name.substr(0, name.rfind('.')), .weight = weight, .axis = axis});
  }
  /// Joins the channels of x with the input axis of a weight. A channel that is not 0 when its weights are 0
  /// cannot be removed, because the layer would lose a constant.
  void read(ValueId x, const Sets& weight_axis) {
    join(last(x), weight_axis);
    if (is_nonzero(x) != 0) fix(weight_axis);
  }

  void conv(const ir::Node& node) {
    const ValueId x = node.inputs[0], weight = node.inputs[1];
    const int64_t groups = node.attrs.integer_or("groups", 1), channels = shape(x).back();
    if (node.inputs.size() != 2 || !is_weight(weight)) return fix_node(node);
    if (groups == 1) {
      read(x, axis(weight, 2));
      add_layer(weight, 3);
    } else if (groups == channels && channels == shape(weight)[3]) {
      read(x, axis(weight, 3));
    } else {
      return fix_node(node);
    }
    set_outputs(node, axis(weight, 3), false);
  }
  void conv_transpose(const ir::Node& node) {
    const ValueId weight = node.inputs[1];
    if (node.inputs.size() != 2 || !is_weight(weight) || node.attrs.integer_or("groups", 1) != 1)
      return fix_node(node);
    read(node.inputs[0], axis(weight, 3));
    add_layer(weight, 2);
    set_outputs(node, axis(weight, 2), false);
  }
  void matmul(const ir::Node& node) {
    const ValueId weight = node.inputs[1];
    const bool is_linear = is_weight(weight) && shape(weight).rank() == 2 && node.inputs.size() == 2 &&
                           node.attrs.integer_or("transpose_a", 0) == 0 &&
                           node.attrs.integer_or("transpose_b", 0) == 1;
    if (!is_linear) return fix_node(node);
    read(node.inputs[0], axis(weight, 1));
    add_layer(weight, 0);
    set_outputs(node, axis(weight, 0), false);
  }

  /// Follows a reshape that keeps the last axis, flattens axes before it into it, or splits it into heads or
  /// joins them again.
  void reshape(const ir::Node& node) {
    const ValueId in = node.inputs[0], out = node.outputs[0];
    if (shape(in).rank() == 0 || shape(out).rank() == 0) return fix_node(node);
    const Sets sets = last(in);
    const int64_t heads = heads_[ir::index(in)], from = shape(in).back() * heads, to = shape(out).back();
    is_nonzero(out) = is_nonzero(in);
    if (std::ssize(sets) != from || sets.empty()) return;
    if (from == to) {
      last(out) = sets;
    } else if (heads == 1 && from % to == 0) {
      heads_[ir::index(out)] = from / to;
      last(out) = sets;
    } else if (heads == 1 && to % from == 0 && to <= kMaxFollowed && is_flattened(shape(in), to)) {
      Sets& repeated = last(out);
      for (int64_t i = 0; i < to / from; ++i) repeated.insert(repeated.end(), sets.begin(), sets.end());
    } else {
      fix(sets);
    }
  }
  /// True if `length` is the product of some last axes.
  static bool is_flattened(const Shape& in, int64_t length) {
    int64_t product = 1;
    for (int axis = in.rank(); axis-- > 0 && product < length;) product *= in[axis];
    return product == length;
  }

  void slice(const ir::Node& node) {
    const Sets& sets = last(node.inputs[0]);
    const int64_t begin = node.attrs.integer("begin"), count = node.attrs.integer("count");
    if (sets.empty()) return;
    const Sets columns(sets.begin() + begin, sets.begin() + begin + count);
    set_outputs(node, columns, is_nonzero(node.inputs[0]));
  }
  void concat(const ir::Node& node) {
    Sets all;
    bool nonzero = false;
    for (const ValueId in : node.inputs) {
      const Sets& sets = last(in);
      nonzero |= is_nonzero(in) != 0;
      if (sets.empty())
        all.resize(all.size() + static_cast<size_t>(shape(in).back()), kFixedChannels);
      else
        all.insert(all.end(), sets.begin(), sets.end());
    }
    if (shape(node.outputs[0]).back() > kMaxFollowed) return fix_node(node);
    set_outputs(node, all, nonzero);
  }

  void scale_and_shift(const ir::Node& node) {
    const ValueId x = node.inputs[0];
    for (size_t i = 1; i < node.inputs.size(); ++i) join(last(x), last(node.inputs[i]));
    set_outputs(node, last(node.inputs[1]), node.op->name == "bias_add" && is_nonzero(x) != 0);
  }
  /// Follows a product, which is 0 if either factor is.
  void gate(const ir::Node& node) {
    join(last(node.inputs[0]), last(node.inputs[1]));
    set_outputs(node, last(node.inputs[0]),
                is_nonzero(node.inputs[0]) != 0 && is_nonzero(node.inputs[1]) != 0);
  }
  void elementwise(const ir::Node& node) {
    const float zero = 0;
    float at_zero = 0;
    node.op->elementwise(&zero, &zero, &at_zero, 1, static_cast<float>(ops::formula_parameter(node.attrs)),
                         0);
    bool nonzero = !(at_zero == 0);
    for (const ValueId in : node.inputs) nonzero |= is_nonzero(in) != 0;
    if (node.inputs.size() > 1) join(last(node.inputs[0]), last(node.inputs[1]));
    set_outputs(node, last(node.inputs[0]), nonzero);
  }

  /// Joins the channels of each head.
  void join_heads(const Sets& sets, int64_t head_size) {
    for (int64_t i = 0; i < std::ssize(sets); ++i)
      join(sets[static_cast<size_t>(i)], sets[static_cast<size_t>(i / head_size * head_size)]);
  }
  /// Follows a norm per head, whose weight is shared by all heads.
  void head_norm(const ir::Node& node) {
    const ValueId x = node.inputs[0], out = node.outputs[0];
    fix_all(node.inputs[1]);
    join_heads(last(x), shape(x).back());
    heads_[ir::index(out)] = heads_[ir::index(x)];
    last(out) = last(x);
  }
  /// Joins each key and value head with its query heads (grouped-query attention, arXiv 2305.13245).
  void attention(const ir::Node& node) {
    const Sets &q = last(node.inputs[0]), &k = last(node.inputs[1]), &v = last(node.inputs[2]);
    const int64_t head_size = node.attrs.integer("head_size"), kv_heads = node.attrs.integer("kv_heads");
    const int64_t per_group = node.attrs.integer("heads") / kv_heads * head_size;
    if (std::ssize(q) != per_group * kv_heads || std::ssize(k) != kv_heads * head_size ||
        k.size() != v.size())
      return fix_node(node);
    join(k, v);
    join_heads(k, head_size);
    join_heads(q, per_group);
    for (int64_t head = 0; head < kv_heads; ++head)
      join(q[static_cast<size_t>(head * per_group)], k[static_cast<size_t>(head * head_size)]);
    last(node.outputs[0]) = q;
  }

  const ir::Graph& graph_;
  std::vector<std::vector<Sets>> axes_;
  /// Number of heads that a reshape moved from the last axis to the rows. The sets of the last axis are then
  /// those of all heads.
  std::vector<int64_t> heads_;
  std::vector<char> is_nonzero_;  ///< true if a channel whose weights are 0 may have another value than 0
  std::vector<ChannelSet> parent_;
  std::vector<ChannelLayer> layers_;
  Sets none_;
};

const Sets& output_sets(const Channels& channels, const ChannelLayer& layer) {
  return channels.axes[ir::index(layer.weight)][static_cast<size_t>(layer.axis)];
}

/// Groups the removable sets by the layers that compute them.
void add_groups(Channels& channels) {
  std::map<ChannelSet, std::vector<size_t>> layers_of;
  std::vector<ChannelSet> order;
  for (size_t layer = 0; layer < channels.layers.size(); ++layer) {
    for (const ChannelSet set : output_sets(channels, channels.layers[layer])) {
      std::vector<size_t>& layers = layers_of[set];
      if (layers.empty() && set != kFixedChannels) order.push_back(set);
      if (layers.empty() || layers.back() != layer) layers.push_back(layer);
    }
  }
  layers_of.erase(kFixedChannels);
  std::map<std::vector<size_t>, ChannelGroup> groups;
  for (const ChannelSet set : order) groups[layers_of[set]].sets.push_back(set);
  for (auto& [layers, group] : groups) {
    for (const size_t layer : layers) {
      const bool is_inside = std::ranges::all_of(
          output_sets(channels, channels.layers[layer]),
          [&](ChannelSet set) { return set != kFixedChannels && layers_of[set] == layers; });
      if (is_inside) group.layers.push_back(channels.layers[layer].name);
    }
    if (!group.layers.empty()) channels.groups.push_back(std::move(group));
  }
}

int64_t num_kept(std::span<const ChannelSet> sets, std::span<const char> keep) {
  return std::ranges::count_if(sets, [&](ChannelSet set) { return keep[ir::index(set)] != 0; });
}

void narrow_weights(ir::Graph& graph, const Channels& channels, std::span<const char> keep) {
  for (size_t i = 0; i < graph.values.size(); ++i) {
    ir::Value& value = graph.values[i];
    if (!ir::is_persistent(value.role)) continue;
    std::vector<int64_t> lengths(value.type.shape.begin(), value.type.shape.end());
    for (size_t axis = 0; axis < lengths.size(); ++axis)
      if (!channels.axes[i][axis].empty()) lengths[axis] = num_kept(channels.axes[i][axis], keep);
    value.type.shape = Shape(lengths);
  }
}

/// Changes the attributes of a node that contain numbers of channels. `in`, `out`: sets of the last axes of
/// input 0 and output 0.
void narrow_attributes(ir::Node& node, std::span<const ChannelSet> in, std::span<const ChannelSet> out,
                       std::span<const char> keep) {
  ir::Attrs& attrs = node.attrs;
  if (node.op->name == "conv2d" && std::ssize(in) > 1 && attrs.integer_or("groups", 1) == std::ssize(in))
    attrs.set("groups", num_kept(in, keep));
  if (node.op->name == "slice_last" && !in.empty()) {
    const auto begin = static_cast<size_t>(attrs.integer("begin"));
    const auto count = static_cast<size_t>(attrs.integer("count"));
    attrs.set("begin", num_kept(in.first(begin), keep));
    attrs.set("count", num_kept(in.subspan(begin, count), keep));
  }
  if (node.op->name == "reshape" && !out.empty()) {
    std::vector<int64_t> lengths = attrs.list("shape");
    HEARTH_CHECK(lengths.back() == std::ssize(out));  // No heads: see remove_channels().
    lengths.back() = num_kept(out, keep);
    attrs.set("shape", lengths);
  }
}

}  // namespace

const ChannelGroup* Channels::find(std::string_view layer) const {
  const auto found = std::ranges::find_if(groups, [&](const ChannelGroup& group) {
    return std::ranges::find(group.layers, layer) != group.layers.end();
  });
  return found == groups.end() ? nullptr : &*found;
}

Channels find_channels(const ir::Graph& graph) {
  Channels made = Follower(graph).run();
  add_groups(made);
  return made;
}

void remove_channels(ir::Graph& graph, const Channels& channels, std::span<const char> keep) {
  const auto last_axis = [&](ValueId id) -> std::span<const ChannelSet> {
    if (id == ir::kNone || channels.axes[ir::index(id)].empty()) return {};
    return channels.axes[ir::index(id)].back();
  };
  narrow_weights(graph, channels, keep);
  for (ir::Node& node : graph.nodes) {
    narrow_attributes(node, last_axis(node.inputs.empty() ? ir::kNone : node.inputs[0]),
                      last_axis(node.outputs[0]), keep);
    const ir::NodeTypes types(graph, node);
    const ir::Inferred inferred = node.op->infer({.attrs = node.attrs, .in = types.in, .out = {}});
    if (!inferred.error.empty()) internal_error("{} after removing channels: {}", node.name, inferred.error);
    for (size_t i = 0; i < node.outputs.size(); ++i) graph.value(node.outputs[i]).type = inferred.out[i];
  }
}

}  // namespace hearth::passes
