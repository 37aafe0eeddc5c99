#pragma once

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/threads.h"
#include "ir/op_def.h"

namespace hearth::ops {

using ir::Attrs;
using ir::Cost;
using ir::Inferred;
using ir::Kernel;
using ir::KernelArgs;
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

/// Inference of an op whose single output has the type of its first input.
Inferred same_as_first(const NodeView& node);
/// The op with that name; it must exist.
const OpDef& op(std::string_view name);
/// For OpDef::repeat: the node itself, whose other outputs are made again too.
ir::Node repeat_itself(const ir::Node& node);
/// Adds a node with one output in a gradient rule.
ValueId emit(const VjpContext& context, std::string_view name, std::vector<ValueId> inputs, Attrs attrs = {});

inline std::vector<int64_t> axes_of(const Shape& shape) { return {shape.begin(), shape.end()}; }
inline DType dtype_attr(const Attrs& attrs, std::string_view name, DType fallback) {
  return attrs.contains(name) ? dtype_from_name(attrs.text(name)).value_or(fallback) : fallback;
}
/// All axes but the last as one: rows of `shape.back()` elements.
inline int64_t num_rows(const Shape& shape) {
  return shape.rank() == 0 || shape.back() == 0 ? 0 : shape.num_elements() / shape.back();
}

inline SampleInput normal(std::initializer_list<int64_t> axes, DType dtype = DType::f32) {
  return {.type = {.dtype = dtype, .shape = Shape(axes)}};
}
inline SampleInput filled(SampleInput::Fill fill, std::initializer_list<int64_t> axes,
                          DType dtype = DType::f32) {
  return {.type = {.dtype = dtype, .shape = Shape(axes)}, .fill = fill};
}
inline SampleInput labels(int64_t count, int64_t bound) {
  return {.type = {.dtype = DType::i32, .shape = {count}}, .fill = SampleInput::Fill::label, .bound = bound};
}
inline SampleInput absent() {
  return {.type = {.dtype = DType::boolean, .shape = {}}, .fill = SampleInput::Fill::absent};
}

/// flops = `per_element` times the elements of output 0; every byte moved once.
Cost cost_per_element(const NodeView& node, double per_element);
/// Bytes of all inputs and outputs.
double bytes_moved(const NodeView& node);

}  // namespace hearth::ops
