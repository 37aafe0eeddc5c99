#include "ops/matmul/matmul.h"

#include "ops/matmul/matmul_kernel.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "backend/cpu/gemm.h"
#include "backend/cpu/rows.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

/// Returns the shape of the node's matmul: c is [m, n], the inner dimension is k.
cpu::GemmSpec spec_of(const NodeView& node) {
  const Type& a = node.in_type(MatmulIn::a);
  const Type& b = node.in_type(MatmulIn::b);
  const bool transpose_a = node.attrs.integer_or("transpose_a", 0) != 0;
  const bool transpose_b = node.attrs.integer_or("transpose_b", 0) != 0;
  const bool relu = node.attrs.text_or("activation", "none") == "relu";
  return {.m = a.shape[transpose_a ? 1 : 0],
          .n = b.shape[transpose_b ? 0 : 1],
          .k = a.shape[transpose_a ? 0 : 1],
          .transpose_a = transpose_a,
          .transpose_b = transpose_b,
          .a = a.dtype,
          .b = b.dtype,
          .c = dtype_attr(node.attrs, "out_dtype", a.dtype),
          .bias = node.has_input(MatmulIn::bias),
          .residual = node.has_input(MatmulIn::residual),
          .activation = relu ? cpu::GemmSpec::Activation::relu : cpu::GemmSpec::Activation::none,
          .num_threads = node.num_threads};
}

Inferred infer(const NodeView& node) {
  const Type& a = node.in_type(MatmulIn::a);
  const Type& b = node.in_type(MatmulIn::b);
  if (a.shape.rank() != 2 || !is_storage_float(a.dtype)) return refuse_type("a", "floating [M, K]", a);
  if (b.shape.rank() != 2 || b.dtype != a.dtype)
    return refuse_type("b", fmt::format("{} of rank 2", dtype_name(a.dtype)), b);
  const cpu::GemmSpec spec = spec_of(node);
  if (b.shape[spec.transpose_b ? 1 : 0] != spec.k)
    return refuse(fmt::format("expected equal inner axes, got {} and {}", to_string(a), to_string(b)));
  const Type out{.dtype = spec.c, .shape = {spec.m, spec.n}};
  if (spec.bias && node.in_type(MatmulIn::bias) != f32_type({spec.n}))
    return refuse_type("the bias", fmt::format("f32[{}]", spec.n), node.in_type(MatmulIn::bias));
  if (spec.residual && node.in_type(MatmulIn::residual) != out)
    return refuse_type("the residual", to_string(out), node.in_type(MatmulIn::residual));
  return {.out = {out}, .error = ""};
}

Kernel kernel(const NodeView& node) {
  const auto gemm = std::make_shared<const cpu::Gemm>(spec_of(node));
  const bool bias = node.has_input(MatmulIn::bias), residual = node.has_input(MatmulIn::residual);
  const auto run = [=](const KernelArgs& args) {
    gemm->run(args.in[MatmulIn::a], args.in[MatmulIn::b], bias ? args.input<float>(MatmulIn::bias) : nullptr,
              residual ? args.in[MatmulIn::residual] : nullptr, args.out[0], args.workspace, *args.threads);
  };
  return {.run = run, .workspace_bytes = gemm->workspace_bytes()};
}

Inferred infer_accumulate(const NodeView& node) {
  const ir::StandaloneNode product = accumulated_matmul(node, false);
  Inferred inferred = infer(product.view());
  if (inferred.error.empty() && inferred.out[0] != node.in_type(0))
    return refuse_type("the sum", to_string(inferred.out[0]), node.in_type(0));
  return inferred;
}

/// Computes the matmul to the workspace, then adds it to the sum.
Kernel accumulate_kernel(const NodeView& node) {
  const ir::StandaloneNode product = accumulated_matmul(node, false);
  NodeView view = product.view();
  view.num_threads = node.num_threads;
  const Kernel multiply = kernel(view);
  const int64_t count = node.out_type(0).shape.num_elements();
  const int64_t product_bytes = cpu::round_up(cpu::float_bytes(count), 64);
  const auto run = [=](const KernelArgs& args) {
    void* const out[] = {args.workspace};
    KernelArgs of_product = args;
    of_product.in = args.in.subspan(1);
    of_product.out = out;
    of_product.workspace = args.workspace + product_bytes;
    multiply.run(of_product);
    args.threads->parallel_for(count, kGrain, [&](Range range) {
      cpu::add_row(reinterpret_cast<const float*>(args.workspace) + range.begin,
                   args.output<float>(0) + range.begin, range.size());
    });
  };
  return {.run = run, .workspace_bytes = product_bytes + multiply.workspace_bytes};
}

void reference(const ReferenceArgs& args) {
  const cpu::GemmSpec spec = spec_of(args.node);
  const auto at = [](int64_t row, int64_t column, int64_t rows, int64_t columns, bool transposed) {
    return static_cast<size_t>(transposed ? column * rows + row : row * columns + column);
  };
  for (int64_t i = 0; i < spec.m; ++i) {
    for (int64_t j = 0; j < spec.n; ++j) {
      const auto out = static_cast<size_t>(i * spec.n + j);
      double sum = spec.bias ? args.in[MatmulIn::bias][static_cast<size_t>(j)] : 0;
      if (spec.residual) sum += args.in[MatmulIn::residual][out];
      for (int64_t k = 0; k < spec.k; ++k) {
        sum += args.in[MatmulIn::a][at(i, k, spec.m, spec.k, spec.transpose_a)] *
               args.in[MatmulIn::b][at(k, j, spec.k, spec.n, spec.transpose_b)];
      }
      args.out[0][out] = spec.activation == cpu::GemmSpec::Activation::relu ? std::max(sum, 0.0) : sum;
    }
  }
}

void accumulate_reference(const ReferenceArgs& args) {
  const ir::StandaloneNode product = accumulated_matmul(args.node, false);
  reference({.node = product.view(), .in = args.in.subspan(1), .out = args.out});
  for (size_t i = 0; i < args.out[0].size(); ++i) args.out[0][i] += args.in[0][i];
}

/// Adds a node that computes op(x) op(y) or, if `flip`, the transpose of that product, as op(y)^T op(x)^T.
ValueId emit_matmul(const VjpContext& context, ValueId x, bool transpose_x, ValueId y, bool transpose_y,
                    bool flip, DType dtype, const std::string& operands = {}) {
  Attrs attrs = {{"transpose_a", int64_t{flip ? !transpose_y : transpose_x}},
                 {"transpose_b", int64_t{flip ? !transpose_x : transpose_y}},
                 {"out_dtype", std::string(dtype_name(dtype))}};
  if (!operands.empty()) attrs.set(kOperandPrecision, operands);
  return emit(context, "matmul", flip ? std::vector{y, x} : std::vector{x, y}, attrs);
}

std::vector<ValueId> vjp(const VjpContext& context) {
  const ir::Node node = context.node;
  std::vector<ValueId> grads(node.inputs.size(), kNone);
  ValueId dy = context.grad_out[0];
  if (dy == kNone) return grads;
  if (node.attrs.text_or("activation", "none") == "relu")
    dy = emit(context, "relu_grad", {dy, node.outputs[0]});
  if (node.inputs.size() > MatmulIn::residual)
    grads[MatmulIn::residual] = node.inputs[MatmulIn::residual] == kNone ? kNone : dy;
  if (node.inputs.size() > MatmulIn::bias && node.inputs[MatmulIn::bias] != kNone)
    grads[MatmulIn::bias] = emit(context, "sum_leading", {dy});
  dy = as_dtype(context, dy, context.graph.type(node.inputs[MatmulIn::a]).dtype);
  const bool transpose_a = node.attrs.integer_or("transpose_a", 0) != 0;
  const bool transpose_b = node.attrs.integer_or("transpose_b", 0) != 0;
  const DType dtype_a = gradient_dtype(context.graph, node.inputs[MatmulIn::a]);
  const DType dtype_b = gradient_dtype(context.graph, node.inputs[MatmulIn::b]);
  // With A = op(a) and B = op(b), the gradients are dA = dy B^T and dB = A^T dy.
  grads[MatmulIn::a] = emit_matmul(context, dy, false, node.inputs[MatmulIn::b], !transpose_b, transpose_a,
                                   dtype_a, node.attrs.text_or(kOperandPrecision, ""));
  grads[MatmulIn::b] =
      emit_matmul(context, node.inputs[MatmulIn::a], !transpose_a, dy, false, transpose_b, dtype_b);
  return grads;
}

Cost cost(const NodeView& node) {
  const cpu::GemmSpec spec = spec_of(node);
  return product_cost(static_cast<double>(spec.m), static_cast<double>(spec.n), static_cast<double>(spec.k),
                      bytes_moved(node), matmul_kind(spec.transpose_a, spec.transpose_b));
}

struct Case {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false, bias = false, residual = false, relu = false;
  DType dtype = DType::f32, out = dtype;
};
Sample sample(const Case& c) {
  const Shape a = c.transpose_a ? Shape{c.k, c.m} : Shape{c.m, c.k};
  const Shape b = c.transpose_b ? Shape{c.n, c.k} : Shape{c.k, c.n};
  Sample result{.in = {normal(a, c.dtype), normal(b, c.dtype)},
                .attrs = {{"transpose_a", int64_t{c.transpose_a}},
                          {"transpose_b", int64_t{c.transpose_b}},
                          {"activation", std::string(c.relu ? "relu" : "none")},
                          {"out_dtype", std::string(dtype_name(c.out))}},
                .tolerance = c.out == DType::f32 ? 1e-5 : 1e-2};
  if (c.bias || c.residual) result.in.push_back(c.bias ? normal(Shape{c.n}) : absent());
  if (c.residual) result.in.push_back(normal(Shape{c.m, c.n}, c.out));
  return result;
}
std::vector<Sample> samples() {
  return {
      sample({.m = 5, .n = 7, .k = 3}),
      sample({.m = 65, .n = 33, .k = 129, .transpose_b = true, .bias = true}),
      sample({.m = 17, .n = 19, .k = 40, .transpose_a = true, .relu = true}),
      sample({.m = 9, .n = 130, .k = 31, .transpose_a = true, .transpose_b = true, .residual = true}),
      sample({.m = 1, .n = 10, .k = 300, .transpose_b = true, .bias = true, .residual = true, .relu = true}),
      sample({.m = 12, .n = 21, .k = 35, .transpose_b = true, .bias = true, .dtype = DType::bf16}),
      sample({.m = 72, .n = 66, .k = 34, .residual = true, .dtype = DType::bf16}),
      sample({.m = 24, .n = 40, .k = 530, .transpose_a = true, .transpose_b = true, .dtype = DType::bf16}),
      sample({.m = 9, .n = 11, .k = 530}),
      sample({.m = 12, .n = 21, .k = 35, .transpose_a = true, .dtype = DType::f16}),
      // Full and partial blocks of every variant, with bias, residual, ReLU and both output dtypes in the
      // epilogue.
      sample({.m = 136,
              .n = 144,
              .k = 72,
              .transpose_b = true,
              .bias = true,
              .residual = true,
              .relu = true,
              .dtype = DType::bf16}),
      sample({.m = 131,
              .n = 149,
              .k = 75,
              .transpose_a = true,
              .bias = true,
              .residual = true,
              .relu = true,
              .dtype = DType::bf16}),
      sample({.m = 136, .n = 136, .k = 520, .dtype = DType::bf16}),
      sample({.m = 136,
              .n = 136,
              .k = 40,
              .transpose_a = true,
              .transpose_b = true,
              .bias = true,
              .residual = true,
              .dtype = DType::bf16,
              .out = DType::f32}),
      sample({.m = 131,
              .n = 149,
              .k = 520,
              .transpose_b = true,
              .bias = true,
              .dtype = DType::bf16,
              .out = DType::f32}),
      sample({.m = 131, .n = 149, .k = 520, .transpose_b = true, .dtype = DType::bf16}),
      sample({.m = 136, .n = 136, .k = 520, .dtype = DType::bf16, .out = DType::f32}),
      sample({.m = 131,
              .n = 149,
              .k = 75,
              .transpose_a = true,
              .bias = true,
              .residual = true,
              .relu = true,
              .dtype = DType::bf16,
              .out = DType::f32}),
      sample({.m = 65, .n = 70, .k = 33, .bias = true, .out = DType::bf16}),
      sample({.m = 65, .n = 70, .k = 33, .bias = true, .out = DType::f16})};
}

std::vector<Sample> accumulate_samples() {
  std::vector<Sample> result;
  for (const Case& c :
       {Case{.m = 5, .n = 7, .k = 3}, Case{.m = 65, .n = 33, .k = 129, .transpose_a = true},
        Case{.m = 72, .n = 66, .k = 34, .transpose_a = true, .dtype = DType::bf16, .out = DType::f32},
        Case{.m = 131, .n = 149, .k = 520, .transpose_b = true, .dtype = DType::bf16, .out = DType::f32}}) {
    Sample made = sample(c);
    made.in.insert(made.in.begin(), normal(Shape{c.m, c.n}));
    result.push_back(std::move(made));
  }
  return result;
}

Cost accumulate_cost(const NodeView& node) {
  const ir::StandaloneNode product = accumulated_matmul(node, true);
  return cost(product.view());
}

}  // namespace

ir::StandaloneNode accumulated_matmul(const NodeView& node, bool residual) {
  ir::StandaloneNode product{
      .attrs = node.attrs, .in = {node.in.begin() + 1, node.in.end()}, .out = {node.in_type(0)}};
  product.attrs.set("out_dtype", std::string(dtype_name(DType::f32)));
  if (residual) add_residual(product, node.in_type(0));
  return product;
}

void add_residual(ir::StandaloneNode& matmul, const ir::Type& type) {
  matmul.in.resize(MatmulIn::residual, {.dtype = DType::boolean, .shape = {}});
  matmul.in.push_back(type);
}

MatmulShape matmul_shape_of(const ir::NodeView& node) {
  const bool transpose_a = node.attrs.integer_or("transpose_a", 0) != 0;
  const bool transpose_b = node.attrs.integer_or("transpose_b", 0) != 0;
  const Shape& a = node.in_type(MatmulIn::a).shape;
  const Shape& b = node.in_type(MatmulIn::b).shape;
  const int64_t n = b[transpose_b ? 0 : 1];
  return {.m = static_cast<int>(a[transpose_a ? 1 : 0]),
          .n = static_cast<int>(n),
          .k = static_cast<int>(a[transpose_a ? 0 : 1]),
          .a_row = transpose_a ? 1 : a[1],
          .a_term = transpose_a ? a[1] : 1,
          .b_term = transpose_b ? 1 : b[1],
          .b_column = transpose_b ? b[1] : 1,
          .c_row = n,
          .relu = node.attrs.text_or("activation", "none") == "relu"};
}

std::string_view name_of(MatmulVariant way) {
  constexpr std::string_view kNames[] = {"plain", "large", "small", "tall", "wide"};
  return kNames[static_cast<size_t>(way)];
}
std::span<const MatmulVariant> variants_of(DType in) {
  static constexpr MatmulVariant kPlain[] = {MatmulVariant::plain};
  static constexpr MatmulVariant kTiles[] = {MatmulVariant::large, MatmulVariant::small, MatmulVariant::tall,
                                             MatmulVariant::wide};
  return in == DType::f32 ? std::span<const MatmulVariant>(kPlain) : kTiles;
}

// Block sizes as in product_blocks.h: 128 (large), 64 (small) or 16 (tall and wide).
Cost product_cost(double m, double n, double k, double bytes, ir::KernelKind kernel) {
  const auto extent = [](double length) { return length >= 128 ? 128.0 : length > 16 ? 64.0 : 16.0; };
  const double blocks = std::ceil(m / extent(m)) * std::ceil(n / extent(n));
  const double splits = choose_splits(static_cast<int64_t>(blocks), static_cast<int64_t>(k));
  return {.flops = 2 * m * n * k,
          .bytes = bytes,
          .kernel = kernel,
          .blocks = blocks * splits,
          .filled = m * n / (blocks * extent(m) * extent(n))};
}

ir::KernelKind matmul_kind(bool transpose_a, bool transpose_b) {
  if (transpose_b) return ir::KernelKind::matmul_nt;
  return transpose_a ? ir::KernelKind::matmul_tn : ir::KernelKind::matmul_nn;
}

std::string_view variant_at(const ir::Attrs& attrs, size_t index) {
  if (!attrs.contains("way")) return "";
  std::string_view words = attrs.text("way");
  for (; index > 0; --index) {
    const size_t comma = words.find(',');
    if (comma == std::string_view::npos) return "";
    words.remove_prefix(comma + 1);
  }
  return words.substr(0, words.find(','));
}

const OpDef matmul{
    .name = "matmul",
    .doc =
        "matmul(a [M, K], b [K, N], bias? [N], residual? [M, N]): activation(op(a) op(b) + bias + residual)",
    .inputs = {"a", "b", "bias?", "residual?"},
    .infer = infer,
    .vjp = vjp,
    .cpu = kernel,
    .gpu = true,
    .reference = reference,
    .cost = cost,
    .precision = ir::Precision::compute,
    .samples = samples};

const OpDef matmul_accumulate{.name = "matmul_accumulate",
                              .doc = "sum' = sum + op(a) op(b), in place; sum is f32; attributes of matmul",
                              .inputs = {"sum", "a", "b"},
                              .infer = infer_accumulate,
                              .no_vjp_because = "it sums gradients, after the backward pass",
                              .cpu = accumulate_kernel,
                              .gpu = true,
                              .reference = accumulate_reference,
                              .cost = accumulate_cost,
                              .writes = {0},
                              .samples = accumulate_samples};

}  // namespace hearth::ops
