#include <bit>

#include "ops/loss/loss.h"
#include "ops/reduce/columns.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

constexpr int kWarps = kBlockThreads / rt::kWarp;

/// Returns the column of the first maximum of a row, found by `lanes` adjacent lanes of a warp (a power of
/// two); all of them get the result.
template <typename T>
RT_DEVICE int first_largest(const T* row, int width, int lanes) {
  float row_max = rt::to_float(row[0]);
  int at = 0;
  for (int k = rt::lane() & (lanes - 1); k < width; k += lanes) {
    const float logit = rt::to_float(row[k]);
    if (logit > row_max) {
      row_max = logit;
      at = k;
    }
  }
  for (int mask = lanes / 2; mask > 0; mask /= 2) {
    const float other = rt::shuffle_xor(row_max, mask);
    const int other_at = rt::shuffle_xor(at, mask);
    if (other > row_max || (other == row_max && other_at < at)) {
      row_max = other;
      at = other_at;
    }
  }
  return at;
}

/// Counts the rows whose argmax is the label, in a single block, one row per warp at a time. Sums of integers
/// do not depend on the order of additions.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    count(const T* logits, const int32_t* labels, float* out, int64_t rows, int width) {
  float correct = 0;
  for (int64_t r = static_cast<int>(threadIdx.x) / rt::kWarp; r < rows; r += kWarps) {
    const int at = first_largest(logits + r * width, width, rt::kWarp);
    if (rt::lane() == 0 && at == labels[r]) correct += 1;
  }
  correct = rt::reduce_block(correct, rt::Add(), 0.0F);
  if (threadIdx.x == 0) *out = correct;
}

/// Computes the argmax of each row with `lanes` adjacent lanes. Lanes without a row recompute the last one,
/// because all lanes must take part in shuffles.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    find_largest(const T* x, int32_t* out, int64_t rows, int width, int lanes) {
  const int64_t of_block = kBlockThreads / lanes;
  for (int64_t begin = blockIdx.x * of_block; begin < rows; begin += gridDim.x * of_block) {
    const int64_t row = begin + static_cast<int>(threadIdx.x) / lanes;
    const int at = first_largest(x + (row < rows ? row : rows - 1) * width, width, lanes);
    if (row < rows && (rt::lane() & (lanes - 1)) == 0) out[row] = at;
  }
}

__global__ void __launch_bounds__(kBlockThreads)
    mark_labels(const int32_t* labels, float* out, int64_t rows, int classes) {
  const int column = first_column<1>();
  if (column >= classes) return;
  for (int64_t row = first_row(); row < rows; row += row_stride())
    out[row * classes + column] = labels[row] == column ? 1.0F : 0.0F;
}

ir::Kernel count_correct_gpu(const NodeView& node) {
  const Shape& logits = node.in_type(0).shape;
  return with_storage_type(node.in_type(0).dtype, [&](auto logit) -> ir::Kernel {
    using T = decltype(logit);
    return {.run = [rows = logits[0], width = static_cast<int>(logits[1])](const KernelArgs& args) {
      rt::launch(count<T>, {1, kBlockThreads}, args.stream->handle(), input_of<T>(args, 0),
                 input_of<int32_t>(args, 1), output_of<float>(args, 0), rows, width);
    }};
  });
}

ir::Kernel argmax_gpu(const NodeView& node) {
  const Shape& x = node.in_type(0).shape;
  const auto width = static_cast<int>(x.back());
  const int64_t rows = x.num_elements() / width;
  const int lanes = std::min(rt::kWarp, static_cast<int>(std::bit_ceil(static_cast<uint64_t>(width))));
  const int64_t blocks = std::clamp<int64_t>(ceil_div(rows, kBlockThreads / lanes), 1, 1 << 16);
  return with_storage_type(node.in_type(0).dtype, [&](auto element) -> ir::Kernel {
    using T = decltype(element);
    return {.run = [=](const KernelArgs& args) {
      rt::launch(find_largest<T>, {blocks, kBlockThreads}, args.stream->handle(), input_of<T>(args, 0),
                 output_of<int32_t>(args, 0), rows, width, lanes);
    }};
  });
}

ir::Kernel one_hot_gpu(const NodeView& node) {
  const int64_t rows = node.in_type(0).shape.num_elements();
  const auto classes = static_cast<int>(node.attrs.integer("classes"));
  return {.run = [=](const KernelArgs& args) {
    rt::launch(mark_labels, ColumnBlocks(rows, classes, 1).for_rows(), args.stream->handle(),
               input_of<int32_t>(args, 0), output_of<float>(args, 0), rows, classes);
  }};
}

const GpuKernels kKernels = {{.op = "count_correct", .one = count_correct_gpu},
                             {.op = "argmax", .one = argmax_gpu},
                             {.op = "one_hot", .one = one_hot_gpu}};

}  // namespace
}  // namespace hearth::ops
