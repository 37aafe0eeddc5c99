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

/// Number of elements per tile of the elementwise kernels: four f32 tiles fit in a 32 KiB L1 cache.
inline constexpr int64_t kTile = 1024;
/// Minimum number of elements per thread; with fewer, another thread costs more time than it saves.
inline constexpr int64_t kGrain = 8192;

/// Type of an f32 scalar.
inline constexpr Type kScalar{.dtype = DType::f32, .shape = {}};
inline Type f32_type(const Shape& shape) { return {.dtype = DType::f32, .shape = shape}; }
/// True for f32, bf16 and f16, the floating dtypes that kernels support.
inline bool is_storage_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}
inline std::string to_string(const Type& type) {
  return fmt::format("{}{}", dtype_name(type.dtype), hearth::to_string(type.shape));
}
/// Returns the error of a node whose `what` has the wrong type: "expected {what} to be {expected}, got
/// {got}".
inline Inferred refuse_type(std::string_view what, std::string_view expected, const Type& got) {
  return refuse(fmt::format("expected {} to be {}, got {}", what, expected, to_string(got)));
}

/// Infers the type of the output of an op with one output: the type of the first input.
Inferred same_as_first(const NodeView& node);
/// Value of OpDef::repeat for ops that are recomputed by an identical node with all outputs.
ir::Node repeat_itself(const ir::Node& node);
/// Adds a node of the op `name`, which has one output, to the graph of a gradient rule. Returns the output.
ValueId emit(const VjpContext& context, std::string_view name, std::vector<ValueId> inputs, Attrs attrs = {});
/// Returns `value` in that dtype: itself, or the output of a cast node that this function adds.
ValueId as_dtype(const VjpContext& context, ValueId value, DType dtype);
/// Returns the dtype for the gradient of a matmul's operand: f32 for a parameter; the dtype before the cast,
/// stack_rows or row norm if one produced the operand; otherwise the operand's dtype.
DType gradient_dtype(const ir::Graph& graph, ValueId id);
/// Value of OpDef::no_vjp_because for ops that are gradients themselves.
inline constexpr std::string_view kNoSecondDerivatives = "second derivatives are not supported";

/// Returns the lengths of a shape's axes.
inline std::vector<int64_t> axes_of(const Shape& shape) { return {shape.begin(), shape.end()}; }
/// Returns the dtype in an attribute; `fallback` if it is absent or unknown.
inline DType dtype_attr(const Attrs& attrs, std::string_view name, DType fallback) {
  return attrs.contains(name) ? dtype_from_name(attrs.text(name)).value_or(fallback) : fallback;
}
/// Returns the number of rows of `shape.back()` elements: the product of all axes but the last.
inline int64_t num_rows(const Shape& shape) {
  return shape.rank() == 0 || shape.back() == 0 ? 0 : shape.num_elements() / shape.back();
}

/// Returns the f32 buffer to which a kernel writes the elements of an array from `begin` on: the array itself
/// if it is f32, otherwise `scratch`, whose contents cpu::store_f32 then converts into the array.
inline float* run_to_write(DType dtype, void* data, int64_t begin, float* scratch) {
  return dtype == DType::f32 ? static_cast<float*>(data) + begin : scratch;
}

/// Inputs for test samples of an op: types and the kind of values to draw.
inline SampleInput filled(SampleInput::Fill fill, const Shape& shape, DType dtype = DType::f32) {
  return {.type = {.dtype = dtype, .shape = shape}, .fill = fill};
}
inline SampleInput normal(const Shape& shape, DType dtype = DType::f32) {
  return filled(SampleInput::Fill::normal, shape, dtype);
}
inline SampleInput positive(const Shape& shape) { return filled(SampleInput::Fill::positive, shape); }
inline SampleInput one() { return filled(SampleInput::Fill::one, {}); }
inline SampleInput absent() { return filled(SampleInput::Fill::absent, {}, DType::boolean); }
/// Input of integers in [0, bound).
inline SampleInput indices(const Shape& shape, int64_t bound, DType dtype) {
  return {.type = {.dtype = dtype, .shape = shape}, .fill = SampleInput::Fill::label, .bound = bound};
}
inline SampleInput labels(int64_t count, int64_t bound) { return indices({count}, bound, DType::i32); }
/// Input of i32 labels in [-1, bound).
inline SampleInput labels_or_none(int64_t count, int64_t bound) {
  return {.type = {.dtype = DType::i32, .shape = {count}},
          .fill = SampleInput::Fill::label_or_none,
          .bound = bound};
}

/// Returns the total number of bytes of all inputs and outputs.
double bytes_moved(const NodeView& node);
/// Returns the cost of reading all inputs and writing all outputs once, with `flops` per element of output 0.
Cost cost_per_element(const NodeView& node, double flops);
/// Returns the cost of reading all inputs and writing all outputs once, with `flops` per element of input 0.
Cost stream_cost(const NodeView& node, double flops);

}  // namespace hearth::ops
