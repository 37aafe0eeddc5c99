#include "ops/reduce/columns.h"
#include "ops/shape/shape.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Returns body(T()), where T is an unsigned integer of the dtype's size, because these kernels only copy
/// elements.
template <typename Body>
ir::Kernel with_element(DType dtype, Body body) {
  const int64_t num_bytes = dtype_bytes(dtype);
  if (num_bytes == 1) return body(uint8_t());
  if (num_bytes == 2) return body(uint16_t());
  if (num_bytes == 4) return body(uint32_t());
  return body(uint64_t());
}

/// Lengths and input strides (in elements) of the output's axes, last axis first.
struct Walk {
  int rank;
  int64_t length[Shape::kMaxRank];
  int64_t stride[Shape::kMaxRank];
};
/// Returns the Walk of a transpose; axes that are adjacent in both input and output are merged.
Walk walk_of(const Shape& in, const std::vector<int64_t>& perm) {
  Walk walk{};
  for (int j = in.rank(); j-- > 0;) {
    const int axis = static_cast<int>(perm[static_cast<size_t>(j)]);
    int64_t stride = 1;
    for (int inner = axis + 1; inner < in.rank(); ++inner) stride *= in[inner];
    const int last = walk.rank - 1;
    if (last >= 0 && stride == walk.stride[last] * walk.length[last]) {
      walk.length[last] *= in[axis];
    } else {
      walk.length[walk.rank] = in[axis];
      walk.stride[walk.rank++] = stride;
    }
  }
  return walk;
}

/// Divides in 32 bits if possible, because a 64-bit division takes about a hundred instructions on GPUs.
RT_DEVICE int64_t divide(int64_t value, int64_t by) {
  if (value > UINT32_MAX) return value / by;
  return by > UINT32_MAX ? 0 : static_cast<uint32_t>(value) / static_cast<uint32_t>(by);
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) gather(const T* in, T* out, int64_t count, Walk given) {
  // Copied to shared memory, because the compiler would put a kernel argument with dynamic indices into local
  // (scratch) memory.
  RT_SHARED(walk, Walk);
  if (threadIdx.x == 0) walk = given;
  rt::sync_block();
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    int64_t rest = i, from = 0;
    RT_NO_UNROLL
    for (int axis = 0; axis < walk.rank; ++axis) {
      const int64_t line = divide(rest, walk.length[axis]);
      from += (rest - line * walk.length[axis]) * walk.stride[axis];
      rest = line;
    }
    out[i] = in[from];
  }
}

template <typename T>
ir::Kernel make_transpose(const NodeView& node) {
  const int64_t count = node.in_type(0).shape.num_elements();
  const auto run = [count,
                    walk = walk_of(node.in_type(0).shape, node.attrs.list("perm"))](const KernelArgs& args) {
    rt::launch(gather<T>, {num_stride_blocks(count), kBlockThreads}, args.stream->handle(),
               input_of<T>(args, 0), output_of<T>(args, 0), count, walk);
  };
  return {.run = run};
}

/// Slice or pad of the last axis: output column c is input column c + shift, or 0 if that does not exist.
struct Columns {
  int64_t rows;
  int in_width;
  int out_width;
  int shift;
};
Columns columns_of(const NodeView& node, int64_t shift) {
  const Shape& in = node.in_type(0).shape;
  return {.rows = in.num_elements() / in.back(),
          .in_width = static_cast<int>(in.back()),
          .out_width = static_cast<int>(node.out_type(0).shape.back()),
          .shift = static_cast<int>(shift)};
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) move_columns(const T* in, T* out, Columns columns) {
  const int column = first_column<1>(), from = column + columns.shift;
  if (column >= columns.out_width) return;
  const bool inside = from >= 0 && from < columns.in_width;
  for (int64_t row = first_row(); row < columns.rows; row += row_stride())
    out[row * columns.out_width + column] = inside ? in[row * columns.in_width + from] : T(0);
}

template <typename T>
ir::Kernel make_columns(const Columns& columns) {
  const auto run = [columns](const KernelArgs& args) {
    rt::launch(move_columns<T>, ColumnBlocks(columns.rows, columns.out_width, 1).for_rows(),
               args.stream->handle(), input_of<T>(args, 0), output_of<T>(args, 0), columns);
  };
  return {.run = run};
}

ir::Kernel transpose_gpu(const NodeView& node) {
  return with_element(node.in_type(0).dtype,
                      [&](auto element) { return make_transpose<decltype(element)>(node); });
}
ir::Kernel slice_last_gpu(const NodeView& node) {
  const Columns columns = columns_of(node, node.attrs.integer("begin"));
  return with_element(node.in_type(0).dtype,
                      [&](auto element) { return make_columns<decltype(element)>(columns); });
}
ir::Kernel pad_last_gpu(const NodeView& node) {
  const Columns columns = columns_of(node, -node.attrs.integer("begin"));
  return with_element(node.in_type(0).dtype,
                      [&](auto element) { return make_columns<decltype(element)>(columns); });
}

const GpuKernels kKernels = {{.op = "transpose", .one = transpose_gpu},
                             {.op = "slice_last", .one = slice_last_gpu},
                             {.op = "pad_last", .one = pad_last_gpu}};

}  // namespace
}  // namespace hearth::ops
