#include "base/group_format.h"
#include "ops/gpu_support.h"
#include "ops/matmul/fake_quantize.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Arrays of one run; dy is null except for gradients, counter and range may be null.
template <typename T>
struct Arrays {
  const T* x;
  const T* dy;
  const int64_t* counter;
  const float* range;
  T* out;
  int64_t first_step;

  RT_DEVICE bool is_off() const { return counter != nullptr && *counter < first_step; }
  /// Rounds element `at`, or computes its gradient.
  RT_DEVICE void round(GroupFormat format, const GroupScale& scale, bool off, int64_t at) const {
    const float element = rt::to_float(x[at]);
    if (dy != nullptr) {
      const bool passes = off || is_in_range(format, unlimited_code(format, element, scale));
      out[at] = passes ? dy[at] : rt::from_float<T>(0.0F);
    } else {
      out[at] = off ? x[at] : rt::from_float<T>(group_value(group_code(format, element, scale), scale));
    }
  }
};

/// Rounds groups of adjacent elements; one warp per group.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    round_rows(Arrays<T> arrays, int64_t num_groups, int64_t size, GroupFormat format) {
  const bool off = arrays.is_off();
  const int64_t warps = static_cast<int64_t>(gridDim.x) * (kBlockThreads / rt::kWarp);
  for (int64_t group = first_element() / rt::kWarp; group < num_groups; group += warps) {
    const int64_t begin = group * size;
    float low = 0, high = 0;
    for (int64_t i = rt::lane(); i < size; i += rt::kWarp) {
      const float element = rt::to_float(arrays.x[begin + i]);
      low = rt::larger(low, -element);
      high = rt::larger(high, element);
    }
    const GroupScale scale =
        group_scale(format, -rt::reduce_warp(low, rt::Max()), rt::reduce_warp(high, rt::Max()));
    for (int64_t i = rt::lane(); i < size; i += rt::kWarp) arrays.round(format, scale, off, begin + i);
  }
}

/// Rounds columns; one block per kWarp columns, one lane per column, the warps share the rows.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    round_columns(Arrays<T> arrays, int64_t num_rows, int64_t num_columns, GroupFormat format) {
  constexpr int kWarps = kBlockThreads / rt::kWarp;
  RT_SHARED(lows, float[kBlockThreads]);
  RT_SHARED(highs, float[kBlockThreads]);
  const bool off = arrays.is_off();
  const int64_t column = static_cast<int64_t>(blockIdx.x) * rt::kWarp + rt::lane();
  float low = 0, high = 0;
  for (int64_t row = rt::warp(); row < num_rows && column < num_columns; row += kWarps) {
    const float element = rt::to_float(arrays.x[row * num_columns + column]);
    low = rt::larger(low, -element);
    high = rt::larger(high, element);
  }
  lows[threadIdx.x] = low;
  highs[threadIdx.x] = high;
  rt::sync_block();
  for (int warp = 0; warp < kWarps; ++warp) {
    low = rt::larger(low, lows[warp * rt::kWarp + rt::lane()]);
    high = rt::larger(high, highs[warp * rt::kWarp + rt::lane()]);
  }
  const GroupScale scale = group_scale(format, -low, high);
  for (int64_t row = rt::warp(); row < num_rows && column < num_columns; row += kWarps)
    arrays.round(format, scale, off, row * num_columns + column);
}

/// Rounds all elements with the scale of the given range.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    round_in_range(Arrays<T> arrays, int64_t num_elements, GroupFormat format) {
  const bool off = arrays.is_off();
  const GroupScale scale = group_scale(format, arrays.range[0], arrays.range[1]);
  for (int64_t i = first_element(); i < num_elements; i += element_stride())
    arrays.round(format, scale, off, i);
}

template <typename T>
void launch_rounding(const GroupRounding& rounding, const Arrays<T>& arrays, void* stream) {
  const int64_t count = rounding.num_elements();
  if (arrays.range != nullptr) {
    rt::launch(round_in_range<T>, {num_stride_blocks(count), kBlockThreads}, stream, arrays, count,
               rounding.format);
  } else if (rounding.group > 0) {
    const int64_t num_groups = count / rounding.group;
    rt::launch(round_rows<T>, {num_stride_blocks(num_groups * rt::kWarp), kBlockThreads}, stream, arrays,
               num_groups, rounding.group, rounding.format);
  } else {
    rt::launch(round_columns<T>, {ceil_div(rounding.columns, rt::kWarp), kBlockThreads}, stream, arrays,
               rounding.rows, rounding.columns, rounding.format);
  }
}

template <typename T>
const T* optional_input_of(const KernelArgs& args, size_t index) {
  return index < args.in.size() ? input_of<T>(args, index) : nullptr;
}

template <bool is_gradient>
ir::Kernel groups_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype, [&](auto element) {
    using T = decltype(element);
    const auto run = [rounding = GroupRounding(node)](const KernelArgs& args) {
      const Arrays<T> arrays{.x = input_of<T>(args, 0),
                             .dy = is_gradient ? input_of<T>(args, 1) : nullptr,
                             .counter = optional_input_of<int64_t>(args, counter_index(is_gradient)),
                             .range = optional_input_of<float>(args, range_index(is_gradient)),
                             .out = output_of<T>(args, 0),
                             .first_step = rounding.first_step};
      launch_rounding(rounding, arrays, args.stream->handle());
    };
    return ir::Kernel{.run = run};
  });
}

const GpuKernels kKernels = {{.op = "fake_quantize_groups", .one = groups_gpu<false>},
                             {.op = "fake_quantize_groups_grad", .one = groups_gpu<true>}};

}  // namespace
}  // namespace hearth::ops
