#include "ops/reduce/columns.h"
#include "ops/shape/shape.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Copy of one input, in units of n elements of T: the `count` columns of each input row go to output columns
/// from `begin` on; an output row has `width` columns.
struct Columns {
  int64_t rows;
  int count;
  int begin;
  int width;
};

template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads) place_columns(const T* in, T* out, Columns columns) {
  const int column = first_column<1>();
  if (column >= columns.count) return;
  for (int64_t row = first_row(); row < columns.rows; row += row_stride()) {
    rt::store(out + (row * columns.width + columns.begin + column) * n,
              rt::load<T, n>(in + (row * columns.count + column) * n));
  }
}

template <typename T, int n>
ir::Kernel make(const NodeView& node) {
  const int64_t size = dtype_bytes(node.in_type(0).dtype), run = n * int64_t{sizeof(T)};
  const Shape& out = node.out_type(0).shape;
  std::vector<Columns> all;
  int64_t begin = 0;
  for (const ir::Type& type : node.in) {
    const int64_t count = type.shape.back() * size / run;
    all.push_back({.rows = out.num_elements() / std::max<int64_t>(1, out.back()),
                   .count = static_cast<int>(count),
                   .begin = static_cast<int>(begin),
                   .width = static_cast<int>(out.back() * size / run)});
    begin += count;
  }
  return {.run = [all](const KernelArgs& args) {
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].count == 0) continue;
      rt::launch(place_columns<T, n>, ColumnBlocks(all[i].rows, all[i].count, 1).for_rows(),
                 args.stream->handle(), input_of<T>(args, i), output_of<T>(args, 0), all[i]);
    }
  }};
}

/// Returns a kernel that copies in the largest unit, up to 16 bytes, that divides the row size of every
/// input.
ir::Kernel concat_last_gpu(const NodeView& node) {
  int64_t bits = 16;
  for (const ir::Type& type : node.in) bits |= type.shape.back() * dtype_bytes(type.dtype);
  const int64_t run = bits & -bits;
  if (run == 16) return make<uint32_t, 4>(node);
  if (run == 8) return make<uint32_t, 2>(node);
  if (run == 4) return make<uint32_t, 1>(node);
  if (run == 2) return make<uint16_t, 1>(node);
  return make<uint8_t, 1>(node);
}

const GpuKernels kKernels = {{.op = "concat_last", .one = concat_last_gpu}};

}  // namespace
}  // namespace hearth::ops
