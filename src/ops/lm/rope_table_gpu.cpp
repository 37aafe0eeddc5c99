#include <cmath>

#include "ops/gpu_support.h"
#include "ops/lm/axes_rope.h"
#include "ops/lm/lm.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Frequencies of one launch, passed as a kernel parameter. Heads of more than 2 * kMaxFrequencies elements
/// need several launches.
struct Frequencies {
  static constexpr int kMaxFrequencies = 256;
  int count;
  float short_frequencies[kMaxFrequencies];
  float long_frequencies[kMaxFrequencies];
};

/// Positions that select the set of frequencies: the long ones if any position is `original` or more; the
/// short ones if count is 0.
struct Reach {
  const int32_t* positions;
  int64_t count;
  float original;
};
RT_DEVICE bool is_long(const Reach& reach) {
  if (reach.count == 0) return false;
  float max_position = -1;
  for (int64_t i = threadIdx.x; i < reach.count; i += kBlockThreads)
    max_position = rt::Max()(static_cast<float>(reach.positions[i]), max_position);
  return rt::reduce_block(max_position, rt::Max(), -1.0F) >= reach.original;
}

/// Fills columns [first, first + count) of the cos and sin halves of each row. One thread per position and
/// frequency.
__global__ void __launch_bounds__(kBlockThreads)
    fill_table(const int32_t* positions, Reach reach, float* table, int64_t num_positions, int64_t len,
               int64_t first, double scale, Frequencies frequencies) {
  const float* chosen = is_long(reach) ? frequencies.long_frequencies : frequencies.short_frequencies;
  const int64_t i = first_element() / frequencies.count;
  const int j = static_cast<int>(first_element() % frequencies.count);
  if (i >= num_positions) return;
  const float angle = static_cast<float>(positions[i]) * chosen[j];
  float* row = table + i * 2 * len + first + j;
  row[0] = static_cast<float>(scale * cos(static_cast<double>(angle)));
  row[len] = static_cast<float>(scale * sin(static_cast<double>(angle)));
}

ir::Kernel rope_table_gpu(const NodeView& node) {
  const RopeFrequencies all(node);
  std::vector<Frequencies> pieces;
  for (size_t i = 0; i < all.short_frequencies.size(); ++i) {
    if (i % Frequencies::kMaxFrequencies == 0) pieces.push_back({});
    Frequencies& piece = pieces.back();
    piece.short_frequencies[piece.count] = static_cast<float>(all.short_frequencies[i]);
    if (all.has_two()) piece.long_frequencies[piece.count] = static_cast<float>(all.long_frequencies[i]);
    ++piece.count;
  }
  const Reach reach{.positions = nullptr,
                    .count = all.has_two() ? node.in.back().shape[0] : 0,
                    .original = static_cast<float>(all.original)};
  const auto run = [reach, pieces, len = std::ssize(all.short_frequencies), scale = all.scale,
                    positions = node.in_type(0).shape[0]](const KernelArgs& args) {
    Reach local = reach;
    local.positions = static_cast<const int32_t*>(args.in.back());
    int64_t first = 0;
    for (const Frequencies& piece : pieces) {
      rt::launch(fill_table, {ceil_div(positions * piece.count, kBlockThreads), kBlockThreads},
                 args.stream->handle(), input_of<int32_t>(args, 0), local, output_of<float>(args, 0),
                 positions, len, first, scale, piece);
      first += piece.count;
    }
  };
  return {.run = run};
}

/// Axis and frequency of the RoPE pairs of one launch, passed as a kernel parameter.
struct AxisPairs {
  static constexpr int kMaxFrequencies = 128;
  int count;
  int8_t axis[kMaxFrequencies];
  double frequency[kMaxFrequencies];
};
/// Fills columns [first, first + count) of the cos and sin halves of each row. One block per token, one
/// thread per pair.
__global__ void __launch_bounds__(kBlockThreads)
    fill_axes_table(float* table, int len, int first, AxesTokens<int> tokens, AxisPairs pairs) {
  const int j = static_cast<int>(threadIdx.x);
  if (j >= pairs.count) return;
  const int token = static_cast<int>(blockIdx.x) % tokens.per_sample();
  const double angle = static_cast<double>(tokens.coordinate(token, pairs.axis[j])) * pairs.frequency[j];
  float* row = table + static_cast<int64_t>(blockIdx.x) * 2 * len + first + j;
  row[0] = static_cast<float>(cos(angle));
  row[len] = static_cast<float>(sin(angle));
}
static_assert(AxisPairs::kMaxFrequencies <= kBlockThreads);

std::vector<AxisPairs> axis_pairs(const std::vector<int64_t>& sizes, double theta) {
  std::vector<AxisPairs> pieces;
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    for (int64_t i = 0; i < sizes[axis] / 2; ++i) {
      if (pieces.empty() || pieces.back().count == AxisPairs::kMaxFrequencies) pieces.push_back({});
      AxisPairs& piece = pieces.back();
      piece.axis[piece.count] = static_cast<int8_t>(axis);
      piece.frequency[piece.count] =
          std::pow(theta, -2 * static_cast<double>(i) / static_cast<double>(sizes[axis]));
      ++piece.count;
    }
  }
  return pieces;
}

ir::Kernel axes_rope_table_gpu(const NodeView& node) {
  const auto& sizes = node.attrs.list("axes");
  const auto integer = [&](const char* name) { return static_cast<int>(node.attrs.integer(name)); };
  const AxesTokens<int> tokens{.text = integer("text"),
                               .height = integer("height"),
                               .width = integer("width"),
                               .num_axes = static_cast<int>(std::ssize(sizes))};
  constexpr int64_t kMaxRows = (int64_t{1} << 31) - 1;
  const int64_t rows = node.out_type(0).shape[0];
  if (rows > kMaxRows) refuse_on_gpu("the number of tokens", kMaxRows, rows);
  const auto len = static_cast<int>(node.out_type(0).shape[1] / 2);
  const auto run = [=, pieces = axis_pairs(sizes, node.attrs.real("theta"))](const KernelArgs& args) {
    int first = 0;
    for (const AxisPairs& piece : pieces) {
      rt::launch(fill_axes_table, {rows, kBlockThreads}, args.stream->handle(), output_of<float>(args, 0),
                 len, first, tokens, piece);
      first += piece.count;
    }
  };
  return {.run = run};
}

const GpuKernels kKernels = {{.op = "rope_table", .one = rope_table_gpu},
                             {.op = "axes_rope_table", .one = axes_rope_table_gpu}};

}  // namespace
}  // namespace hearth::ops
