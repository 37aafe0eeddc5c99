#include "ops/gpu_support.h"
#include "ops/lm/lm.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// What travels in the parameters of a launch; a head has at most twice as many elements, or there are
/// several launches.
struct Frequencies {
  static constexpr int kMost = 256;
  int count;
  float at[kMost];
};

/// A thread per position and frequency: columns [first, first + count) of both halves of a row.
__global__ void __launch_bounds__(kBlockThreads)
    fill_table(const int32_t* positions, float* table, int64_t num_positions, int64_t len, int64_t first,
               double scale, Frequencies frequencies) {
  const int64_t i = first_element() / frequencies.count;
  const int j = static_cast<int>(first_element() % frequencies.count);
  if (i >= num_positions) return;
  const float angle = static_cast<float>(positions[i]) * frequencies.at[j];
  float* row = table + i * 2 * len + first + j;
  row[0] = static_cast<float>(scale * cos(static_cast<double>(angle)));
  row[len] = static_cast<float>(scale * sin(static_cast<double>(angle)));
}

}  // namespace

ir::Kernel rope_table_gpu(const NodeView& node) {
  const std::vector<double> all = node.attrs.reals("inv_freq");
  const auto len = static_cast<int64_t>(all.size());
  std::vector<Frequencies> pieces;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i % Frequencies::kMost == 0) pieces.push_back({});
    pieces.back().at[pieces.back().count++] = static_cast<float>(all[i]);
  }
  const auto run = [len, pieces, positions = node.in_type(0).shape[0],
                    scale = node.attrs.real_or("scale", 1)](const KernelArgs& args) {
    int64_t first = 0;
    for (const Frequencies& piece : pieces) {
      rt::launch(fill_table, {divided_up(positions * piece.count, kBlockThreads), kBlockThreads},
                 args.stream->handle(), input_of<int32_t>(args, 0), output_of<float>(args, 0), positions, len,
                 first, scale, piece);
      first += piece.count;
    }
  };
  return {.run = run};
}

}  // namespace hearth::ops
