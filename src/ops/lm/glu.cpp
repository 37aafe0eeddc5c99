#include <cmath>
#include <numbers>

#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "backend/cpu/simd/simd.h"
#include "ops/lm/lm.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

enum class Gate : uint8_t { silu, gelu_tanh, gelu, unknown };
Gate gate_of(const Attrs& attrs) {
  const std::string name = attrs.text_or("activation", "silu");
  return name == "silu"        ? Gate::silu
         : name == "gelu_tanh" ? Gate::gelu_tanh
         : name == "gelu"      ? Gate::gelu
                               : Gate::unknown;
}

/// gelu_tanh(x) = x (1 + tanh u) / 2 = x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3) (arXiv
/// 1606.08415). twice_u() returns 2 u, twice_slope() its derivative.
template <typename T>
constexpr T kTwice = T(2) * std::numbers::sqrt2_v<T>* std::numbers::inv_sqrtpi_v<T>;
template <typename T>
inline T twice_u(T x) {
  return kTwice<T> * (x + T(0.044715) * x * x * x);
}
template <typename T>
inline T twice_slope(T x) {
  return kTwice<T> * (T(1) + T(0.134145) * x * x);
}

/// Value and derivative of an activation of the form x s(x) (silu, gelu_tanh, gelu).
template <typename T>
struct Gated {
  T value;
  T slope;
};
/// Returns x s(x) and its derivative for s = sigmoid(z(x)), given e = exp(-z(x)) and slope_of_z = z'(x).
template <typename T>
inline Gated<T> sigmoid_gate(T x, T e, T slope_of_z) {
  const T s = T(1) / (T(1) + e);
  return {x * s, s * (T(1) + x * (T(1) - s) * slope_of_z)};
}
template <typename T>
Gated<T> erf_gate(T x) {
  const T cdf = T(0.5) * (T(1) + std::erf(x * std::numbers::sqrt2_v<T> / T(2)));
  const T pdf = std::exp(T(-0.5) * x * x) * std::numbers::inv_sqrtpi_v<T> / std::numbers::sqrt2_v<T>;
  return {x * cdf, cdf + x * pdf};
}

struct Run {
  const float* gate;
  const float* up;
  const float* dy;
  float* first;   ///< y; in the backward pass the gradient of `gate`
  float* second;  ///< null; in the backward pass the gradient of `up`
};

HEARTH_CLONES void finish_silu(const Run& run, const float* e, int64_t count) {
  for (int64_t i = 0; i < count; ++i) run.first[i] = sigmoid_gate(run.gate[i], e[i], 1.0F).value * run.up[i];
}
HEARTH_CLONES void finish_silu_grad(const Run& run, const float* e, int64_t count) {
  float *dgate = run.first, *dup = run.second;
  for (int64_t i = 0; i < count; ++i) {
    const Gated<float> gated = sigmoid_gate(run.gate[i], e[i], 1.0F);
    const float dy = run.dy[i], up = run.up[i];
    dgate[i] = dy * up * gated.slope;
    dup[i] = dy * gated.value;
  }
}
HEARTH_CLONES void argument(const float* x, float* z, int64_t count) {
  for (int64_t i = 0; i < count; ++i) z[i] = twice_u(x[i]);
}
HEARTH_CLONES void finish_tanh_grad(const Run& run, const float* e, int64_t count) {
  float *dgate = run.first, *dup = run.second;
  for (int64_t i = 0; i < count; ++i) {
    const float x = run.gate[i], dy = run.dy[i], up = run.up[i];
    const Gated<float> gated = sigmoid_gate(x, e[i], twice_slope(x));
    dgate[i] = dy * up * gated.slope;
    dup[i] = dy * gated.value;
  }
}
void compute_erf(const Run& run, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const Gated<float> gated = erf_gate(run.gate[i]);
    const float up = run.up[i];
    if (run.second == nullptr) {
      run.first[i] = gated.value * up;
    } else {
      const float dy = run.dy[i];
      run.first[i] = dy * up * gated.slope;
      run.second[i] = dy * gated.value;
    }
  }
}

void run_tile(Gate gate, const Run& run, float* e, int64_t count) {
  if (gate == Gate::gelu) return compute_erf(run, count);
  const float* z = run.gate;
  if (gate == Gate::gelu_tanh) {
    argument(run.gate, e, count);
    z = e;
  }
  cpu::simd().exp_sum(z, -1, 0, e, count);
  if (run.second == nullptr) return finish_silu(run, e, count);
  gate == Gate::silu ? finish_silu_grad(run, e, count) : finish_tanh_grad(run, e, count);
}

Kernel kernel(const NodeView& node) {
  const DType dtype = node.in_type(0).dtype;
  const int64_t count = node.in_type(0).shape.num_elements();
  const bool grad = node.in.size() == 3;
  const auto run = [=, gate = gate_of(node.attrs)](const KernelArgs& args) {
    args.threads->parallel_for(count, kGrain, [&](Range range) {
      alignas(64) float scratch[6][kTile];
      for (int64_t i = range.begin; i < range.end; i += kTile) {
        const int64_t n = std::min(kTile, range.end - i);
        const Run tile{.gate = cpu::as_f32(dtype, args.in[0], i, n, scratch[0]),
                       .up = cpu::as_f32(dtype, args.in[1], i, n, scratch[1]),
                       .dy = grad ? cpu::as_f32(dtype, args.in[2], i, n, scratch[2]) : nullptr,
                       .first = run_to_write(dtype, args.out[0], i, scratch[3]),
                       .second = grad ? run_to_write(dtype, args.out[1], i, scratch[4]) : nullptr};
        run_tile(gate, tile, scratch[5], n);
        cpu::store_f32(dtype, tile.first, args.out[0], i, n);
        if (grad) cpu::store_f32(dtype, tile.second, args.out[1], i, n);
      }
    });
  };
  return {.run = run};
}

Inferred infer(const NodeView& node) {
  const Type& gate = node.in_type(0);
  if (!is_storage_float(gate.dtype)) return refuse_type("the gate", "floating", gate);
  for (const Type& type : node.in) {
    if (type != gate) return refuse_type("every input", to_string(gate), type);
  }
  if (gate_of(node.attrs) == Gate::unknown)
    return refuse(
        fmt::format("expected activation silu, gelu_tanh or gelu, got {}", node.attrs.text("activation")));
  return {.out = std::vector<Type>(node.in.size() - 1, gate), .error = ""};
}

Gated<double> gated(Gate gate, double x) {
  if (gate == Gate::gelu) return erf_gate(x);
  if (gate == Gate::silu) return sigmoid_gate(x, std::exp(-x), 1.0);
  return sigmoid_gate(x, std::exp(-twice_u(x)), twice_slope(x));
}
void reference(const ReferenceArgs& args) {
  for (size_t i = 0; i < args.in[0].size(); ++i)
    args.out[0][i] = gated(gate_of(args.node.attrs), args.in[0][i]).value * args.in[1][i];
}
void grad_reference(const ReferenceArgs& args) {
  for (size_t i = 0; i < args.in[0].size(); ++i) {
    const Gated<double> at = gated(gate_of(args.node.attrs), args.in[0][i]);
    args.out[0][i] = args.in[2][i] * args.in[1][i] * at.slope;
    args.out[1][i] = args.in[2][i] * at.value;
  }
}

std::vector<ValueId> vjp(const VjpContext& context) {
  if (context.grad_out[0] == kNone) return {kNone, kNone};
  const ir::Node& node = context.node;
  return context.graph.add(glu_grad, {node.inputs[0], node.inputs[1], context.grad_out[0]}, node.attrs,
                           node.name);
}

std::vector<Sample> samples_of(size_t inputs) {
  std::vector<Sample> result;
  for (const char* activation : {"silu", "gelu_tanh", "gelu"}) {
    for (const auto& [rows, dtype] : {std::pair{3, DType::f32}, {41, DType::f32}, {5, DType::bf16}}) {
      result.push_back({.in = std::vector(inputs, normal({rows, 211}, dtype)),
                        .attrs = {{"activation", std::string(activation)}}});
    }
  }
  return result;
}

}  // namespace

const OpDef glu{.name = "glu",
                .doc = "glu(gate, up): activation(gate) * up, activation silu, gelu_tanh or gelu",
                .inputs = {"gate", "up"},
                .infer = infer,
                .vjp = vjp,
                .cpu = kernel,
                .gpu = true,
                .reference = reference,
                .cost = [](const NodeView& node) { return stream_cost(node, 5); },
                .samples = [] { return samples_of(2); }};

const OpDef glu_grad{.name = "glu_grad",
                     .doc = "glu_grad(gate, up, dy): dgate, dup",
                     .inputs = {"gate", "up", "dy"},
                     .infer = infer,
                     .no_vjp_because = kNoSecondDerivatives,
                     .cpu = kernel,
                     .gpu = true,
                     .reference = grad_reference,
                     .cost = [](const NodeView& node) { return stream_cost(node, 12); },
                     .samples = [] { return samples_of(3); }};

}  // namespace hearth::ops
