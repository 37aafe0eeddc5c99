#include <cmath>
#include <memory>

#include "ops/lm/axes_rope.h"
#include "ops/lm/lm.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

AxesTokens<int64_t> tokens_of(const NodeView& node) {
  return {.text = node.attrs.integer("text"),
          .height = node.attrs.integer("height"),
          .width = node.attrs.integer("width"),
          .num_axes = std::ssize(node.attrs.list("axes"))};
}

/// A pair of elements that RoPE rotates: the coordinate axis and the frequency of its angle.
struct Pair {
  int64_t axis;
  double frequency;
};
std::vector<Pair> pairs_of(const NodeView& node) {
  const double theta = node.attrs.real("theta");
  std::vector<Pair> pairs;
  const auto& axes = node.attrs.list("axes");
  for (size_t a = 0; a < axes.size(); ++a) {
    for (int64_t i = 0; i < axes[a] / 2; ++i) {
      const double exponent = -2 * static_cast<double>(i) / static_cast<double>(axes[a]);
      pairs.push_back({static_cast<int64_t>(a), std::pow(theta, exponent)});
    }
  }
  return pairs;
}

Inferred infer(const NodeView& node) {
  const auto& axes = node.attrs.list("axes");
  const AxesTokens<int64_t> tokens = tokens_of(node);
  const int64_t batch = node.attrs.integer("batch");
  if (batch < 1 || tokens.text < 0 || tokens.height < 1 || tokens.width < 1)
    return refuse("expected batch, height and width >= 1 and text >= 0");
  if (axes.size() < 2 || axes.size() > 4 || (axes.size() == 2 && tokens.text > 0))
    return refuse(fmt::format("expected 3 or 4 axes, or 2 if text is 0, got {}", axes.size()));
  if (!(node.attrs.real("theta") > 0)) return refuse("expected theta > 0");
  int64_t sum = 0;
  for (const int64_t axis : axes) {
    if (axis < 0 || axis % 2 != 0) return refuse(fmt::format("expected even sizes in axes, got {}", axis));
    sum += axis;
  }
  if (sum == 0) return refuse("expected at least one size above 0 in axes");
  return {.out = {f32_type({batch * tokens.per_sample(), sum})}, .error = ""};
}

/// Table of cos and sin for every coordinate value and pair; equal for all samples.
class Angles {
 public:
  explicit Angles(const NodeView& node) : tokens_(tokens_of(node)) {
    pairs_ = pairs_of(node);
    const int64_t coordinates = std::max({tokens_.text, tokens_.height, tokens_.width});
    for (int64_t at = 0; at < coordinates; ++at) {
      for (const Pair& pair : pairs_) {
        const double angle = static_cast<double>(at) * pair.frequency;
        cos_.push_back(static_cast<float>(std::cos(angle)));
        sin_.push_back(static_cast<float>(std::sin(angle)));
      }
    }
  }
  void fill_row(int64_t token, float* row) const {
    const size_t len = pairs_.size();
    for (size_t j = 0; j < len; ++j) {
      const size_t at = static_cast<size_t>(tokens_.coordinate(token, pairs_[j].axis)) * len + j;
      row[j] = cos_[at];
      row[len + j] = sin_[at];
    }
  }

 private:
  AxesTokens<int64_t> tokens_;
  std::vector<Pair> pairs_;
  std::vector<float> cos_, sin_;
};

Kernel kernel(const NodeView& node) {
  const auto angles = std::make_shared<const Angles>(node);
  const int64_t rows = node.out_type(0).shape[0], width = node.out_type(0).shape[1];
  const int64_t per_sample = tokens_of(node).per_sample();
  return {.run = [=](const KernelArgs& args) {
    args.threads->parallel_for(rows, std::max<int64_t>(1, kGrain / width), [&](Range range) {
      for (int64_t r = range.begin; r < range.end; ++r)
        angles->fill_row(r % per_sample, args.output<float>(0) + r * width);
    });
  }};
}

void reference(const ReferenceArgs& args) {
  const AxesTokens<int64_t> tokens = tokens_of(args.node);
  const std::vector<Pair> pairs = pairs_of(args.node);
  const size_t len = pairs.size();
  for (size_t r = 0; r < args.out[0].size() / (2 * len); ++r) {
    for (size_t j = 0; j < len; ++j) {
      const int64_t token = static_cast<int64_t>(r) % tokens.per_sample();
      const double angle = static_cast<double>(tokens.coordinate(token, pairs[j].axis)) * pairs[j].frequency;
      args.out[0][r * 2 * len + j] = std::cos(angle);
      args.out[0][r * 2 * len + len + j] = std::sin(angle);
    }
  }
}

std::vector<Sample> samples() {
  const auto sample = [](int64_t batch, int64_t text, int64_t height, int64_t width,
                         const std::vector<int64_t>& axes, double theta) {
    return Sample{.attrs = {{"batch", batch},
                            {"text", text},
                            {"height", height},
                            {"width", width},
                            {"axes", axes},
                            {"theta", theta}}};
  };
  return {sample(2, 5, 3, 4, {4, 4, 8}, 10000), sample(3, 0, 7, 2, {6, 2}, 100),
          sample(1, 130, 5, 9, {32, 32, 32, 32}, 2000), sample(2, 3, 70, 33, {16, 56, 56}, 10000),
          sample(1, 2, 1, 1, {0, 260, 4}, 10)};
}

Cost cost(const NodeView& node) {
  Cost cost = cost_per_element(node, 40);
  cost.kernel = KernelKind::rope_table;
  return cost;
}

}  // namespace

const OpDef axes_rope_table{
    .name = "axes_rope_table",
    .doc =
        "axes_rope_table(){batch, text, height, width, axes, theta}: cos, then sin, of the RoPE angles of "
        "tokens with several coordinates, f32 [batch * (text + height * width), sum of axes]",
    .inputs = {},
    .infer = infer,
    .no_vjp_because = "it has no inputs",
    .cpu = kernel,
    .gpu = true,
    .reference = reference,
    .cost = cost,
    .precision = ir::Precision::full,
    .samples = samples};

}  // namespace hearth::ops
