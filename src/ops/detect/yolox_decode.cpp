#include <array>
#include <cmath>

#include "ops/detect/anchor_grid.h"
#include "ops/detect/detect.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

Inferred infer(const NodeView& node) {
  if (auto error = check_anchor_grid(node); !error.empty()) return refuse(error);
  return same_as_first(node);
}

void decode(const AnchorGrid& grid, int anchor, const float* from, float* to) {
  for (int i = 0; i < 5 + grid.classes; ++i) to[i] = grid.decoded(anchor, i, from[i]);
}

Kernel kernel(const NodeView& node) {
  const AnchorGrid grid = AnchorGrid::of(node);
  const int64_t rows = num_rows(node.in_type(0).shape), width = 5 + grid.classes;
  const auto run = [=](const KernelArgs& args) {
    args.threads->parallel_for(rows, std::max<int64_t>(1, kGrain / 8 / width), [&](Range range) {
      for (int64_t row = range.begin; row < range.end; ++row)
        decode(grid, static_cast<int>(row % grid.anchors), args.input<float>(0) + row * width,
               args.output<float>(0) + row * width);
    });
  };
  return {.run = run};
}

void reference(const ReferenceArgs& args) {
  const Attrs& attrs = args.node.attrs;
  const auto width = static_cast<size_t>(args.node.in_type(0).shape[2]);
  std::vector<std::array<double, 3>> cells;
  for (const int64_t stride : attrs.list("strides")) {
    for (int64_t i = 0; i < attrs.integer("height") / stride * (attrs.integer("width") / stride); ++i) {
      const int64_t columns = attrs.integer("width") / stride;
      cells.push_back(
          {static_cast<double>(i % columns), static_cast<double>(i / columns), static_cast<double>(stride)});
    }
  }
  for (size_t i = 0; i < args.in[0].size(); ++i) {
    const double value = args.in[0][i];
    const auto& [x, y, stride] = cells[i / width % cells.size()];
    const size_t part = i % width;
    args.out[0][i] = part == 0   ? (value + x) * stride
                     : part == 1 ? (value + y) * stride
                     : part < 4  ? std::exp(value) * stride
                                 : 1 / (1 + std::exp(-value));
  }
}

std::vector<Sample> samples() {
  const Attrs small = {
      {"strides", std::vector<int64_t>{2, 4}}, {"height", int64_t{12}}, {"width", int64_t{8}}};
  const Attrs large = {
      {"strides", std::vector<int64_t>{8, 16, 32}}, {"height", int64_t{96}}, {"width", int64_t{64}}};
  return {{.in = {normal({3, 30, 6})}, .attrs = small}, {.in = {normal({2, 126, 85})}, .attrs = large}};
}

}  // namespace

std::string check_anchor_grid(const NodeView& node) {
  const Type& raw = node.in_type(0);
  if (raw.dtype != DType::f32 || raw.shape.rank() != 3 || raw.shape[2] < 6)
    return fmt::format("expected predictions f32[N, A, 5 + C], got {}", to_string(raw));
  const int64_t height = node.attrs.integer("height"), width = node.attrs.integer("width");
  const std::vector<int64_t>& strides = node.attrs.list("strides");
  if (strides.empty() || strides.size() > AnchorGrid::kMaxLevels)
    return fmt::format("expected 1 to {} strides, got {}", AnchorGrid::kMaxLevels, strides.size());
  constexpr int64_t kMaxLength = 1 << 15;
  int64_t anchors = 0;
  for (const int64_t stride : strides) {
    if (stride < 1 || height < 1 || height > kMaxLength || width < 1 || width > kMaxLength ||
        height % stride != 0 || width % stride != 0)
      return fmt::format("the image size {} x {} is not divisible by the stride {}", height, width, stride);
    anchors += height / stride * (width / stride);
  }
  if (anchors != raw.shape[1] || anchors * raw.shape[2] > INT32_MAX)
    return fmt::format("expected {} anchors for {} x {}, got {}", anchors, height, width, to_string(raw));
  return "";
}

const OpDef yolox_decode{
    .name = "yolox_decode",
    .doc = "yolox_decode(raw f32 [N, A, 5 + C]){strides, height, width}: boxes in pixels and probabilities",
    .inputs = {"raw"},
    .infer = infer,
    .no_vjp_because = "the losses use the raw predictions",
    .cpu = kernel,
    .gpu = true,
    .reference = reference,
    .cost = [](const NodeView& node) { return cost_per_element(node, 4); },
    .precision = ir::Precision::full,
    .samples = samples};

}  // namespace hearth::ops
