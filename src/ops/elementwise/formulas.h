#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/formula.h"
#include "ir/op_def.h"
#include "ops/exponential.h"

/// Formulas of the elementwise ops, shared by CPU kernels, GPU kernels and the float64 reference.
namespace hearth::ops {

/// Each functor computes one element from (a, b, p): first input, second input, and the op's constant
/// (formula_parameter()).
struct Add {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T b, T) const {
    return a + b;
  }
};
struct Sub {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T b, T) const {
    return a - b;
  }
};
struct Mul {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T b, T) const {
    return a * b;
  }
};
struct Div {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T b, T) const {
    return a / b;
  }
};
struct Maximum {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T b, T) const {
    return a > b ? a : b;
  }
};
struct Minimum {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T b, T) const {
    return a < b ? a : b;
  }
};
struct Neg {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T, T) const {
    return -a;
  }
};
struct Abs {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T, T) const {
    return a < T(0) ? -a : a;
  }
};
struct Exp {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T, T) const {
    return exp_of(a);
  }
};
struct Log {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T, T) const {
    return std::log(a);
  }
};
struct Sqrt {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T, T) const {
    return std::sqrt(a);
  }
};
struct Rsqrt {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T, T) const {
    return T(1) / std::sqrt(a);
  }
};
struct Square {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T, T) const {
    return a * a;
  }
};
struct Reciprocal {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T, T) const {
    return T(1) / a;
  }
};
struct Relu {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T, T) const {
    return a < T(0) ? T(0) : a;
  }
};
struct Tanh {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T, T) const {
    return std::tanh(a);
  }
};
struct Sigmoid {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T, T) const {
    return sigmoid_of(a);
  }
};
struct Silu {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T, T) const {
    return a * sigmoid_of(a);
  }
};
struct Gelu {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T, T) const {
    return T(0.5) * a * (T(1) + std::erf(a * std::numbers::sqrt2_v<T> / T(2)));
  }
};
/// Computes gelu_tanh(x) = x (1 + tanh u) / 2 = x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3)
/// (arXiv 1606.08415).
struct GeluTanh {
  template <class T>
  static constexpr T kTwice = T(2) * std::numbers::sqrt2_v<T>* std::numbers::inv_sqrtpi_v<T>;
  template <class T>
  HEARTH_FORMULA T operator()(T a, T, T) const {
    return a * sigmoid_of(kTwice<T> * (a + T(0.044715) * a * a * a));
  }
};
struct Scale {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T, T p) const {
    return a * p;
  }
};
struct AddScalar {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T, T p) const {
    return a + p;
  }
};
struct Copy {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T, T) const {
    return a;
  }
};
struct Sign {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T, T) const {
    return a > T(0) ? T(1) : a < T(0) ? T(-1) : T(0);
  }
};
struct Greater {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T b, T) const {
    return a > b ? T(1) : T(0);
  }
};
// Gradients: a is the gradient of the output; b is the output (relu, tanh, sigmoid) or the input (other ops).
struct ReluGrad {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T b, T) const {
    return b > T(0) ? a : T(0);
  }
};
struct TanhGrad {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T b, T) const {
    return a * (T(1) - b * b);
  }
};
struct SigmoidGrad {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T b, T) const {
    return a * b * (T(1) - b);
  }
};
struct SiluGrad {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T b, T) const {
    const T s = sigmoid_of(b);
    return a * s * (T(1) + b * (T(1) - s));
  }
};
struct GeluGrad {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T b, T) const {
    const T cdf = T(0.5) * (T(1) + std::erf(b * std::numbers::sqrt2_v<T> / T(2)));
    const T pdf = exp_of(T(-0.5) * b * b) * std::numbers::inv_sqrtpi_v<T> / std::numbers::sqrt2_v<T>;
    return a * (cdf + b * pdf);
  }
};

struct GeluTanhGrad {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T b, T) const {
    constexpr T kTwice = GeluTanh::kTwice<T>;
    const T s = sigmoid_of(kTwice * (b + T(0.044715) * b * b * b));
    return a * s * (T(1) + b * (T(1) - s) * kTwice * (T(1) + T(0.134145) * b * b));
  }
};

struct Softplus {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T, T) const {
    return (a > T(0) ? a : T(0)) + log1p_of(exp_of(-std::fabs(a)));
  }
};
struct SoftplusGrad {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T b, T) const {
    return a * sigmoid_of(b);
  }
};
struct HardSigmoid {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T, T) const {
    const T line = (a + T(3)) / T(6);
    return line < T(0) ? T(0) : line > T(1) ? T(1) : line;
  }
};
struct HardSigmoidGrad {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T b, T) const {
    return b > T(-3) && b < T(3) ? a / T(6) : T(0);
  }
};
struct HardSwish {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T b, T p) const {
    return a * HardSigmoid()(a, b, p);
  }
};
struct HardSwishGrad {
  template <class T>
  HEARTH_FORMULA T operator()(T a, T b, T) const {
    return b <= T(-3) ? T(0) : b >= T(3) ? a : a * (b / T(3) + T(0.5));
  }
};

template <class... F>
struct FormulaList {
  static constexpr size_t kCount = sizeof...(F);
  /// Returns the index of a formula in the list.
  template <class Wanted>
  static constexpr size_t index() {
    constexpr bool same[] = {std::is_same_v<Wanted, F>...};
    size_t i = 0;
    while (!same[i]) ++i;
    return i;
  }
};
using Formulas =
    FormulaList<Add, Sub, Mul, Div, Maximum, Minimum, Neg, Abs, Exp, Log, Sqrt, Rsqrt, Square, Reciprocal,
                Relu, Tanh, Sigmoid, Silu, Gelu, Scale, AddScalar, Copy, Sign, Greater, ReluGrad, TanhGrad,
                SigmoidGrad, SiluGrad, GeluGrad, GeluTanh, GeluTanhGrad, Softplus, SoftplusGrad, HardSigmoid,
                HardSigmoidGrad, HardSwish, HardSwishGrad>;

/// Returns the op name of each formula, in the order of Formulas.
std::span<const std::string_view, Formulas::kCount> formula_names();
/// Returns the constant p of a node from its attributes; 0 if it has none.
double formula_parameter(const ir::Attrs& attrs);

}  // namespace hearth::ops
