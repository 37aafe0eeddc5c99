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

/// Elements per tile of the elementwise kernels: four f32 tiles stay in a 32 KiB L1 cache.
inline constexpr int64_t kTile = 1024;
/// Least number of elements worth a thread of its own.
inline constexpr int64_t kGrain = 8192;

inline constexpr Type kScalar{.dtype = DType::f32, .shape = {}};
inline Type f32_type(const Shape& shape) { return {.dtype = DType::f32, .shape = shape}; }
/// The three storage dtypes that kernels compute from.
inline bool is_storage_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}
inline std::string to_string(const Type& type) {
  return fmt::format("{}{}", dtype_name(type.dtype), hearth::to_string(type.shape));
}
inline Inferred refuse_type(std::string_view what, std::string_view expected, const Type& got) {
  return refuse(fmt::format("expected {} to be {}, got {}", what, expected, to_string(got)));
}

/// Inference of an op whose single output has the type of its first input.
Inferred same_as_first(const NodeView& node);
/// For OpDef::repeat: the node itself, whose other outputs are made again too.
ir::Node repeat_itself(const ir::Node& node);
/// Adds a node of the op with that name, which has one output, in a gradient rule.
ValueId emit(const VjpContext& context, std::string_view name, std::vector<ValueId> inputs, Attrs attrs = {});
/// What the gradient of a matmul's operand is made in: as the operand, or as what it was cast from; a
/// parameter is updated in f32.
DType gradient_dtype(const ir::Graph& graph, ValueId id);
/// OpDef::no_vjp_because of an op that is itself a gradient.
inline constexpr std::string_view kNoSecondDerivatives = "second derivatives are not taken";

inline std::vector<int64_t> axes_of(const Shape& shape) { return {shape.begin(), shape.end()}; }
inline DType dtype_attr(const Attrs& attrs, std::string_view name, DType fallback) {
  return attrs.contains(name) ? dtype_from_name(attrs.text(name)).value_or(fallback) : fallback;
}
/// All axes but the last as one: rows of `shape.back()` elements.
inline int64_t num_rows(const Shape& shape) {
  return shape.rank() == 0 || shape.back() == 0 ? 0 : shape.num_elements() / shape.back();
}

/// Where a kernel writes a run of a floating array: the array itself when it is f32, otherwise `scratch`,
/// which cpu::store_f32 then converts.
inline float* run_to_write(DType dtype, void* data, int64_t begin, float* scratch) {
  return dtype == DType::f32 ? static_cast<float*>(data) + begin : scratch;
}

/// Entries for a record's samples.
inline SampleInput filled(SampleInput::Fill fill, const Shape& shape, DType dtype = DType::f32) {
  return {.type = {.dtype = dtype, .shape = shape}, .fill = fill};
}
inline SampleInput normal(const Shape& shape, DType dtype = DType::f32) {
  return filled(SampleInput::Fill::normal, shape, dtype);
}
inline SampleInput positive(const Shape& shape) { return filled(SampleInput::Fill::positive, shape); }
inline SampleInput one() { return filled(SampleInput::Fill::one, {}); }
inline SampleInput absent() { return filled(SampleInput::Fill::absent, {}, DType::boolean); }
/// Whole numbers from 0 to below `bound`.
inline SampleInput indices(const Shape& shape, int64_t bound, DType dtype) {
  return {.type = {.dtype = dtype, .shape = shape}, .fill = SampleInput::Fill::label, .bound = bound};
}
inline SampleInput labels(int64_t count, int64_t bound) { return indices({count}, bound, DType::i32); }
/// Labels of which some are -1.
inline SampleInput labels_or_none(int64_t count, int64_t bound) {
  return {.type = {.dtype = DType::i32, .shape = {count}},
          .fill = SampleInput::Fill::label_or_none,
          .bound = bound};
}

/// Bytes of all inputs and outputs.
double bytes_moved(const NodeView& node);
/// Every byte moved once, and `flops` for each element of output 0.
Cost cost_per_element(const NodeView& node, double flops);
/// Every byte moved once, and `flops` for each element of input 0.
Cost stream_cost(const NodeView& node, double flops);

}  // namespace hearth::ops
