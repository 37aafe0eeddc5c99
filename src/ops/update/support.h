#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "backend/cpu/convert.h"
#include "base/threads.h"
#include "ops/support.h"
#include "ops/update/adam_options.h"

namespace hearth::ops {

/// Indices of the inputs that all optimizer ops begin with: parameter, gradient, learning rate, gradient
/// factor; and of the first state input.
enum UpdateInput : size_t { kParam, kGrad, kRate, kFactor, kFirstState };

/// Value of OpDef::no_vjp_because for optimizer ops.
inline constexpr std::string_view kUpdateHasNoGradient = "weight updates run after the backward pass";

/// Returns an error message unless inputs `first` to `last` are f32 scalars; empty if valid.
std::string check_scalars(const NodeView& node, const OpDef& op, size_t first, size_t last);
/// Returns an error message unless input 0 is f32 and the given inputs have its shape (gradients may have a
/// 16-bit dtype); empty if valid.
std::string check_same_shape(const NodeView& node, const OpDef& op, std::initializer_list<size_t> inputs);
/// Infers the outputs of an optimizer op whose only state is a momentum of the parameter's type.
Inferred infer_with_momentum(const NodeView& node, const OpDef& op);

/// Maximum number of elements per run, so that their gradients and states fit in the L1 cache.
inline constexpr int64_t kRun = 1024;

/// Splits [0, count) into runs of up to kRun elements and calls body(first, number of elements) for each, in
/// parallel.
template <typename Body>
void for_runs(int64_t count, ThreadPool& threads, Body body) {
  threads.parallel_for(count, 4 * kRun, [&](Range range) {
    for (int64_t i = range.begin; i < range.end; i += kRun) body(i, std::min(kRun, range.end - i));
  });
}

/// Calls body(f32 gradient of the run, first, number of elements) for runs of the gradient input, in
/// parallel.
template <typename Body>
void for_gradient_runs(const Type& gradient, const KernelArgs& args, Body body) {
  for_runs(gradient.shape.num_elements(), *args.threads, [&](int64_t first, int64_t count) {
    float scratch[kRun];
    body(cpu::as_f32(gradient.dtype, args.in[kGrad], first, count, scratch), first, count);
  });
}

}  // namespace hearth::ops
