#include "ops/conv/conv.h"
#include "ops/norm/norm.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

struct Case {
  Shape x;
  int64_t kernel, out, stride, padding;
  DType dtype = DType::f32;
  int64_t dilation = 1, groups = 1;
  Shape w() const { return {kernel, kernel, x[3] / groups, out}; }
  Attrs attrs() const {
    Attrs result = {{"stride", stride}, {"padding", padding}};
    if (dilation > 1) result.set("dilation", dilation);
    if (groups > 1) result.set("groups", groups);
    return result;
  }
  Shape y() const { return out_shape(conv_shape(x, w(), attrs())); }
  /// Returns the tolerance of a sum of `terms` products. Rounding errors of normally distributed values grow
  /// with the square root of the number of terms.
  double tolerance(int64_t terms) const {
    return dtype == DType::f32 ? 1e-5 * std::sqrt(static_cast<double>(terms)) : 2e-2;
  }
};
std::vector<Case> cases() {
  return {{.x = {2, 7, 9, 3}, .kernel = 3, .out = 5, .stride = 1, .padding = 1},
          {.x = {2, 8, 8, 32}, .kernel = 3, .out = 48, .stride = 1, .padding = 1},
          {.x = {1, 9, 7, 16}, .kernel = 3, .out = 17, .stride = 2, .padding = 1},
          {.x = {2, 6, 6, 20}, .kernel = 1, .out = 33, .stride = 2, .padding = 0},
          {.x = {1, 15, 15, 3}, .kernel = 7, .out = 8, .stride = 2, .padding = 3},
          {.x = {2, 5, 5, 16}, .kernel = 1, .out = 16, .stride = 1, .padding = 0},
          {.x = {1, 6, 6, 16}, .kernel = 3, .out = 16, .stride = 1, .padding = 1, .dtype = DType::bf16},
          {.x = {2, 14, 11, 5}, .kernel = 2, .out = 70, .stride = 3, .padding = 1, .dtype = DType::f16},
          {.x = {2, 19, 8, 2}, .kernel = 3, .out = 3, .stride = 1, .padding = 1},
          {.x = {3, 9, 10, 24}, .kernel = 3, .out = 40, .stride = 2, .padding = 1, .dtype = DType::bf16},
          {.x = {2, 7, 6, 64}, .kernel = 3, .out = 96, .stride = 1, .padding = 1, .dtype = DType::bf16},
          {.x = {1, 9, 8, 32}, .kernel = 3, .out = 64, .stride = 2, .padding = 1, .dtype = DType::bf16},
          {.x = {1, 7, 8, 32}, .kernel = 1, .out = 32, .stride = 2, .padding = 0, .dtype = DType::bf16},
          {.x = {2, 9, 7, 5}, .kernel = 3, .out = 70, .stride = 1, .padding = 1, .dtype = DType::bf16},
          {.x = {2, 9, 7, 37}, .kernel = 3, .out = 5, .stride = 2, .padding = 1, .dtype = DType::bf16}};
}
std::vector<Case> dilated_cases() {
  return {{.x = {2, 9, 8, 5}, .kernel = 3, .out = 7, .stride = 1, .padding = 2, .dilation = 2},
          {.x = {2, 14, 15, 16}, .kernel = 3, .out = 20, .stride = 1, .padding = 2, .dilation = 2},
          {.x = {1, 11, 13, 24},
           .kernel = 3,
           .out = 16,
           .stride = 1,
           .padding = 3,
           .dtype = DType::bf16,
           .dilation = 3},
          {.x = {2, 13, 14, 20}, .kernel = 3, .out = 18, .stride = 1, .padding = 6, .dilation = 6},
          {.x = {1, 11, 12, 4}, .kernel = 3, .out = 6, .stride = 2, .padding = 2, .dilation = 2},
          {.x = {1, 13, 10, 3}, .kernel = 2, .out = 5, .stride = 2, .padding = 1, .dilation = 3},
          {.x = {1, 12, 9, 6}, .kernel = 3, .out = 4, .stride = 4, .padding = 3, .dilation = 6},
          {.x = {1, 9, 9, 16},
           .kernel = 3,
           .out = 24,
           .stride = 1,
           .padding = 2,
           .dtype = DType::bf16,
           .dilation = 2},
          {.x = {1, 9, 7, 32},
           .kernel = 3,
           .out = 32,
           .stride = 2,
           .padding = 6,
           .dtype = DType::bf16,
           .dilation = 6},
          {.x = {2, 8, 8, 6},
           .kernel = 3,
           .out = 5,
           .stride = 1,
           .padding = 3,
           .dtype = DType::f16,
           .dilation = 3}};
}
std::vector<Case> grouped_cases() {
  return {{.x = {2, 9, 13, 19}, .kernel = 3, .out = 19, .stride = 1, .padding = 1, .groups = 19},
          {.x = {1, 11, 10, 40}, .kernel = 5, .out = 40, .stride = 2, .padding = 2, .groups = 40},
          {.x = {1, 6, 22, 100}, .kernel = 3, .out = 100, .stride = 1, .padding = 1, .groups = 100},
          {.x = {1, 7, 9, 6}, .kernel = 3, .out = 12, .stride = 1, .padding = 1, .groups = 6},
          {.x = {1, 9, 15, 8}, .kernel = 3, .out = 8, .stride = 2, .padding = 6, .dilation = 6, .groups = 8},
          {.x = {1, 9, 8, 8}, .kernel = 2, .out = 8, .stride = 3, .padding = 0, .dilation = 2, .groups = 8},
          {.x = {2, 7, 9, 72},
           .kernel = 3,
           .out = 72,
           .stride = 1,
           .padding = 1,
           .dtype = DType::bf16,
           .groups = 72},
          {.x = {1, 10, 9, 20},
           .kernel = 3,
           .out = 40,
           .stride = 2,
           .padding = 1,
           .dtype = DType::bf16,
           .groups = 20},
          {.x = {1, 9, 8, 24},
           .kernel = 5,
           .out = 24,
           .stride = 1,
           .padding = 2,
           .dtype = DType::f16,
           .groups = 24},
          {.x = {2, 7, 6, 12}, .kernel = 3, .out = 20, .stride = 1, .padding = 1, .groups = 4},
          {.x = {2, 5, 6, 16}, .kernel = 1, .out = 8, .stride = 1, .padding = 0, .groups = 4},
          {.x = {1, 9, 8, 12}, .kernel = 3, .out = 80, .stride = 2, .padding = 2, .dilation = 2, .groups = 2},
          {.x = {1, 8, 7, 16},
           .kernel = 3,
           .out = 24,
           .stride = 2,
           .padding = 1,
           .dtype = DType::bf16,
           .groups = 4}};
}
/// Returns cases with enough pixels (many_weights: enough weights) for the largest GPU blocks. Padding or a
/// stride prevents the lowering to a plain matmul, except in the last of many_weights.
std::vector<Case> many_pixels(int64_t in, int64_t out) {
  return {{.x = {1, 111, 111, 24}, .kernel = 1, .out = 24, .stride = 1, .padding = 1, .dtype = DType::bf16},
          {.x = {1, 222, 222, 24}, .kernel = 2, .out = 24, .stride = 2, .padding = 0, .dtype = DType::bf16},
          {.x = {1, 112, 111, 32}, .kernel = 1, .out = 32, .stride = 1, .padding = 1, .dtype = DType::bf16},
          {.x = {1, 157, 157, in}, .kernel = 1, .out = out, .stride = 1, .padding = 1, .dtype = DType::bf16}};
}
std::vector<Case> many_weights() {
  return {{.x = {2, 5, 5, 136}, .kernel = 1, .out = 144, .stride = 1, .padding = 1, .dtype = DType::bf16},
          {.x = {2, 5, 5, 136}, .kernel = 1, .out = 144, .stride = 1, .padding = 0, .dtype = DType::bf16}};
}
std::vector<Case> joined(std::vector<Case> all, const std::vector<Case>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
std::vector<Case> all_cases() { return joined(joined(cases(), dilated_cases()), grouped_cases()); }

}  // namespace

std::vector<Sample> conv_samples() {
  std::vector<Sample> result;
  for (const Case& c : all_cases()) {
    const Sample plain{.in = {normal(c.x, c.dtype), normal(c.w(), c.dtype)},
                       .attrs = c.attrs(),
                       .tolerance = c.tolerance(num_rows(c.w()))};
    Sample full = plain;
    full.in.push_back(result.size() % 4 == 0 ? absent() : normal(Shape{c.out}));
    full.in.push_back(normal(c.y(), c.dtype));
    full.attrs.set("activation", std::string("relu"));
    result.push_back(plain);
    result.push_back(full);
  }
  for (const Case& c : many_pixels(32, 96)) {
    result.push_back(
        {.in = {normal(c.x, c.dtype), normal(c.w(), c.dtype), normal(Shape{c.out}), normal(c.y(), c.dtype)},
         .attrs = c.attrs(),
         .tolerance = c.tolerance(c.x[3])});
    result.back().attrs.set("activation", std::string("relu"));
  }
  return result;
}
std::vector<Sample> conv_grad_input_samples() {
  std::vector<Sample> result;
  bool residual = true;
  for (const Case& c : joined(all_cases(), many_pixels(96, 32))) {
    result.push_back({.in = {normal(c.y(), c.dtype), normal(c.w(), c.dtype)},
                      .attrs = c.attrs(),
                      .tolerance = c.tolerance(c.kernel * c.kernel * c.out / c.groups)});
    result.back().attrs.set("in_h", c.x[1]);
    result.back().attrs.set("in_w", c.x[2]);
    // Every other sample has a residual.
    residual = !residual;
    if (residual) result.back().in.push_back(normal(Shape(c.x), c.dtype));
    const Type dx{.dtype = c.dtype, .shape = Shape(c.x)};
    if (c.groups != 1 || !may_have_mask(dx)) continue;
    Sample masked = result.back();
    masked.in.resize(kGradInputMask, absent());
    masked.in.push_back(indices(mask_type(dx).shape, 256, DType::u8));
    result.push_back(masked);
  }
  return result;
}
std::vector<Sample> conv_grad_weight_samples() {
  std::vector<Sample> result;
  for (const Case& c : joined(all_cases(), many_weights())) {
    result.push_back({.in = {normal(c.x, c.dtype), normal(c.y(), c.dtype)},
                      .attrs = c.attrs(),
                      .tolerance = c.tolerance(num_rows(c.y()))});
    result.back().attrs.set("kernel_h", c.kernel);
    result.back().attrs.set("kernel_w", c.kernel);
  }
  return result;
}

}  // namespace hearth::ops
