#include "ops/elementwise/cast_gpu.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/formulas.h"
#include "ops/reduce/columns.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// An array of f32, bf16 or f16. The dtype is checked at run time; all threads take the same branch.
struct Elements {
  void* data;
  DType dtype;
};
RT_DEVICE float load_element_of(Elements from, int64_t i) {
  if (from.dtype == DType::bf16) return rt::to_float(static_cast<const rt::bf16*>(from.data)[i]);
  if (from.dtype == DType::f16) return rt::to_float(static_cast<const rt::f16*>(from.data)[i]);
  return static_cast<const float*>(from.data)[i];
}
RT_DEVICE void store_element_of(Elements to, int64_t i, float value) {
  if (to.dtype == DType::bf16) {
    static_cast<rt::bf16*>(to.data)[i] = rt::from_float<rt::bf16>(value);
  } else if (to.dtype == DType::f16) {
    static_cast<rt::f16*>(to.data)[i] = rt::from_float<rt::f16>(value);
  } else {
    static_cast<float*>(to.data)[i] = value;
  }
}
template <class F>
__global__ void __launch_bounds__(kBlockThreads)
    apply(Elements a, Elements b, Elements out, int64_t count, float p) {
  for (int64_t i = first_element(); i < count; i += element_stride())
    store_element_of(out, i, F()(load_element_of(a, i), load_element_of(b, i), p));
}

template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads)
    add_bias(const T* in, const float* bias, T* out, int64_t rows, int width) {
  const int column = first_column<n>();
  if (column >= width) return;
  const rt::Vec<float, n> added = rt::load<float, n>(bias + column);
  const auto load = [&](int64_t r) { return rt::load<T, n>(in + r * width + column); };
  for_each_row(rows, load, [&](int64_t r, const rt::Vec<T, n>& values) {
    rt::Vec<T, n> made;
    RT_UNROLL
    for (int c = 0; c < n; ++c) made.at[c] = rt::from_float<T>(rt::to_float(values.at[c]) + added.at[c]);
    rt::store(out + r * width + column, made);
  });
}

__global__ void __launch_bounds__(kBlockThreads)
    multiply(Elements in, const float* factor, Elements out, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride())
    store_element_of(out, i, load_element_of(in, i) * *factor);
}

__global__ void __launch_bounds__(kBlockThreads)
    repeat_scalar(const float* value, float* out, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) out[i] = *value;
}

template <class F>
ir::Kernel make(const NodeView& node) {
  const DType dtype = node.in_type(0).dtype;
  const int64_t count = node.in_type(0).shape.num_elements();
  const size_t second = node.in.size() > 1 ? 1 : 0;
  const auto p = static_cast<float>(formula_parameter(node.attrs));
  const auto run = [=](const KernelArgs& args) {
    rt::launch(apply<F>, {num_stride_blocks(count), kBlockThreads}, args.stream->handle(),
               Elements{args.in[0], dtype}, Elements{args.in[second], dtype}, Elements{args.out[0], dtype},
               count, p);
  };
  return {.run = run};
}

template <class... F>
GpuKernels kernels_of(FormulaList<F...>) {
  size_t i = 0;
  return {{.op = formula_names()[i++], .one = make<F>}...};
}
const GpuKernels kFormulas = kernels_of(Formulas());

ir::Kernel cast_gpu(std::span<const NodeView> nodes) {
  return with_cast_types(nodes[0], [&](auto from, auto to) {
    using Arrays = CastArrays<decltype(from), decltype(to)>;
    return ir::Kernel{.run = [counts = counts_of(nodes)](const KernelArgs& args) {
      const auto arrays_of = [&](size_t i) {
        const KernelArgs local = args_of(args, counts.size(), i);
        return Arrays{input_of<decltype(from)>(local, 0), output_of<decltype(to)>(local, 0)};
      };
      launch_casts<decltype(from), decltype(to)>(counts, arrays_of, args.stream->handle());
    }};
  });
}

template <typename T, int n>
ir::Kernel make_bias_add(const NodeView& node) {
  const int64_t width = node.in_type(0).shape.back(), rows = node.in_type(0).shape.num_elements() / width;
  const ColumnBlocks blocks(rows, width, n);
  const auto run = [=](const KernelArgs& args) {
    rt::launch(add_bias<T, n>, blocks.for_rows(), args.stream->handle(), input_of<T>(args, 0),
               input_of<float>(args, 1), output_of<T>(args, 0), rows, static_cast<int>(width));
  };
  return {.run = run};
}
ir::Kernel bias_add_gpu(const NodeView& node) {
  return with_columns(node.in_type(0),
                      [&](auto element, auto n) { return make_bias_add<decltype(element), n()>(node); });
}

ir::Kernel scale_by_gpu(const NodeView& node) {
  const DType dtype = node.in_type(0).dtype;
  const int64_t count = node.in_type(0).shape.num_elements();
  const auto run = [=](const KernelArgs& args) {
    rt::launch(multiply, {num_stride_blocks(count), kBlockThreads}, args.stream->handle(),
               Elements{args.in[0], dtype}, input_of<float>(args, 1), Elements{args.out[0], dtype}, count);
  };
  return {.run = run};
}

ir::Kernel broadcast_scalar_gpu(const NodeView& node) {
  const int64_t count = node.out_type(0).shape.num_elements();
  const auto run = [=](const KernelArgs& args) {
    rt::launch(repeat_scalar, {num_stride_blocks(count), kBlockThreads}, args.stream->handle(),
               input_of<float>(args, 0), output_of<float>(args, 0), count);
  };
  return {.run = run};
}

const GpuKernels kKernels = {{.op = "cast", .many = cast_gpu},
                             {.op = "bias_add", .one = bias_add_gpu},
                             {.op = "scale_by", .one = scale_by_gpu},
                             {.op = "broadcast_scalar", .one = broadcast_scalar_gpu}};

}  // namespace
}  // namespace hearth::ops
