#include <cmath>

#include "backend/cpu/clones.h"
#include "base/e5m2.h"
#include "ops/update/rules.h"
#include "ops/update/support.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

HEARTH_CLONES void round_off(float scale, float* sent, float* error, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float whole = error[i];
    sent[i] = round_to_e5m2(whole * (1 / scale));
    error[i] = rounding_error(whole, sent[i] * scale);
  }
}
HEARTH_CLONES void multiply(float scale, const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * scale;
}

/// Returns an error message unless input `index` is f32 [1].
std::string check_squares(const NodeView& node, size_t index) {
  const Type& type = node.in_type(index);
  return type == f32_type({1}) ? "" : fmt::format("expected f32 [1] for squares, got {}", to_string(type));
}

Inferred infer(const NodeView& node) {
  if (auto error = check_same_shape(node, fp8_feedback, {1}); !error.empty()) return refuse(error);
  if (node.in_type(1).dtype != DType::f32) return refuse_type("the error", "f32", node.in_type(1));
  if (auto error = check_squares(node, 2); !error.empty()) return refuse(error);
  return {.out = {node.in_type(0), node.in_type(1)}, .error = ""};
}
Inferred infer_restore(const NodeView& node) {
  if (auto error = check_same_shape(node, fp8_restore, {}); !error.empty()) return refuse(error);
  if (auto error = check_squares(node, 1); !error.empty()) return refuse(error);
  return same_as_first(node);
}

Kernel cpu(const NodeView& node) {
  return {.run = [count = node.in_type(0).shape.num_elements()](const KernelArgs& args) {
    const float scale = e5m2_scale(*args.input<float>(2));
    for_runs(count, *args.threads, [&](int64_t i, int64_t num) {
      round_off(scale, args.output<float>(0) + i, args.output<float>(1) + i, num);
    });
  }};
}
Kernel cpu_restore(const NodeView& node) {
  return {.run = [count = node.in_type(0).shape.num_elements()](const KernelArgs& args) {
    const float scale = e5m2_scale(*args.input<float>(1));
    for_runs(count, *args.threads, [&](int64_t i, int64_t num) {
      multiply(scale, args.input<float>(0) + i, args.output<float>(0) + i, num);
    });
  }};
}

/// The scale of ReferenceArgs: the sum of squares is below 2^exponent.
double scale_of(double squares) {
  int exponent = 0;
  std::frexp(squares, &exponent);
  return squares > 0 ? std::exp2(std::ceil(exponent / 2.0) - 15) : 1;
}
void reference(const ReferenceArgs& args) {
  const double scale = scale_of(args.in[2][0]);
  for (size_t i = 0; i < args.out[0].size(); ++i) {
    const double whole = args.in[1][i];
    args.out[0][i] = f8_e5m2_to_f32(f32_to_f8_e5m2(static_cast<float>(whole / scale)));
    args.out[1][i] = whole - args.out[0][i] * scale;
  }
}
void reference_restore(const ReferenceArgs& args) {
  const double scale = scale_of(args.in[1][0]);
  for (size_t i = 0; i < args.out[0].size(); ++i) args.out[0][i] = args.in[0][i] * scale;
}

const SampleInput kSquares = positive({1});

}  // namespace

const OpDef fp8_feedback{
    .name = "fp8_feedback",
    .doc = "sent' = E5M2(error / scale of the sum of squares), error' = error - scale sent', in place",
    .inputs = {"sent", "error", "squares"},
    .infer = infer,
    .no_vjp_because = kUpdateHasNoGradient,
    .cpu = cpu,
    .gpu = true,
    .gpu_many = true,
    .reference = reference,
    .cost = [](const NodeView& node) { return stream_cost(node, 4); },
    .precision = ir::Precision::full,
    .writes = {0, 1},
    .samples =
        [] {
          return std::vector<Sample>{{.in = {normal({7, 11}), normal({7, 11}), kSquares}, .attrs = {}},
                                     {.in = {normal({5003}), normal({5003}), kSquares}, .attrs = {}}};
        }};

const OpDef fp8_restore{.name = "fp8_restore",
                        .doc = "x times the scale of the sum of squares",
                        .inputs = {"x", "squares"},
                        .infer = infer_restore,
                        .no_vjp_because = kUpdateHasNoGradient,
                        .cpu = cpu_restore,
                        .gpu = true,
                        .gpu_many = true,
                        .reference = reference_restore,
                        .cost = [](const NodeView& node) { return stream_cost(node, 1); },
                        .precision = ir::Precision::full,
                        .samples =
                            [] {
                              return std::vector<Sample>{{.in = {normal({5003}), kSquares}, .attrs = {}}};
                            }};

}  // namespace hearth::ops
