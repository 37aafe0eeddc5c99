#include "exec/device/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "ops/conv/conv.h"
#include "ops/lm/lm.h"
#include "ops/loss/loss.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/matmul_kernel.h"
#include "ops/matmul/quantized.h"
#include "ops/random/draw.h"
#include "ops/reference.h"
#include "ops/sample.h"
#include "ops/support.h"

/// A node of a model is too large for the float64 reference on the host. For many ops, however, some output
/// elements depend on small parts of the inputs (a few rows of a and columns of b for a matmul), and these
/// parts form a small node of the same op: the excerpt. Random inputs are a pure function of seed and index,
/// so the host computes the excerpt's inputs without reading the full ones. The GPU runs the node at its real
/// size, and the elements of the excerpt are compared.
namespace hearth::exec {
namespace {

using namespace ops;  // Excerpts follow the definitions of single ops.

using Indices = std::vector<int64_t>;

/// Number of rows, and of columns, of a product that an excerpt includes.
constexpr int64_t kFew = 24;
constexpr int64_t kFewRows = 16, kManyElements = 4096;
/// Max number of multiplications of an excerpt, which take less than a second on the host.
constexpr int64_t kMaxWork = 200'000'000;
/// Max number of elements of an excerpt's inputs and outputs together.
constexpr int64_t kMaxElements = 20'000'000;

Indices run(int64_t first, int64_t count) {
  Indices made(static_cast<size_t>(count));
  std::iota(made.begin(), made.end(), first);
  return made;
}
Indices all(int64_t size) { return run(0, size); }

/// Returns the elements of a tensor of shape `whole` whose index on each axis is in that axis' list.
Part part_of(const Shape& whole, const std::vector<Indices>& axes) {
  HEARTH_CHECK(std::ssize(axes) == whole.rank());
  Indices shape, at = {0};
  for (int axis = 0; axis < whole.rank(); ++axis) {
    const Indices& chosen = axes[static_cast<size_t>(axis)];
    shape.push_back(std::ssize(chosen));
    Indices next;
    next.reserve(at.size() * chosen.size());
    for (const int64_t before : at)
      for (const int64_t index : chosen) next.push_back(before * whole[axis] + index);
    at = std::move(next);
  }
  return {.shape = Shape(std::span(shape)), .at = std::move(at)};
}
Part whole(const Shape& shape) { return {.shape = shape, .at = all(shape.num_elements())}; }
/// Returns the part that consists of the given rows (indices of the first axis).
Part rows_of(const Shape& shape, const Indices& rows) {
  std::vector<Indices> axes = {rows};
  for (int axis = 1; axis < shape.rank(); ++axis) axes.push_back(all(shape[axis]));
  return part_of(shape, axes);
}

NodeTest test_like(const NodeView& node) {
  return {.attrs = node.attrs,
          .in = {node.in.begin(), node.in.end()},
          .out = {node.out.begin(), node.out.end()},
          .bounds = std::vector<int64_t>(node.in.size()),
          .scales = std::vector<float>(node.in.size(), 1),
          .excerpt_attrs = node.attrs};
}

using Rule = std::optional<NodeTest> (*)(const NodeView&);

std::optional<NodeTest> try_matmul(const NodeView& node) {
  NodeTest trial = test_like(node);
  const MatmulShape shape = matmul_shape_of(node);
  const Indices rows = spread(shape.m, kFew), columns = spread(shape.n, kFew), terms = all(shape.k);
  const bool transpose_a = node.attrs.integer_or("transpose_a", 0) != 0;
  const bool transpose_b = node.attrs.integer_or("transpose_b", 0) != 0;
  using Axes = std::vector<Indices>;
  trial.excerpt_in = {
      part_of(trial.in[MatmulIn::a].shape, transpose_a ? Axes{terms, rows} : Axes{rows, terms}),
      part_of(trial.in[MatmulIn::b].shape, transpose_b ? Axes{columns, terms} : Axes{terms, columns})};
  trial.excerpt_in.resize(node.in.size());
  if (node.has_input(MatmulIn::bias))
    trial.excerpt_in[MatmulIn::bias] = part_of(trial.in[MatmulIn::bias].shape, {columns});
  trial.excerpt_out = {part_of(trial.out[0].shape, {rows, columns})};
  if (node.has_input(MatmulIn::residual)) trial.excerpt_in[MatmulIn::residual] = trial.excerpt_out[0];
  trial.tolerance = gpu::sum_tolerance(shape.k + 1, kDrawnProduct, trial.out[0].dtype);
  return trial;
}

/// A quantized matrix consists of blocks of this many elements, which have separate scales: an excerpt begins
/// at a multiple.
constexpr int64_t kQuantizedBlock = 64 * 256;

/// Tests a quantized matmul. For x W^T the excerpt has the last rows of W that form complete quantization
/// blocks. x W sums over all rows of W, so the node is tested with a smaller W, of as many rows as the host
/// can compute in time.
std::optional<NodeTest> try_quantized(const NodeView& node) {
  NodeTest trial = test_like(node);
  const Quantization kind = quantization_from_name(node.attrs.text("format"));
  const int64_t columns = node.attrs.integer("columns");
  const bool back = node.attrs.integer_or("back", 0) != 0;
  int64_t rows = node.attrs.integer("rows"), chosen = rows;
  if (back) {
    rows = chosen = std::clamp<int64_t>(kMaxWork / (kFewRows * columns), 1, rows);
    trial.in[QuantizedIn::x].shape = {trial.in[QuantizedIn::x].shape[0], rows};
    trial.attrs.set("rows", rows);
  } else if (const int64_t alone = kQuantizedBlock / std::gcd(columns, kQuantizedBlock); rows % alone == 0) {
    chosen = alone;
  }
  trial.excerpt_attrs.set("rows", chosen);
  const Type& x = trial.in[QuantizedIn::x];
  const Indices few = spread(x.shape[0], kFewRows);
  trial.excerpt_in = {part_of(x.shape, {few, all(x.shape[1])})};
  const auto parts = quantized_parts(kind, rows, columns), small = quantized_parts(kind, chosen, columns);
  for (size_t i = 0; i < parts.size(); ++i) {
    const Type& type = trial.in[i + 1] = parts[i].type;
    const int64_t count = small[i].type.shape.num_elements();
    trial.excerpt_in.push_back(
        {.shape = small[i].type.shape, .at = run(type.shape.num_elements() - count, count)});
    trial.bounds[i + 1] = type.dtype == DType::u8 ? 256 : 128;
  }
  trial.excerpt_in.resize(node.in.size());
  const int64_t width = trial.out[0].shape[1];
  trial.excerpt_out = {part_of(trial.out[0].shape, {few, back ? all(width) : run(width - chosen, chosen)})};
  if (node.has_input(QuantizedIn::residual)) trial.excerpt_in[QuantizedIn::residual] = trial.excerpt_out[0];
  return trial;
}

/// Tests an op each of whose output rows depends on the same row of the inputs with indices `rowed`, and on
/// all of the other inputs.
template <size_t... rowed>
std::optional<NodeTest> try_rows(const NodeView& node) {
  NodeTest trial = test_like(node);
  const Indices rows = spread(trial.out[0].shape[0], kFewRows);
  for (size_t i = 0; i < node.in.size(); ++i) {
    const Shape& shape = trial.in[i].shape;
    const bool is_rowed = ((i == rowed) || ...);
    trial.excerpt_in.push_back(is_rowed ? rows_of(shape, rows) : whole(shape));
  }
  for (const Type& type : trial.out) trial.excerpt_out.push_back(rows_of(type.shape, rows));
  return trial;
}

std::optional<NodeTest> try_embedding(const NodeView& node) {
  std::optional<NodeTest> trial = test_like(node);
  const Shape& table = trial->in[1].shape;
  const Indices rows = spread(trial->in[0].shape[0], kManyElements), columns = spread(table[1], kFew);
  trial->bounds[0] = table[0];
  trial->excerpt_in = {part_of(trial->in[0].shape, {rows}), part_of(table, {all(table[0]), columns})};
  trial->excerpt_out = {part_of(trial->out[0].shape, {rows, columns})};
  return trial;
}

std::optional<NodeTest> try_cross_entropy(const NodeView& node) {
  std::optional<NodeTest> trial = try_rows<0, 1>(node);
  trial->bounds[1] = trial->in[0].shape[1];
  return trial;
}

/// Returns a scale of the inputs for which logits (sums of `width` products) have magnitude 1, so that their
/// exponentials are finite.
float scale_of_logits(int64_t width) {
  const double usual = kDrawnProduct * std::sqrt(static_cast<double>(width));
  return std::ldexp(1.0F, -std::max(0, std::ilogb(usual)));
}

/// Returns the test of an LM head without its teacher inputs, because their elements (ascending ids, and
/// probabilities with a sum below 1) cannot be drawn one by one. Matmuls and softmax do not depend on them.
NodeTest test_without_teacher(const NodeView& node, size_t num_inputs) {
  return test_like({.attrs = node.attrs, .in = node.in.first(num_inputs), .out = node.out});
}

/// Tests the LM head with fewer words if the vocabulary is too large for the host.
std::optional<NodeTest> try_head(const NodeView& node) {
  NodeTest shorter = test_without_teacher(node, HeadIn::lse);
  const Shape& weight = node.in_type(HeadIn::weight).shape;
  const int64_t words = std::clamp<int64_t>(kMaxWork / (kFewRows * weight[1]), 1, weight[0]);
  shorter.in[HeadIn::weight].shape = {words, weight[1]};
  std::optional<NodeTest> trial =
      try_rows<HeadIn::x, HeadIn::labels>({.attrs = shorter.attrs, .in = shorter.in, .out = shorter.out});
  trial->bounds[HeadIn::labels] = words;
  trial->scales[HeadIn::x] = scale_of_logits(weight[1]);
  return trial;
}

/// Tests the gradient of the LM head with few rows and few words, because each element of the weight's
/// gradient depends on every row.
std::optional<NodeTest> try_head_gradient(const NodeView& node, size_t num_inputs,
                                          std::initializer_list<size_t> of_rows) {
  NodeTest trial = test_without_teacher(node, num_inputs);
  const Shape& x = node.in_type(HeadIn::x).shape;
  const int64_t width = x[1], rows = std::min<int64_t>(x[0], 80);
  const int64_t words =
      std::clamp<int64_t>(kMaxWork / (4 * rows * width), 1, node.in_type(HeadIn::weight).shape[0]);
  trial.in[HeadIn::x].shape = {rows, width};
  trial.in[HeadIn::weight].shape = {words, width};
  for (const size_t i : of_rows) trial.in[i].shape = {rows};
  trial.bounds[HeadIn::labels] = words;
  trial.scales[HeadIn::x] = scale_of_logits(width);
  for (const Type& type : trial.in) trial.excerpt_in.push_back(whole(type.shape));
  return trial;
}
std::optional<NodeTest> try_head_grad(const NodeView& node) {
  return try_head_gradient(node, HeadIn::dlosses + 1, {HeadIn::labels, HeadIn::lse, HeadIn::dlosses});
}
std::optional<NodeTest> try_head_train(const NodeView& node) {
  return try_head_gradient(node, HeadIn::dloss + 1, {HeadIn::labels});
}

/// Tests attention on an excerpt of one group of heads of one sample. With causal attention, the first
/// queries depend on the first keys only. Otherwise, and for gradients, the node is tested with shorter
/// sequences that the host can compute.
template <bool is_gradient>
std::optional<NodeTest> try_attention(const NodeView& node) {
  NodeTest trial = test_like(node);
  const int64_t batch = node.attrs.integer("batch"), size = node.attrs.integer("head_size");
  const int64_t heads = node.attrs.integer("heads"), kv_heads = node.attrs.integer("kv_heads");
  const int64_t group = heads / kv_heads, own_time = node.in_type(AttentionIn::q).shape[0] / batch;
  const auto work = static_cast<double>(is_gradient ? 4 * size * group : size * group);
  const auto can_do = static_cast<int64_t>(std::sqrt(static_cast<double>(kMaxWork) / work));
  const int64_t time = std::min(own_time, can_do);
  const bool is_shorter = is_gradient || node.attrs.integer_or("causal", 1) == 0;
  const int64_t ran_time = is_shorter ? time : own_time;
  const Indices rows = run((batch - 1) * ran_time, time);
  // Shortens the sequences of a value. Returns the part of it that is in the excerpt: for values with
  // columns, those of the last group of heads.
  const auto shorten = [&](Type& type) {
    if (type.dtype == DType::boolean) return Part{};
    if (type.shape.rank() == 1) {
      type.shape = {batch * ran_time};
      return part_of(type.shape, {rows});
    }
    if (type.shape.rank() == 3) {
      type.shape = {heads, ran_time, ran_time};
      return part_of(type.shape, {run(heads - group, group), run(0, time), run(0, time)});
    }
    const int64_t width = type.shape[1], of_group = width / kv_heads;
    type.shape = {batch * ran_time, width};
    return part_of(type.shape, {rows, run(width - of_group, of_group)});
  };
  for (Type& type : trial.in) trial.excerpt_in.push_back(shorten(type));
  for (Type& type : trial.out) trial.excerpt_out.push_back(shorten(type));
  for (size_t i = 0; i < trial.in.size(); ++i)
    if (trial.in[i].dtype == DType::i32) trial.bounds[i] = ran_time;
  trial.excerpt_attrs.set("batch", int64_t{1});
  trial.excerpt_attrs.set("heads", group);
  trial.excerpt_attrs.set("kv_heads", int64_t{1});
  return trial;
}

/// Channels of a convolution in an excerpt. With several groups: all channels of some groups. With one group:
/// some input or output channels, and all of the other, unless both `some_in` and `some_out` are set.
struct ConvChannels {
  int64_t groups;
  Indices in, out, weight_in;

  ConvChannels(const Attrs& attrs, int64_t in_c, int64_t out_c, bool some_in, bool some_out)
      : groups(attrs.integer_or("groups", 1)) {
    if (groups == 1) {
      in = weight_in = some_in ? spread(in_c, some_out ? 4 : kFew) : all(in_c);
      out = some_out ? spread(out_c, kFew) : all(out_c);
      return;
    }
    const int64_t of_in = in_c / groups, of_out = out_c / groups;
    const Indices chosen = spread(groups, std::max<int64_t>(1, kFew / of_out));
    for (const int64_t group : chosen) {
      for (int64_t i = 0; i < of_in; ++i) in.push_back(group * of_in + i);
      for (int64_t i = 0; i < of_out; ++i) out.push_back(group * of_out + i);
    }
    weight_in = all(of_in);
    groups = std::ssize(chosen);
  }
  void set_groups(Attrs& attrs) const {
    if (attrs.contains("groups")) attrs.set("groups", groups);
  }
};

/// Tests a convolution on an excerpt of some output channels of one full image, including its borders.
std::optional<NodeTest> try_conv(const NodeView& node) {
  NodeTest trial = test_like(node);
  const Shape& w = trial.in[ConvIn::w].shape;
  const ConvChannels chosen(node.attrs, trial.in[ConvIn::x].shape[3], w[3], false, true);
  chosen.set_groups(trial.excerpt_attrs);
  const Indices& channels = chosen.out;
  const auto of_image = [&](const Shape& shape, const Indices& own) {
    return part_of(shape, {{shape[0] - 1}, all(shape[1]), all(shape[2]), own});
  };
  trial.excerpt_in = {of_image(trial.in[ConvIn::x].shape, chosen.in),
                      part_of(w, {all(w[0]), all(w[1]), all(w[2]), channels})};
  trial.excerpt_in.resize(node.in.size());
  if (node.has_input(ConvIn::bias))
    trial.excerpt_in[ConvIn::bias] = part_of(trial.in[ConvIn::bias].shape, {channels});
  trial.excerpt_out = {of_image(trial.out[0].shape, channels)};
  if (node.has_input(ConvIn::residual)) trial.excerpt_in[ConvIn::residual] = trial.excerpt_out[0];
  trial.tolerance = gpu::sum_tolerance(w[0] * w[1] * w[2] + 1, kDrawnProduct, trial.out[0].dtype);
  return trial;
}

std::optional<NodeTest> try_conv_grad_input(const NodeView& node) {
  NodeTest trial = test_like(node);
  const Shape &dy = trial.in[0].shape, &w = trial.in[1].shape, &dx = trial.out[0].shape;
  const ConvChannels chosen(node.attrs, dx[3], dy[3], true, false);
  chosen.set_groups(trial.excerpt_attrs);
  trial.excerpt_in = {part_of(dy, {{dy[0] - 1}, all(dy[1]), all(dy[2]), chosen.out}),
                      part_of(w, {all(w[0]), all(w[1]), chosen.weight_in, chosen.out})};
  trial.excerpt_out = {part_of(dx, {{dx[0] - 1}, all(dx[1]), all(dx[2]), chosen.in})};
  trial.excerpt_in.resize(node.in.size());
  if (node.has_input(kGradInputResidual)) trial.excerpt_in[kGradInputResidual] = trial.excerpt_out[0];
  trial.tolerance = gpu::sum_tolerance(w[0] * w[1] * std::ssize(chosen.out) / chosen.groups, kDrawnProduct,
                                       trial.out[0].dtype);
  return trial;
}

std::optional<NodeTest> try_conv_grad_weight(const NodeView& node) {
  NodeTest trial = test_like(node);
  const Shape &x = trial.in[0].shape, &dy = trial.in[1].shape, &dw = trial.out[0].shape;
  const ConvChannels chosen(node.attrs, x[3], dy[3], true, true);
  chosen.set_groups(trial.excerpt_attrs);
  trial.excerpt_in = {part_of(x, {all(x[0]), all(x[1]), all(x[2]), chosen.in}),
                      part_of(dy, {all(dy[0]), all(dy[1]), all(dy[2]), chosen.out})};
  trial.excerpt_out = {part_of(dw, {all(dw[0]), all(dw[1]), chosen.weight_in, chosen.out})};
  trial.tolerance = gpu::sum_tolerance(dy[0] * dy[1] * dy[2], kDrawnProduct, trial.out[0].dtype);
  return trial;
}

/// Tests an op each of whose output elements depends on the input elements with the same index.
std::optional<NodeTest> try_elements(const NodeView& node) {
  NodeTest trial = test_like(node);
  const Shape shape = trial.out[0].shape;
  if (shape.num_elements() == 0) return std::nullopt;
  const Indices at = spread(shape.num_elements(), kManyElements);
  const Part part{.shape = {std::ssize(at)}, .at = at};
  for (const Type& type : trial.in) {
    if (type.shape != shape) return std::nullopt;
    trial.excerpt_in.push_back(part);
  }
  trial.excerpt_out = {part};
  return trial;
}

/// Returns the function that creates the test of an op, based on which parts of the inputs an output element
/// depends on; null if there is none.
Rule rule_of(const OpDef& op) {
  static const std::map<std::string_view, Rule> kRules = {
      {"matmul", try_matmul},
      {"attention", try_attention<false>},
      {"attention_grad", try_attention<true>},
      {"head_cross_entropy", try_head},
      {"head_cross_entropy_grad", try_head_grad},
      {"head_cross_entropy_train", try_head_train},
      {"embedding", try_embedding},
      {"quantized_linear", try_quantized},
      {"rms_norm", try_rows<0>},
      {"layer_norm", try_rows<0>},
      {"glu", try_rows<0, 1>},
      {"softmax", try_rows<0>},
      {"softmax_cross_entropy", try_cross_entropy},
      {"conv2d", try_conv},
      {"conv2d_grad_input", try_conv_grad_input},
      {"conv2d_grad_weight", try_conv_grad_weight},
      {"fused_elementwise", try_elements},
  };
  if (op.elementwise != nullptr) return try_elements;
  const auto found = kRules.find(op.name);
  return found == kRules.end() ? nullptr : found->second;
}

/// Infers the types of the outputs of the test and of the excerpt. Returns false if the op rejects the
/// inputs, or if the excerpt is too large for the host.
bool complete(const OpDef& op, NodeTest& trial) {
  ir::Inferred ran = op.infer({.attrs = trial.attrs, .in = trial.in, .out = {}});
  if (!ran.error.empty()) return false;
  trial.out = std::move(ran.out);
  if (trial.excerpt_out.empty())
    for (const Type& type : trial.out) trial.excerpt_out.push_back(whole(type.shape));
  std::vector<Type> in;
  int64_t num_elements = 0;
  for (size_t i = 0; i < trial.in.size(); ++i) {
    in.push_back({.dtype = trial.in[i].dtype, .shape = trial.excerpt_in[i].shape});
    num_elements += std::ssize(trial.excerpt_in[i].at);
  }
  const ir::Inferred excerpt = op.infer({.attrs = trial.excerpt_attrs, .in = in, .out = {}});
  if (!excerpt.error.empty() || num_elements > kMaxElements) return false;
  HEARTH_CHECK(excerpt.out.size() == trial.excerpt_out.size());
  for (size_t k = 0; k < excerpt.out.size(); ++k)
    HEARTH_CHECK(excerpt.out[k].shape == trial.excerpt_out[k].shape);
  const NodeView small{.attrs = trial.excerpt_attrs, .in = in, .out = excerpt.out};
  return op.cost == nullptr || op.cost(small).flops <= 8.0 * kMaxWork;
}

double test_element(const NodeTest& trial, size_t input, int64_t index) {
  const auto seed = static_cast<uint32_t>(input);
  if (is_floating(trial.in[input].dtype))
    return static_cast<double>(trial.scales[input] * drawn_element(seed, index));
  return static_cast<double>(drawn_bits(seed, index) % static_cast<uint32_t>(trial.bounds[input]));
}

/// Returns the excerpt's graph with the values of its inputs and outputs, computed in float64.
DrawnSample evaluated_excerpt(const OpDef& op, const NodeTest& trial) {
  DrawnSample made;
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < trial.in.size(); ++i) {
    inputs.push_back(kNone);
    if (trial.in[i].dtype == DType::boolean) continue;
    const Part& part = trial.excerpt_in[i];
    inputs.back() =
        made.graph.add_value("", {.dtype = trial.in[i].dtype, .shape = part.shape}, ir::Role::input);
    std::vector<double>& values = made.values[inputs.back()];
    for (const int64_t index : part.at) values.push_back(test_element(trial, i, index));
  }
  made.graph.add(op, inputs, trial.excerpt_attrs);
  evaluate_reference(made.graph, made.values);
  return made;
}

gpu::Tolerance tolerance_of(const OpDef& op, const NodeTest& trial, DType dtype,
                            const std::vector<double>& expected) {
  if (trial.tolerance) return *trial.tolerance;
  double scale = 1;
  for (const double value : expected)
    if (std::isfinite(value)) scale = std::max(scale, std::fabs(value));
  // With 16-bit inputs, even an f32 result contains numbers that were rounded to 16 bits on the way.
  const DType first = trial.in[0].dtype;
  double share = sample_tolerance({.tolerance = 0}, first);
  for (const Sample& sample : op.samples())
    if (sample.in[0].type.dtype == first) share = std::max(share, sample_tolerance(sample, dtype));
  return {.absolute = scale * share};
}

}  // namespace

std::vector<int64_t> spread(int64_t size, int64_t count) {
  if (size <= count) return all(size);
  Indices made;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = i * size / count, end = (i + 1) * size / count;
    made.push_back(begin + drawn_bits(0, i) % (end - begin));
  }
  made.front() = 0;
  made.back() = size - 1;
  return made;
}

std::optional<NodeTest> node_test_of(const OpDef& op, const NodeView& node) {
  const Rule rule = rule_of(op);
  if (rule == nullptr || !op.writes.empty()) return std::nullopt;
  std::optional<NodeTest> trial = rule(node);
  if (!trial || !complete(op, *trial)) return std::nullopt;
  return trial;
}

std::vector<std::byte> test_input(const NodeTest& trial, size_t index) {
  const Type& type = trial.in[index];
  std::vector<std::byte> bytes(static_cast<size_t>(type.num_bytes()));
  for (int64_t i = 0; i < type.shape.num_elements(); ++i)
    store_element(type.dtype, bytes.data(), i, test_element(trial, index, i));
  return bytes;
}

std::string compare_with_excerpt(const OpDef& op, const NodeTest& trial,
                                 std::span<const std::vector<std::byte>> outputs) {
  const DrawnSample excerpt = evaluated_excerpt(op, trial);
  for (size_t k = 0; k < outputs.size(); ++k) {
    const DType dtype = trial.out[k].dtype;
    const std::vector<double>& expected = excerpt.values.at(excerpt.node().outputs[k]);
    const gpu::Tolerance tolerance = tolerance_of(op, trial, dtype, expected);
    for (size_t i = 0; i < expected.size(); ++i) {
      const int64_t at = trial.excerpt_out[k].at[i];
      const double got = load_element(dtype, outputs[k].data(), at);
      if (!tolerance.allows(got, expected[i]))
        return fmt::format("element {} of output {} of {} is {:.9g} instead of {:.9g}", at, k, op.name, got,
                           expected[i]);
    }
  }
  return "";
}

}  // namespace hearth::exec
