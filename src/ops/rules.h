#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "ops/support.h"

namespace hearth::ops {

/// The three storage dtypes that kernels compute from.
inline bool is_storage_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}
inline Type f32_type(const Shape& shape) { return {.dtype = DType::f32, .shape = shape}; }
inline std::string to_string(const Type& type) {
  return fmt::format("{}{}", dtype_name(type.dtype), hearth::to_string(type.shape));
}
inline Inferred refuse_type(std::string_view what, std::string_view expected, const Type& got) {
  return refuse(fmt::format("expected {} to be {}, got {}", what, expected, to_string(got)));
}

/// Where a kernel writes a run of a floating array: the array itself when it is f32, otherwise `scratch`,
/// which cpu::store_f32 then converts.
inline float* run_to_write(DType dtype, void* data, int64_t begin, float* scratch) {
  return dtype == DType::f32 ? static_cast<float*>(data) + begin : scratch;
}

/// Entries for a record's samples.
inline SampleInput normal(const Shape& shape, DType dtype = DType::f32) {
  return {.type = {.dtype = dtype, .shape = shape}, .fill = SampleInput::Fill::normal, .bound = 0};
}
inline SampleInput positive(const Shape& shape) {
  return {.type = f32_type(shape), .fill = SampleInput::Fill::positive, .bound = 0};
}
inline SampleInput indices(const Shape& shape, int64_t bound, DType dtype) {
  return {.type = {.dtype = dtype, .shape = shape}, .fill = SampleInput::Fill::label, .bound = bound};
}
inline SampleInput one() { return {.type = kScalar, .fill = SampleInput::Fill::one, .bound = 0}; }

/// Bytes of all inputs and outputs once, and `flops_per_element` for each element of the first input.
inline Cost stream_cost(const NodeView& node, double flops_per_element) {
  return {.flops = flops_per_element * static_cast<double>(node.in[0].shape.num_elements()),
          .bytes = bytes_moved(node)};
}

}  // namespace hearth::ops
