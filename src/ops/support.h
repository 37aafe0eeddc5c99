#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/threads.h"
#include "ir/graph.h"

namespace hearth::ops {

using ir::Attrs;
using ir::Cost;
using ir::Inferred;
using ir::Kernel;
using ir::KernelArgs;
using ir::KernelKind;
using ir::kNone;
using ir::NodeView;
using ir::OpDef;
using ir::ReferenceArgs;
using ir::refuse;
using ir::Sample;
using ir::SampleInput;
using ir::Type;
using ir::ValueId;
using ir::VjpContext;

/// Elements per tile of the elementwise kernels: four f32 tiles fit in a 32 KiB L1 cache.
inline constexpr int64_t kTile = 1024;
/// Minimum number of elements per thread; below it another thread does not pay off.
inline constexpr int64_t kGrain = 8192;

/// The type f32 [].
inline constexpr Type kScalar{.dtype = DType::f32, .shape = {}};
inline Type f32_type(const Shape& shape) { return {.dtype = DType::f32, .shape = shape}; }
/// True for the three storage dtypes that kernels compute from.
inline bool is_storage_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}
inline std::string to_string(const Type& type) {
  return fmt::format("{}{}", dtype_name(type.dtype), hearth::to_string(type.shape));
}
/// Refuses a node because `what` has the wrong type: "expected {what} to be {expected}, got {got}".
inline Inferred refuse_type(std::string_view what, std::string_view expected, const Type& got) {
  return refuse(fmt::format("expected {} to be {}, got {}", what, expected, to_string(got)));
}

/// Infers the type of the first input for an op with a single output.
Inferred same_as_first(const NodeView& node);
/// OpDef::repeat for ops that are recomputed by an identical node, including their other outputs.
ir::Node repeat_itself(const ir::Node& node);
/// Adds a single-output node of the op with that name in a gradient rule. Returns its output.
ValueId emit(const VjpContext& context, std::string_view name, std::vector<ValueId> inputs, Attrs attrs = {});
/// Returns the dtype of the gradient of a matmul's operand: f32 for a parameter, the dtype before the cast if
/// the operand is a cast, otherwise the operand's dtype.
DType gradient_dtype(const ir::Graph& graph, ValueId id);
/// OpDef::no_vjp_because for an op that is itself a gradient.
inline constexpr std::string_view kNoSecondDerivatives = "second derivatives are not supported";

/// Returns the extents of a shape.
inline std::vector<int64_t> axes_of(const Shape& shape) { return {shape.begin(), shape.end()}; }
/// Returns the dtype in an attribute; `fallback` if it is absent or unknown.
inline DType dtype_attr(const Attrs& attrs, std::string_view name, DType fallback) {
  return attrs.contains(name) ? dtype_from_name(attrs.text(name)).value_or(fallback) : fallback;
}
/// Returns the number of rows of `shape.back()` elements: the product of all axes but the last.
inline int64_t num_rows(const Shape& shape) {
  return shape.rank() == 0 || shape.back() == 0 ? 0 : shape.num_elements() / shape.back();
}

/// Returns where a kernel writes a range of a floating array: into the array itself if it is f32, otherwise
/// into `scratch`, which cpu::store_f32 then converts.
inline float* run_to_write(DType dtype, void* data, int64_t begin, float* scratch) {
  return dtype == DType::f32 ? static_cast<float*>(data) + begin : scratch;
}

/// Inputs for the samples of a record.
inline SampleInput filled(SampleInput::Fill fill, const Shape& shape, DType dtype = DType::f32) {
  return {.type = {.dtype = dtype, .shape = shape}, .fill = fill};
}
inline SampleInput normal(const Shape& shape, DType dtype = DType::f32) {
  return filled(SampleInput::Fill::normal, shape, dtype);
}
inline SampleInput positive(const Shape& shape) { return filled(SampleInput::Fill::positive, shape); }
inline SampleInput one() { return filled(SampleInput::Fill::one, {}); }
inline SampleInput absent() { return filled(SampleInput::Fill::absent, {}, DType::boolean); }
/// Integers in [0, bound).
inline SampleInput indices(const Shape& shape, int64_t bound, DType dtype) {
  return {.type = {.dtype = dtype, .shape = shape}, .fill = SampleInput::Fill::label, .bound = bound};
}
inline SampleInput labels(int64_t count, int64_t bound) { return indices({count}, bound, DType::i32); }
/// Labels in [-1, bound).
inline SampleInput labels_or_none(int64_t count, int64_t bound) {
  return {.type = {.dtype = DType::i32, .shape = {count}},
          .fill = SampleInput::Fill::label_or_none,
          .bound = bound};
}

/// Returns the bytes of all inputs and outputs.
double bytes_moved(const NodeView& node);
/// Cost of moving every byte once, with `flops` per element of output 0.
Cost cost_per_element(const NodeView& node, double flops);
/// Cost of moving every byte once, with `flops` per element of input 0.
Cost stream_cost(const NodeView& node, double flops);

}  // namespace hearth::ops
