#include <algorithm>
#include <cmath>

#include "backend/cpu/convert.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/formulas.h"
#include "ops/norm/batch_norm_kernels.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

/// Indices of the inputs of batch_norm and batch_norm_infer; only batch_norm has moments.
struct NormIn {
  enum : size_t { x, weight, bias, mean, var, residual, moments };
};

struct Options {
  double momentum;
  double eps;
  NormActivation activation;
  /// True if the input `var` of batch_norm_infer holds 1 / sqrt(variance + eps) instead of the variance.
  bool given_rstd;
};
Options options_of(const Attrs& attrs) {
  return {.momentum = attrs.real_or("momentum", 0.1),
          .eps = attrs.real_or("eps", 1e-5),
          .activation = norm_activation(attrs),
          .given_rstd = attrs.text_or("statistics", "variance") == "rstd"};
}

bool has_mask(const Attrs& attrs) { return attrs.integer_or("mask", 0) != 0; }

double rstd_of(const Options& options, double statistic) {
  return options.given_rstd ? statistic : 1 / std::sqrt(statistic + options.eps);
}

/// Computes the outputs mean, rstd, running mean and running variance from the moments in `work`, and weight
/// * rstd into work.a.
void finish_moments(const NormShape& shape, const Options& options, const NormWorkspace& work,
                    const KernelArgs& args) {
  const auto rows = static_cast<double>(shape.rows);
  float* running_mean = args.output<float>(3);
  float* running_var = args.output<float>(4);
  const auto blend = [&](float old, double now) {
    return static_cast<float>((1 - options.momentum) * static_cast<double>(old) + options.momentum * now);
  };
  for (int64_t c = 0; c < shape.width; ++c) {
    const double rstd = 1 / std::sqrt(work.second[c] / rows + options.eps);
    args.output<float>(1)[c] = static_cast<float>(work.first[c]);
    // work.a is computed from the rounded rstd, so that a recomputation of y (repeat()) yields the same bits.
    const auto stored = static_cast<float>(rstd);
    args.output<float>(2)[c] = stored;
    running_mean[c] = blend(running_mean[c], work.first[c]);
    running_var[c] = blend(running_var[c], work.second[c] / std::max(1.0, rows - 1));
    work.a[c] = stored * args.input<float>(NormIn::weight)[c];
  }
}

/// Writes the mask of y to output kNormMask.
void store_mask(const Type& y, const KernelArgs& args) {
  args.threads->parallel_for(
      y.shape.num_elements() / kMaskElements, kGrain / kMaskElements, [&](Range range) {
        alignas(64) float scratch[kMaskElements];
        for (int64_t i = range.begin; i < range.end; ++i) {
          const float* values = cpu::as_f32(y.dtype, args.out[0], i * kMaskElements, kMaskElements, scratch);
          unsigned bits = 0;
          for (unsigned e = 0; e < kMaskElements; ++e) bits |= (values[e] > 0 ? 1U : 0U) << e;
          args.output<uint8_t>(kNormMask)[i] = static_cast<uint8_t>(bits);
        }
      });
}

Kernel train_kernel(const NodeView& node) {
  const NormShape shape = norm_shape(node.in_type(NormIn::x));
  const bool residual = node.has_input(NormIn::residual), measured = node.has_input(NormIn::moments);
  const auto run = [shape, residual, measured, masked = has_mask(node.attrs), y = node.out_type(0),
                    options = options_of(node.attrs)](const KernelArgs& args) {
    const NormWorkspace work = norm_workspace(shape, args.workspace);
    if (measured) {
      join_groups(shape, args.input<float>(NormIn::moments), work);
    } else {
      moments(shape, args.in[NormIn::x], work, *args.threads);
    }
    finish_moments(shape, options, work, args);
    normalize(shape,
              {.mean = args.output<float>(1),
               .scale = work.a,
               .bias = args.input<float>(NormIn::bias),
               .activation = options.activation},
              args.in[NormIn::x], residual ? args.in[NormIn::residual] : nullptr, args.out[0], *args.threads);
    if (masked) store_mask(y, args);
  };
  return {.run = run, .workspace_bytes = norm_workspace_bytes(shape)};
}

Kernel infer_kernel(const NodeView& node) {
  const NormShape shape = norm_shape(node.in_type(NormIn::x));
  const bool residual = node.has_input(NormIn::residual);
  const auto run = [shape, residual, options = options_of(node.attrs)](const KernelArgs& args) {
    const NormWorkspace work = norm_workspace(shape, args.workspace);
    for (int64_t c = 0; c < shape.width; ++c) {
      work.a[c] =
          static_cast<float>(rstd_of(options, static_cast<double>(args.input<float>(NormIn::var)[c]))) *
          args.input<float>(NormIn::weight)[c];
    }
    normalize(shape,
              {.mean = args.input<float>(NormIn::mean),
               .scale = work.a,
               .bias = args.input<float>(NormIn::bias),
               .activation = options.activation},
              args.in[NormIn::x], residual ? args.in[NormIn::residual] : nullptr, args.out[0], *args.threads);
  };
  return {.run = run, .workspace_bytes = norm_workspace_bytes(shape)};
}

std::string check(const NodeView& node, const OpDef& op) {
  if (auto error = check_norm_inputs(node, op, NormIn::var); !error.empty()) return error;
  if (node.has_input(NormIn::residual) && node.in_type(NormIn::residual) != node.in_type(NormIn::x))
    return fmt::format("expected the residual to be {}, got {}", to_string(node.in_type(NormIn::x)),
                       to_string(node.in_type(NormIn::residual)));
  if (node.has_input(NormIn::residual) && norm_activation(node.attrs) == NormActivation::silu)
    return "activation silu excludes a residual";
  return "";
}

Inferred infer_train(const NodeView& node) {
  if (auto error = check(node, batch_norm); !error.empty()) return refuse(error);
  if (node.has_input(NormIn::moments) &&
      node.in_type(NormIn::moments) != moments_type(node.in_type(NormIn::x)))
    return refuse_type("the moments", to_string(moments_type(node.in_type(NormIn::x))),
                       node.in_type(NormIn::moments));
  if (num_rows(node.in_type(NormIn::x).shape) < 2)
    return refuse(
        "batch normalization needs at least 2 values per channel to train, but this batch has 1; use a "
        "larger batch");
  const Type x = node.in_type(NormIn::x), channels = f32_type({x.shape.back()});
  std::vector<Type> out = {x, channels, channels, channels, channels};
  if (has_mask(node.attrs)) {
    if (norm_activation(node.attrs) != NormActivation::relu || !may_have_mask(x))
      return refuse("mask=1 requires activation=relu, 16 bits and channels in multiples of 8");
    out.push_back(mask_type(x));
  }
  return {.out = out, .error = ""};
}

Inferred infer_infer(const NodeView& node) {
  if (auto error = check(node, batch_norm_infer); !error.empty()) return refuse(error);
  return {.out = {node.in_type(NormIn::x)}, .error = ""};
}

/// Computes y of channel c from its mean and rstd.
void reference_channel(const ReferenceArgs& args, size_t c, double mean, double rstd) {
  const auto width = static_cast<size_t>(args.node.in_type(NormIn::x).shape.back());
  const Options options = options_of(args.node.attrs);
  for (size_t i = c; i < args.in[NormIn::x].size(); i += width) {
    double y = (args.in[NormIn::x][i] - mean) * rstd * args.in[NormIn::weight][c] + args.in[NormIn::bias][c];
    if (args.node.has_input(NormIn::residual)) y += args.in[NormIn::residual][i];
    if (options.activation == NormActivation::relu) y = std::max(y, 0.0);
    if (options.activation == NormActivation::silu) y = Silu()(y, 0.0, 0.0);
    args.out[0][i] = y;
  }
}

struct ChannelMoments {
  double mean = 0;
  double squares = 0;
};
ChannelMoments reference_moments(const ReferenceArgs& args, size_t c) {
  const auto width = static_cast<size_t>(args.node.in_type(NormIn::x).shape.back());
  const std::vector<double>& x = args.in[NormIn::x];
  const auto rows = static_cast<double>(x.size() / width);
  ChannelMoments all;
  for (size_t i = c; i < x.size(); i += width) all.mean += x[i] / rows;
  for (size_t i = c; i < x.size(); i += width) all.squares += (x[i] - all.mean) * (x[i] - all.mean);
  return all;
}
/// Merges the moments of groups of rows (input `moments`): the weighted mean of their means, and the squared
/// deviations within and between groups.
ChannelMoments reference_join(const ReferenceArgs& args, size_t c) {
  const auto width = static_cast<size_t>(args.node.in_type(NormIn::x).shape.back());
  const std::vector<double>& groups = args.in[NormIn::moments];
  const size_t rows = args.in[NormIn::x].size() / width;
  ChannelMoments all;
  const auto size = [&](size_t group) {
    return static_cast<double>(std::min<size_t>(kMomentRows, rows - group * kMomentRows));
  };
  for (size_t g = 0; g * kMomentRows < rows; ++g)
    all.mean += groups[2 * g * width + c] * size(g) / static_cast<double>(rows);
  for (size_t g = 0; g * kMomentRows < rows; ++g) {
    const double delta = groups[2 * g * width + c] - all.mean;
    all.squares += groups[(2 * g + 1) * width + c] + delta * delta * size(g);
  }
  return all;
}

void train_reference(const ReferenceArgs& args) {
  const auto width = static_cast<size_t>(args.node.in_type(NormIn::x).shape.back());
  const Options options = options_of(args.node.attrs);
  const std::vector<double>& x = args.in[NormIn::x];
  const auto rows = static_cast<double>(x.size() / width);
  for (size_t c = 0; c < width; ++c) {
    const auto [mean, squares] =
        args.node.has_input(NormIn::moments) ? reference_join(args, c) : reference_moments(args, c);
    const double rstd = 1 / std::sqrt(squares / rows + options.eps);
    args.out[1][c] = mean;
    args.out[2][c] = rstd;
    args.out[3][c] = (1 - options.momentum) * args.in[NormIn::mean][c] + options.momentum * mean;
    args.out[4][c] =
        (1 - options.momentum) * args.in[NormIn::var][c] + options.momentum * squares / (rows - 1);
    reference_channel(args, c, mean, rstd);
  }
  if (!has_mask(args.node.attrs)) return;
  std::fill(args.out[kNormMask].begin(), args.out[kNormMask].end(), 0.0);
  for (size_t i = 0; i < x.size(); ++i)
    if (args.out[0][i] > 0) args.out[kNormMask][i / kMaskElements] += std::exp2(i % kMaskElements);
}

void infer_reference(const ReferenceArgs& args) {
  const Options options = options_of(args.node.attrs);
  for (size_t c = 0; c < args.in[NormIn::weight].size(); ++c)
    reference_channel(args, c, args.in[NormIn::mean][c], rstd_of(options, args.in[NormIn::var][c]));
}

std::vector<ValueId> vjp(const VjpContext& context) {
  const ir::Node node = context.node;
  const ValueId dy = context.grad_out[0];
  std::vector<ValueId> grads(node.inputs.size(), kNone);
  if (dy == kNone) return grads;
  const NormActivation activation = norm_activation(node.attrs);
  const bool residual = node.inputs.size() > NormIn::residual && node.inputs[NormIn::residual] != kNone;
  const bool masked_residual = activation == NormActivation::relu && residual;
  std::vector<ValueId> inputs = {node.inputs[NormIn::x], node.inputs[NormIn::weight], node.outputs[1],
                                 node.outputs[2], dy};
  if (activation == NormActivation::relu) inputs.push_back(node.outputs[0]);
  if (activation == NormActivation::silu) inputs.insert(inputs.end(), {kNone, node.inputs[NormIn::bias]});
  const auto out = context.graph.add(batch_norm_grad, inputs,
                                     {{"activation", std::string(node.attrs.text_or("activation", "none"))},
                                      {"residual", int64_t{masked_residual ? 1 : 0}}},
                                     node.name);
  std::copy_n(out.begin(), 3, grads.begin());
  if (residual) grads[NormIn::residual] = masked_residual ? out[3] : dy;
  return grads;
}

/// True if the gradient of this value (a weight or bias) may be needed: it is a parameter or computed by a
/// node.
bool may_train(const ir::Graph& graph, ValueId id) {
  const ir::Value& value = graph.value(id);
  return value.producer != kNone || value.role == ir::Role::parameter;
}

/// Adds nodes that recompute the input of silu and compute its gradient. Returns that gradient.
ValueId before_silu(const VjpContext& context) {
  const ir::Node node = context.node;
  Attrs plain = node.attrs;
  plain.set("activation", std::string("none"));
  const ValueId before = context.graph.add1(batch_norm_infer, node.inputs, plain, node.name);
  return context.graph.add1(elementwise_op("silu_grad"), {context.grad_out[0], before}, {}, node.name);
}

std::vector<ValueId> infer_vjp(const VjpContext& context) {
  const ir::Node node = context.node;
  std::vector<ValueId> grads(node.inputs.size(), kNone);
  if (context.grad_out[0] == kNone) return grads;
  const NormActivation activation = norm_activation(node.attrs);
  const bool relu = activation == NormActivation::relu;
  const ValueId dy = activation == NormActivation::silu ? before_silu(context) : context.grad_out[0];
  const bool residual = node.inputs.size() > NormIn::residual && node.inputs[NormIn::residual] != kNone;
  const bool trains = may_train(context.graph, node.inputs[NormIn::weight]) ||
                      may_train(context.graph, node.inputs[NormIn::bias]);
  std::vector<ValueId> inputs = {dy, node.inputs[NormIn::weight], node.inputs[NormIn::var]};
  if (relu || trains) inputs.push_back(relu ? node.outputs[0] : kNone);
  if (trains) inputs.insert(inputs.end(), {node.inputs[NormIn::x], node.inputs[NormIn::mean]});
  Attrs attrs = node.attrs;
  attrs.set("activation", std::string(relu ? "relu" : "none"));
  attrs.set("residual", int64_t{relu && residual});
  const auto out = context.graph.add(batch_norm_infer_grad, inputs, attrs, node.name);
  std::copy_n(out.begin(), trains ? 3 : 1, grads.begin());
  if (residual) grads[NormIn::residual] = relu ? out.back() : dy;
  return grads;
}

/// Returns the cost. Without the input `moments`, x is read twice: for the moments and for y.
Cost train_cost(const NodeView& node) {
  Cost cost = stream_cost(node, 8);
  if (!node.has_input(NormIn::moments))
    cost.bytes += static_cast<double>(node.in_type(NormIn::x).num_bytes());
  return cost;
}
Cost infer_cost(const NodeView& node) { return stream_cost(node, 8); }

std::vector<SampleInput> inputs(const Shape& shape, DType dtype) {
  const Shape channels{shape.back()};
  return {normal(shape, dtype), normal(channels), normal(channels), normal(channels), positive(channels)};
}

Sample sample(const Shape& shape, DType dtype, bool residual, const char* activation, double tolerance) {
  Sample made{.in = inputs(shape, dtype),
              .attrs = {{"momentum", 0.1}, {"eps", 1e-5}, {"activation", std::string(activation)}},
              .tolerance = tolerance};
  if (residual) made.in.push_back(normal(shape, dtype));
  return made;
}

std::vector<Sample> samples() {
  return {sample({6, 5}, DType::f32, false, "none", 1e-5),
          sample({3, 5, 3, 7}, DType::f32, false, "relu", 1e-5),
          sample({2, 3, 3, 17}, DType::f32, true, "none", 1e-5),
          sample({4, 16, 16, 33}, DType::f32, true, "relu", 1e-5),
          sample({3, 8200}, DType::f32, false, "none", 1e-4),
          sample({3, 5, 3, 7}, DType::f32, false, "silu", 1e-5),
          sample({2, 7, 9, 72}, DType::bf16, false, "silu", 1e-2),
          sample({4, 3, 3, 20}, DType::bf16, true, "relu", 1e-2),
          sample({4, 3, 3, 20}, DType::f16, false, "none", 2e-3),
          sample({2, 7, 9, 72}, DType::bf16, true, "relu", 1e-2)};
}
std::vector<Sample> train_samples() {
  std::vector<Sample> made = samples();
  // The moments of these samples do not belong to x, so gradients are inconsistent; bf16 is used because
  // tests do not compare its gradients with finite differences.
  for (const bool residual : {true, false}) {
    made.push_back(sample({2, 9, 9, 5}, DType::bf16, residual, "relu", 1e-2));
    if (!residual) made.back().in.push_back(absent());
    made.back().in.push_back(filled(SampleInput::Fill::positive, {3, 2, 5}));
  }
  for (const DType dtype : {DType::bf16, DType::f16}) {
    made.push_back(sample({2, 7, 9, 72}, dtype, dtype == DType::bf16, "relu", 1e-2));
    made.back().attrs.set("mask", int64_t{1});
  }
  for (const bool residual : {true, false}) {
    made.push_back(sample({2, 9, 9, 8}, DType::bf16, residual, "relu", 1e-2));
    made.back().attrs.set("mask", int64_t{1});
    if (!residual) made.push_back(made.back());
    if (!residual) made.back().in.push_back(absent());
    made.back().in.push_back(filled(SampleInput::Fill::positive, {3, 2, 8}));
  }
  return made;
}

std::vector<Sample> infer_samples() {
  std::vector<Sample> made = samples();
  made.push_back(sample({2, 3, 3, 17}, DType::f32, true, "relu", 1e-5));
  made.back().attrs.set("statistics", std::string("rstd"));
  return made;
}

/// Returns the node that recomputes y: batch_norm_infer with the stored statistics, because another
/// batch_norm would update the running averages twice.
ir::Node repeat(const ir::Node& node) {
  ir::Node again = node;
  again.op = &batch_norm_infer;
  again.inputs.resize(std::min<size_t>(again.inputs.size(), 6));
  again.inputs[NormIn::mean] = node.outputs[1];
  again.inputs[NormIn::var] = node.outputs[2];
  again.attrs.set("statistics", std::string("rstd"));
  again.attrs.set("mask", int64_t{0});
  again.outputs.clear();
  return again;
}

}  // namespace

const OpDef batch_norm{
    .name = "batch_norm",
    .doc =
        "batch_norm(x, weight, bias, running_mean, running_var, residual?, moments?): y, mean, rstd and the "
        "updated running statistics (in place, unbiased variance as in PyTorch); activation: none, relu, "
        "silu; with mask=1 and relu also a bit per element that is 1 where y > 0",
    .inputs = {"x", "weight", "bias", "running_mean", "running_var", "residual?", "moments?"},
    .infer = infer_train,
    .vjp = vjp,
    .cpu = train_kernel,
    .gpu = true,
    .reference = train_reference,
    .cost = train_cost,
    .repeat = repeat,
    .writes = {-1, -1, -1, 3, 4},
    .samples = train_samples};

const OpDef batch_norm_infer{
    .name = "batch_norm_infer",
    .doc =
        "batch_norm_infer(x, weight, bias, running_mean, running_var, residual?): y with given statistics; "
        "statistics=rstd: input 4 is 1/sqrt(var + eps)",
    .inputs = {"x", "weight", "bias", "mean", "var", "residual?"},
    .infer = infer_infer,
    .vjp = infer_vjp,
    .cpu = infer_kernel,
    .gpu = true,
    .reference = infer_reference,
    .cost = infer_cost,
    .samples = infer_samples};

}  // namespace hearth::ops
