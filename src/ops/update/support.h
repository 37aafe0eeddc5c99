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

/// What the updates share: the inputs that theirs begin with, and those of the only or first state.
enum UpdateInput : size_t { kParam, kGrad, kRate, kFactor, kFirstState };

inline constexpr std::string_view kUpdateHasNoGradient = "updates run after the gradients are known";

/// Refuses anything but f32 scalars at inputs [first, last]; an empty error otherwise.
std::string check_scalars(const NodeView& node, const OpDef& op, size_t first, size_t last);
/// Refuses unless input 0 is f32 and the given inputs have its shape (gradient dtype may be narrower).
std::string check_same_shape(const NodeView& node, const OpDef& op, std::initializer_list<size_t> inputs);
/// Inference of an update whose only state is a momentum of the parameter's type.
Inferred infer_with_momentum(const NodeView& node, const OpDef& op);

/// Most elements that a kernel takes at a time; their gradient fits in L1 beside their state.
inline constexpr int64_t kRun = 1024;

/// Calls body(first, count) for the runs of [0, count), split over threads.
template <typename Body>
void for_runs(int64_t count, ThreadPool& threads, Body body) {
  threads.parallel_for(count, 4 * kRun, [&](Range range) {
    for (int64_t i = range.begin; i < range.end; i += kRun) body(i, std::min(kRun, range.end - i));
  });
}

/// Calls body(gradient, first, count) for the runs of the gradient as f32.
template <typename Body>
void for_gradient_runs(const Type& gradient, const KernelArgs& args, Body body) {
  for_runs(gradient.shape.num_elements(), *args.threads, [&](int64_t first, int64_t count) {
    float scratch[kRun];
    body(cpu::as_f32(gradient.dtype, args.in[kGrad], first, count, scratch), first, count);
  });
}

}  // namespace hearth::ops
