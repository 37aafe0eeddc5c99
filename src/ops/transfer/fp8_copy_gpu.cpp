#include <type_traits>

#include "base/e4m3.h"
#include "ops/gpu_support.h"
#include "ops/transfer/transfer.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

constexpr int kWarps = kBlockThreads / rt::kWarp;
struct Rows {
  int64_t count, columns;

  explicit Rows(const ir::Type& type)
      : count(type.shape.num_elements() / type.shape.back()), columns(type.shape.back()) {}
  /// Calls body(std::integral_constant<int, n>()), where n is the number of adjacent elements that a thread
  /// processes at a time.
  template <typename T, typename Body>
  void with_group_size(Body body) const {
    if (columns % kWideMove<T> == 0) return body(std::integral_constant<int, kWideMove<T>>());
    body(std::integral_constant<int, 1>());
  }
};

/// Encodes rows; one warp per row.
template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads) encode_rows(const T* x, uint8_t* to, Rows rows) {
  const int64_t warps = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t row = first_element() / rt::kWarp; row < rows.count; row += warps) {
    const T* from = x + row * rows.columns;
    float largest = 0;
    for (int64_t c = int64_t{rt::lane()} * n; c < rows.columns; c += rt::kWarp * n) {
      const auto group = rt::load<T, n>(from + c);
      for (int e = 0; e < n; ++e) largest = rt::larger(largest, e4m3_magnitude(rt::to_float(group.at[e])));
    }
    largest = rt::reduce_warp(largest, rt::Max());
    const uint8_t exponent = e4m3_exponent(largest);
    const float inverse = e4m3_inverse_scale(exponent);
    for (int64_t c = int64_t{rt::lane()} * n; c < rows.columns; c += rt::kWarp * n) {
      const auto group = rt::load<T, n>(from + c);
      rt::Vec<uint8_t, n> codes;
      for (int e = 0; e < n; ++e) codes.at[e] = e4m3_code(rt::to_float(group.at[e]) * inverse);
      rt::store(to + row * rows.columns + c, codes);
    }
    if (rt::lane() == 0) to[rows.count * rows.columns + row] = exponent;
  }
}

/// Returns a decoded value. Rounding up may have exceeded the range of f16.
template <typename T>
RT_DEVICE T decoded(uint8_t code, float scale) {
  const float value = e4m3_value(code) * scale;
  if constexpr (std::is_same_v<T, rt::f16>)
    return rt::from_float<T>(value > kMaxF16 ? kMaxF16 : value < -kMaxF16 ? -kMaxF16 : value);
  return rt::from_float<T>(value);
}
/// Decodes groups of n elements, which are in one row.
template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads) decode_rows(const uint8_t* codes, T* to, Rows rows) {
  const uint8_t* exponents = codes + rows.count * rows.columns;
  const int64_t num_groups = rows.count * rows.columns / n;
  for (int64_t group = first_element(); group < num_groups; group += element_stride()) {
    const auto from = rt::load<uint8_t, n>(codes + group * n);
    const float scale = e4m3_scale(exponents[group * n / rows.columns]);
    rt::Vec<T, n> values;
    for (int e = 0; e < n; ++e) values.at[e] = decoded<T>(from.at[e], scale);
    rt::store(to + group * n, values);
  }
}

ir::Kernel encode_fp8_gpu(const NodeView& node) {
  const Rows rows(node.in_type(0));
  return with_storage_type(node.in_type(0).dtype, [&](auto x) -> ir::Kernel {
    using T = decltype(x);
    return {.run = [rows](const KernelArgs& args) {
      rows.with_group_size<T>([&](auto n) {
        rt::launch(encode_rows<T, n()>, {num_stride_blocks(rows.count * rt::kWarp), kBlockThreads},
                   args.stream->handle(), input_of<T>(args, 0), output_of<uint8_t>(args, 0), rows);
      });
    }};
  });
}
ir::Kernel decode_fp8_gpu(const NodeView& node) {
  const Rows rows(node.out_type(0));
  return with_storage_type(node.out_type(0).dtype, [&](auto x) -> ir::Kernel {
    using T = decltype(x);
    return {.run = [rows](const KernelArgs& args) {
      rows.with_group_size<T>([&](auto n) {
        rt::launch(decode_rows<T, n()>, {num_stride_blocks(rows.count * rows.columns / n()), kBlockThreads},
                   args.stream->handle(), input_of<uint8_t>(args, 0), output_of<T>(args, 0), rows);
      });
    }};
  });
}

const GpuKernels kKernels = {{.op = "encode_fp8", .one = encode_fp8_gpu},
                             {.op = "decode_fp8", .one = decode_fp8_gpu}};

}  // namespace
}  // namespace hearth::ops
