#include <cmath>

#include "ops/norm/batch_norm_kernels.h"
#include "ops/norm/norm.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

// Gradient, with xhat = (x - mean) rstd and M elements in a group of a sample: dbias = sum dy, dweight = sum
// dy xhat, dx = rstd (weight dy - sum(weight dy) / M - xhat sum(weight dy xhat) / M); the sums in dx are over
// the group.

struct GroupIn {
  enum : size_t { x, weight, bias };
};
struct GroupGradIn {
  enum : size_t { x, dy, mean, rstd, weight };
};

/// Shape of a group normalization. Kernels process one sample at a time, as an array of shape `sample` [rows,
/// channels].
struct Groups {
  NormShape sample;
  int64_t samples;
  int64_t groups;
  double eps;

  int64_t channels_of_group() const { return sample.width / groups; }
  double elements_of_group() const { return static_cast<double>(sample.rows * channels_of_group()); }
  int64_t sample_bytes() const { return sample.rows * sample.width * dtype_bytes(sample.dtype); }
};
Groups groups_of(const NodeView& node) {
  const Type& x = node.in_type(0);
  const std::vector<int64_t> axes(x.shape.begin() + 1, x.shape.end());
  return {.sample = norm_shape({.dtype = x.dtype, .shape = Shape(std::span<const int64_t>(axes))}),
          .samples = x.shape[0],
          .groups = node.attrs.integer("groups"),
          .eps = node.attrs.real_or("eps", 1e-5)};
}

std::string fault(const NodeView& node) {
  const Type& x = node.in_type(0);
  if (x.shape.rank() < 2 || !is_storage_float(x.dtype) || x.shape.num_elements() == 0)
    return fmt::format("expected x to be floating [N, ..., C], got {}", to_string(x));
  const int64_t groups = node.attrs.integer("groups");
  if (groups < 1 || x.shape.back() % groups != 0)
    return fmt::format("{} channels are not divisible by {} groups", x.shape.back(), groups);
  return "";
}
Type statistics_type(const NodeView& node) {
  return f32_type({node.in_type(0).shape[0], node.attrs.integer("groups")});
}

Inferred infer(const NodeView& node) {
  if (auto error = fault(node); !error.empty()) return refuse(error);
  const Type channels = f32_type({node.in_type(0).shape.back()});
  for (const size_t i : {GroupIn::weight, GroupIn::bias})
    if (node.has_input(i) && node.in_type(i) != channels)
      return refuse_type(group_norm.input_name(i), to_string(channels), node.in_type(i));
  return {.out = {node.in_type(0), statistics_type(node), statistics_type(node)}, .error = ""};
}
Inferred infer_grad(const NodeView& node) {
  if (auto error = fault(node); !error.empty()) return refuse(error);
  const Type& x = node.in_type(0);
  const Type statistics = statistics_type(node), channels = f32_type({x.shape.back()});
  if (node.in_type(GroupGradIn::dy) != x)
    return refuse_type("dy", to_string(x), node.in_type(GroupGradIn::dy));
  for (const size_t i : {GroupGradIn::mean, GroupGradIn::rstd})
    if (node.in_type(i) != statistics)
      return refuse_type(group_norm_grad.input_name(i), to_string(statistics), node.in_type(i));
  if (node.has_input(GroupGradIn::weight) && node.in_type(GroupGradIn::weight) != channels)
    return refuse_type("weight", to_string(channels), node.in_type(GroupGradIn::weight));
  return {.out = {x, channels, channels}, .error = ""};
}

/// Returns input `index`, f32 [C]; null if absent.
const float* channels_of(const KernelArgs& args, size_t index) {
  return args.in.size() > index ? args.input<float>(index) : nullptr;
}

struct GroupMoments {
  double mean = 0;
  double squares = 0;
};
/// Merges the moments of channels [begin, begin + count), which have `rows` elements each, into those of a
/// group.
GroupMoments join_channels(const NormWorkspace& work, int64_t begin, int64_t count, int64_t rows) {
  GroupMoments all;
  for (int64_t c = begin; c < begin + count; ++c) all.mean += work.first[c] / static_cast<double>(count);
  for (int64_t c = begin; c < begin + count; ++c) {
    const double delta = work.first[c] - all.mean;
    all.squares += work.second[c] + delta * delta * static_cast<double>(rows);
  }
  return all;
}

void normalize_sample(const Groups& groups, const KernelArgs& args, int64_t n) {
  const NormShape& shape = groups.sample;
  const NormWorkspace work = norm_workspace(shape, args.workspace);
  const char* x = args.input<char>(GroupIn::x) + n * groups.sample_bytes();
  moments(shape, x, work, *args.threads);
  const float *weight = channels_of(args, GroupIn::weight), *bias = channels_of(args, GroupIn::bias);
  const int64_t count = groups.channels_of_group();
  for (int64_t g = 0; g < groups.groups; ++g) {
    const GroupMoments all = join_channels(work, g * count, count, shape.rows);
    const auto mean = static_cast<float>(all.mean);
    const auto rstd =
        static_cast<float>(1 / std::sqrt(all.squares / groups.elements_of_group() + groups.eps));
    args.output<float>(1)[n * groups.groups + g] = mean;
    args.output<float>(2)[n * groups.groups + g] = rstd;
    for (int64_t c = g * count; c < (g + 1) * count; ++c) {
      work.a[c] = mean;
      work.b[c] = weight == nullptr ? rstd : rstd * weight[c];
      work.c[c] = bias == nullptr ? 0.0F : bias[c];
    }
  }
  normalize(shape, {.mean = work.a, .scale = work.b, .bias = work.c}, x, nullptr,
            args.output<char>(0) + n * groups.sample_bytes(), *args.threads);
}

Kernel kernel(const NodeView& node) {
  const Groups groups = groups_of(node);
  const auto run = [groups](const KernelArgs& args) {
    for (int64_t n = 0; n < groups.samples; ++n) normalize_sample(groups, args, n);
  };
  return {.run = run, .workspace_bytes = norm_workspace_bytes(groups.sample)};
}

/// Sums of dweight and dbias over the samples, in double, and the mean of the current sample.
struct GradientSums {
  double* dweight;
  double* dbias;
  float* mean;  ///< [channels]: the mean of the channel's group
};

void grad_sample(const Groups& groups, const KernelArgs& args, int64_t n, const GradientSums& sums) {
  const NormShape& shape = groups.sample;
  const NormWorkspace work = norm_workspace(shape, args.workspace);
  const float *mean = args.input<float>(GroupGradIn::mean) + n * groups.groups,
              *rstd = args.input<float>(GroupGradIn::rstd) + n * groups.groups;
  const float* weight = channels_of(args, GroupGradIn::weight);
  const int64_t count = groups.channels_of_group();
  for (int64_t c = 0; c < shape.width; ++c) sums.mean[c] = mean[c / count];
  const NormCotangents in{.x = args.input<char>(GroupGradIn::x) + n * groups.sample_bytes(),
                          .dy = args.input<char>(GroupGradIn::dy) + n * groups.sample_bytes(),
                          .y = nullptr,
                          .mean = sums.mean};
  gradient_sums(shape, in, work, *args.threads);
  for (int64_t g = 0; g < groups.groups; ++g) {
    const double scale = static_cast<double>(rstd[g]);
    double plain = 0, by_deviation = 0;
    for (int64_t c = g * count; c < (g + 1) * count; ++c) {
      const double of_channel = weight == nullptr ? 1.0 : static_cast<double>(weight[c]);
      plain += of_channel * work.first[c];
      by_deviation += of_channel * work.second[c];
      sums.dweight[c] += work.second[c] * scale;
      sums.dbias[c] += work.first[c];
    }
    for (int64_t c = g * count; c < (g + 1) * count; ++c) {
      work.a[c] = weight == nullptr ? rstd[g] : rstd[g] * weight[c];
      work.b[c] = static_cast<float>(-scale * scale * scale * by_deviation / groups.elements_of_group());
      work.c[c] = static_cast<float>(-scale * plain / groups.elements_of_group());
    }
  }
  spread_gradient(shape, in, work, args.output<char>(0) + n * groups.sample_bytes(), nullptr, *args.threads);
}

Kernel grad_kernel(const NodeView& node) {
  const Groups groups = groups_of(node);
  const int64_t width = groups.sample.width;
  const auto run = [groups, width](const KernelArgs& args) {
    auto* doubles = reinterpret_cast<double*>(args.workspace);
    const GradientSums sums{doubles, doubles + width, reinterpret_cast<float*>(doubles + 2 * width)};
    std::fill_n(doubles, 2 * width, 0.0);
    KernelArgs rest = args;
    rest.workspace += width * int64_t{3 * sizeof(double)};
    for (int64_t n = 0; n < groups.samples; ++n) grad_sample(groups, rest, n, sums);
    for (int64_t c = 0; c < width; ++c) {
      args.output<float>(1)[c] = static_cast<float>(sums.dweight[c]);
      args.output<float>(2)[c] = static_cast<float>(sums.dbias[c]);
    }
  };
  return {.run = run,
          .workspace_bytes = width * int64_t{3 * sizeof(double)} + norm_workspace_bytes(groups.sample)};
}

/// Calls element(index in x, channel) for all elements of group g of sample n.
template <typename Element>
void for_each_element(const Groups& groups, int64_t n, int64_t g, Element element) {
  const int64_t count = groups.channels_of_group();
  for (int64_t r = n * groups.sample.rows; r < (n + 1) * groups.sample.rows; ++r)
    for (int64_t c = g * count; c < (g + 1) * count; ++c)
      element(static_cast<size_t>(r * groups.sample.width + c), static_cast<size_t>(c));
}
/// Calls group(sample n, group g, index in mean and rstd) for all groups of all samples.
template <typename Group>
void for_each_group(const Groups& groups, Group group) {
  for (int64_t n = 0; n < groups.samples; ++n)
    for (int64_t g = 0; g < groups.groups; ++g) group(n, g, static_cast<size_t>(n * groups.groups + g));
}
void reference(const ReferenceArgs& args) {
  const Groups groups = groups_of(args.node);
  const std::vector<double>& x = args.in[GroupIn::x];
  for_each_group(groups, [&](int64_t n, int64_t g, size_t at) {
    double mean = 0, squares = 0;
    for_each_element(groups, n, g, [&](size_t i, size_t) { mean += x[i] / groups.elements_of_group(); });
    for_each_element(groups, n, g, [&](size_t i, size_t) { squares += (x[i] - mean) * (x[i] - mean); });
    const double rstd = 1 / std::sqrt(squares / groups.elements_of_group() + groups.eps);
    args.out[1][at] = mean;
    args.out[2][at] = rstd;
    for_each_element(groups, n, g, [&](size_t i, size_t c) {
      const double weight = args.node.has_input(GroupIn::weight) ? args.in[GroupIn::weight][c] : 1;
      const double bias = args.node.has_input(GroupIn::bias) ? args.in[GroupIn::bias][c] : 0;
      args.out[0][i] = (x[i] - mean) * rstd * weight + bias;
    });
  });
}
void grad_reference(const ReferenceArgs& args) {
  const Groups groups = groups_of(args.node);
  const std::vector<double>&x = args.in[GroupGradIn::x], &dy = args.in[GroupGradIn::dy];
  std::ranges::fill(args.out[1], 0.0);
  std::ranges::fill(args.out[2], 0.0);
  for_each_group(groups, [&](int64_t n, int64_t g, size_t at) {
    const double mean = args.in[GroupGradIn::mean][at], rstd = args.in[GroupGradIn::rstd][at];
    const auto slope = [&](size_t i, size_t c) {
      return dy[i] * (args.node.has_input(GroupGradIn::weight) ? args.in[GroupGradIn::weight][c] : 1);
    };
    double plain = 0, by_xhat = 0;
    for_each_element(groups, n, g, [&](size_t i, size_t c) {
      const double xhat = (x[i] - mean) * rstd;
      args.out[1][c] += dy[i] * xhat;
      args.out[2][c] += dy[i];
      plain += slope(i, c) / groups.elements_of_group();
      by_xhat += slope(i, c) * xhat / groups.elements_of_group();
    });
    for_each_element(groups, n, g, [&](size_t i, size_t c) {
      args.out[0][i] = rstd * (slope(i, c) - plain - (x[i] - mean) * rstd * by_xhat);
    });
  });
}

std::vector<ValueId> vjp(const VjpContext& context) {
  const ir::Node node = context.node;
  std::vector<ValueId> grads(node.inputs.size(), kNone);
  if (context.grad_out[0] == kNone) return grads;
  std::vector<ValueId> inputs = {node.inputs[GroupIn::x], context.grad_out[0], node.outputs[1],
                                 node.outputs[2]};
  if (node.inputs.size() > GroupIn::weight && node.inputs[GroupIn::weight] != kNone)
    inputs.push_back(node.inputs[GroupIn::weight]);
  const auto out = context.graph.add(group_norm_grad, inputs, node.attrs, node.name);
  std::copy_n(out.begin(), grads.size(), grads.begin());
  return grads;
}

/// Returns the cost; x is counted twice, because it is read for the moments and for y.
Cost cost(const NodeView& node) {
  Cost cost = stream_cost(node, 8);
  cost.bytes += static_cast<double>(node.in_type(0).num_bytes());
  return cost;
}
Cost grad_cost(const NodeView& node) {
  Cost cost = stream_cost(node, 12);
  cost.bytes += 2 * static_cast<double>(node.in_type(0).num_bytes());
  return cost;
}

Sample sample(const Shape& shape, DType dtype, int64_t groups, double tolerance) {
  return {.in = {normal(shape, dtype), normal({shape.back()}), normal({shape.back()})},
          .attrs = {{"groups", groups}, {"eps", 1e-5}},
          .tolerance = tolerance};
}
std::vector<Sample> samples() {
  std::vector<Sample> made = {
      sample({2, 3, 3, 6}, DType::f32, 3, 1e-5),    sample({3, 5, 4, 7}, DType::f32, 7, 1e-5),
      sample({2, 40, 23, 36}, DType::f32, 4, 1e-5), sample({2, 8200}, DType::f32, 1, 1e-5),
      sample({2, 7, 9, 72}, DType::bf16, 8, 1e-2),  sample({1, 5, 5, 20}, DType::bf16, 4, 1e-2),
      sample({2, 5, 5, 24}, DType::f16, 6, 2e-3),   sample({2, 5, 5, 5}, DType::f16, 1, 2e-3)};
  made.push_back(sample({2, 3, 3, 8}, DType::f32, 2, 1e-5));
  made.back().in.resize(1);
  made.push_back(sample({2, 3, 3, 5}, DType::f32, 1, 1e-5));
  made.back().in[GroupIn::weight] = absent();
  return made;
}
std::vector<Sample> grad_samples() {
  std::vector<Sample> made = samples();
  for (Sample& sample : made) {
    const SampleInput x = sample.in[GroupIn::x];
    const Shape statistics{x.type.shape[0], sample.attrs.integer("groups")};
    const bool weighs = sample.in.size() > 1 && sample.in[GroupIn::weight].fill != SampleInput::Fill::absent;
    const SampleInput weight = weighs ? sample.in[GroupIn::weight] : absent();
    sample.in = {x, x, normal(statistics), positive(statistics)};
    if (weighs) sample.in.push_back(weight);
  }
  return made;
}

}  // namespace

const OpDef group_norm{
    .name = "group_norm",
    .doc = "group_norm(x [N, ..., C], weight?, bias?): y, mean and rstd [N, groups] per sample and group",
    .inputs = {"x", "weight?", "bias?"},
    .infer = infer,
    .vjp = vjp,
    .cpu = kernel,
    .gpu = true,
    .reference = reference,
    .cost = cost,
    .num_following = 1,
    .repeat = repeat_itself,
    .samples = samples};

const OpDef group_norm_grad{.name = "group_norm_grad",
                            .doc = "group_norm_grad(x, dy, mean, rstd, weight?): dx, dweight, dbias",
                            .inputs = {"x", "dy", "mean", "rstd", "weight?"},
                            .infer = infer_grad,
                            .no_vjp_because = kNoSecondDerivatives,
                            .cpu = grad_kernel,
                            .gpu = true,
                            .reference = grad_reference,
                            .cost = grad_cost,
                            .samples = grad_samples};

}  // namespace hearth::ops
