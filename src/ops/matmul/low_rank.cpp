#include "ops/matmul/low_rank.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "backend/cpu/convert.h"
#include "backend/cpu/gemm.h"
#include "ops/matmul/matmul.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

using Part = LowRankProduct::Part;
using ProductsOf = std::vector<LowRankProduct> (*)(const NodeView&);

// --- types ---

size_t num_adapters(const NodeView& node) { return node.attrs.reals("factors").size(); }

Inferred refuse_count(const NodeView& node) {
  return refuse(fmt::format("expected 1 to {} adapters, got {} factors and {} inputs", kMaxAdapters,
                            num_adapters(node), node.in.size()));
}
bool is_count(const NodeView& node, size_t num_inputs) {
  return num_adapters(node) >= 1 && num_adapters(node) <= kMaxAdapters && node.in.size() == num_inputs;
}
/// True if `type` is a matrix of that dtype with a multiple of kAdapterUnit columns.
bool is_matrix(const Type& type, DType dtype) {
  return is_storage_float(dtype) && type.dtype == dtype && type.shape.rank() == 2 && type.shape[1] > 0 &&
         type.shape[1] % kAdapterUnit == 0;
}
/// True if `type` is a matrix with `num_rows` rows, as above.
bool is_matrix(const Type& type, DType dtype, int64_t num_rows) {
  return is_matrix(type, dtype) && type.shape[0] == num_rows;
}

Inferred infer_up(const NodeView& node) {
  const size_t count = num_adapters(node);
  if (!is_count(node, 1 + 2 * count)) return refuse_count(node);
  const Type& h = node.in_type(0);
  const DType dtype = node.in_type(1 + count).dtype;
  if (!is_matrix(h, h.dtype)) return refuse_type("h", "floating [N, 8 C]", h);
  if (dtype != DType::f32 && dtype != h.dtype)
    return refuse_type("the base", fmt::format("f32 or {}", dtype_name(h.dtype)), node.in_type(1 + count));
  const std::vector<int64_t>& begins = node.attrs.list("begins");
  if (begins.size() != count) return refuse_count(node);
  std::vector<Type> out;
  for (size_t i = 0; i < count; ++i) {
    const Type &b = node.in_type(1 + i), &base = node.in_type(1 + count + i);
    if (!is_matrix(b, h.dtype)) return refuse_type("b", fmt::format("{} [M, 8 R]", dtype_name(h.dtype)), b);
    if (!is_matrix(base, dtype, h.shape[0]) || base.shape[1] != b.shape[0])
      return refuse_type("the base",
                         fmt::format("{}[{}, {}], 8 M columns", dtype_name(dtype), h.shape[0], b.shape[0]),
                         base);
    if (begins[i] < 0 || begins[i] % kAdapterUnit != 0 || begins[i] > h.shape[1] - b.shape[1])
      return refuse(fmt::format("no {} columns begin at column {} of h", b.shape[1], begins[i]));
    out.push_back(base);
  }
  return {.out = out, .error = ""};
}

Inferred infer_grad(const NodeView& node) {
  const size_t count = num_adapters(node);
  if (!is_count(node, 1 + 2 * count)) return refuse_count(node);
  const Type& h = node.in_type(0);
  std::vector<Type> out = {h};
  int64_t width = 0;
  for (size_t i = 0; i < count; ++i) {
    const Type &dy = node.in_type(1 + i), &b = node.in_type(1 + count + i);
    if (h.shape.rank() != 2 || !is_matrix(dy, h.dtype, h.shape[0]))
      return refuse_type("dy", fmt::format("{}[N, 8 M] with the N of h", dtype_name(h.dtype)), dy);
    if (!is_matrix(b, h.dtype, dy.shape[1]))
      return refuse_type("b", fmt::format("{}[{}, 8 R]", dtype_name(h.dtype), dy.shape[1]), b);
    width += b.shape[1];
    out.push_back(f32_type(b.shape));
  }
  if (width != h.shape[1]) return refuse_type("h", fmt::format("floating [N, {}], all ranks", width), h);
  return {.out = out, .error = ""};
}

// --- CPU ---

/// A product's columns of h: row r has `count` elements, starting at element r * width + begin of h.
struct Columns {
  int64_t rows, count, width, begin;
};
Columns columns_of(const LowRankProduct& p) {
  const MatmulShape& s = p.shape;
  if (p.h == Part::a) return {.rows = s.m, .count = s.k, .width = s.a_row, .begin = p.a_begin};
  if (p.h == Part::b) return {.rows = s.k, .count = s.n, .width = s.b_term, .begin = p.b_begin};
  return {.rows = s.m, .count = s.n, .width = s.c_row, .begin = p.c_begin};
}

/// Copies columns of h, times the factor, between h and a contiguous array.
void copy_columns(const Columns& h, DType dtype, const void* from, void* to, bool into_h, double factor,
                  ThreadPool& threads) {
  threads.parallel_for(h.rows, std::max<int64_t>(1, kGrain / h.count), [&](Range rows) {
    alignas(64) float read[kTile], scaled[kTile];
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      for (int64_t i = 0; i < h.count; i += kTile) {
        const int64_t count = std::min(kTile, h.count - i), packed = row * h.count + i;
        const int64_t in_h = row * h.width + h.begin + i;
        const float* values = cpu::as_f32(dtype, from, into_h ? packed : in_h, count, read);
        for (int64_t j = 0; j < count; ++j) scaled[j] = static_cast<float>(factor) * values[j];
        cpu::store_f32(dtype, scaled, to, into_h ? in_h : packed, count);
      }
    }
  });
}

/// A product as a matmul of contiguous arrays.
struct CpuProduct {
  LowRankProduct product;
  DType dtype;  ///< of h
  cpu::Gemm gemm;

  CpuProduct(const NodeView& node, const LowRankProduct& p)
      : product(p),
        dtype(p.h == Part::c ? node.out_type(p.c).dtype : node.in_type(p.h == Part::a ? p.a : p.b).dtype),
        gemm({.m = p.shape.m,
              .n = p.shape.n,
              .k = p.shape.k,
              .transpose_a = p.h != Part::a && p.shape.a_term != 1,
              .transpose_b = p.h != Part::b && p.shape.b_term == 1,
              .a = node.in_type(p.a).dtype,
              .b = node.in_type(p.b).dtype,
              .c = node.out_type(p.c).dtype,
              .residual = p.residual.has_value(),
              .num_threads = node.num_threads}) {}

  /// Bytes of the copy of columns of h.
  int64_t copy_bytes() const {
    const Columns h = columns_of(product);
    return (h.rows * h.count * dtype_bytes(dtype) + 63) / 64 * 64;
  }
  /// Bytes of a copy of the residual: c may share its memory, and Gemm accumulates f32 sums in c.
  int64_t residual_bytes() const {
    const int64_t floats =
        product.residual && product.is_f32 ? int64_t{product.shape.m} * product.shape.n : 0;
    return (floats * int64_t{sizeof(float)} + 63) / 64 * 64;
  }
  int64_t workspace_bytes() const { return copy_bytes() + residual_bytes() + gemm.workspace_bytes(); }

  void run(const KernelArgs& args) const {
    const LowRankProduct& p = product;
    void* const copy = args.workspace;
    const auto copy_h = [&](const void* from, void* to) {
      copy_columns(columns_of(p), dtype, from, to, p.h == Part::c, p.factor, *args.threads);
    };
    if (p.h != Part::c) copy_h(args.in[p.h == Part::a ? p.a : p.b], copy);
    const void* residual = p.residual ? args.in[*p.residual] : nullptr;
    if (p.is_f32 && residual != nullptr && residual == args.out[p.c])
      residual = std::memcpy(args.workspace + copy_bytes(), residual,
                             static_cast<size_t>(int64_t{p.shape.m} * p.shape.n) * sizeof(float));
    gemm.run(p.h == Part::a ? copy : args.in[p.a], p.h == Part::b ? copy : args.in[p.b], nullptr, residual,
             p.h == Part::c ? copy : args.out[p.c], args.workspace + copy_bytes() + residual_bytes(),
             *args.threads);
    if (p.h == Part::c) copy_h(copy, args.out[p.c]);
  }
};

template <ProductsOf products_of>
Kernel kernel(const NodeView& node) {
  const auto products = std::make_shared<std::vector<CpuProduct>>();
  int64_t bytes = 0;
  for (const LowRankProduct& product : products_of(node)) {
    products->emplace_back(node, product);
    bytes = std::max(bytes, products->back().workspace_bytes());
  }
  const auto run = [products](const KernelArgs& args) {
    for (const CpuProduct& product : *products) product.run(args);
  };
  return {.run = run, .workspace_bytes = bytes};
}

// --- reference, cost ---

template <ProductsOf products_of>
void reference(const ReferenceArgs& args) {
  for (const LowRankProduct& p : products_of(args.node)) {
    const MatmulShape& s = p.shape;
    for (int64_t i = 0; i < s.m; ++i) {
      for (int64_t j = 0; j < s.n; ++j) {
        const auto at = static_cast<size_t>(p.c_begin + i * s.c_row + j);
        double sum = 0;
        for (int64_t k = 0; k < s.k; ++k)
          sum += args.in[p.a][static_cast<size_t>(p.a_begin + i * s.a_row + k * s.a_term)] *
                 args.in[p.b][static_cast<size_t>(p.b_begin + k * s.b_term + j * s.b_column)];
        args.out[p.c][at] = p.factor * sum + (p.residual ? args.in[*p.residual][at] : 0);
      }
    }
  }
}

/// Returns the bytes that a product reads and writes.
double bytes_of(const NodeView& node, const LowRankProduct& p) {
  const auto bytes = [](const Type& type, double rows, double columns) {
    return rows * columns * static_cast<double>(dtype_bytes(type.dtype));
  };
  const double m = p.shape.m, n = p.shape.n, k = p.shape.k;
  return bytes(node.in_type(p.a), m, k) + bytes(node.in_type(p.b), k, n) +
         (p.residual ? 2 : 1) * bytes(node.out_type(p.c), m, n);
}

template <ProductsOf products_of, KernelKind kind>
Cost cost(const NodeView& node) {
  Cost sum{.kernel = kind};
  double outputs = 0, computed = 0;
  for (const LowRankProduct& p : products_of(node)) {
    const Cost one = product_cost(p.shape.m, p.shape.n, p.shape.k, 0, kind);
    sum.bytes += bytes_of(node, p);
    sum.flops += one.flops;
    sum.blocks += one.blocks;
    outputs += one.flops;
    computed += one.flops / one.filled;
  }
  sum.filled = outputs / computed;
  return sum;
}

// --- gradients ---

/// Returns the cotangent of y number `i` in the dtype of h; zeros if nothing reads y.
ValueId cotangent_of(const VjpContext& c, size_t i) {
  const DType dtype = c.graph.type(c.node.inputs[0]).dtype;
  ValueId dy = c.grad_out[i];
  if (dy == kNone) dy = emit(c, "scale", {c.node.outputs[i]}, {{"factor", 0.0}});
  return as_dtype(c, dy, dtype);
}

std::vector<ValueId> vjp_up(const VjpContext& c) {
  const ir::Node node = c.node;
  const auto count = std::ssize(node.outputs);
  std::vector<ValueId> inputs = {node.inputs[0]};
  for (int64_t i = 0; i < count; ++i) inputs.push_back(cotangent_of(c, static_cast<size_t>(i)));
  inputs.insert(inputs.end(), node.inputs.begin() + 1, node.inputs.begin() + 1 + count);
  const Attrs attrs = {{"factors", node.attrs.reals("factors")}};
  std::vector<ValueId> grads = c.graph.add(c.op("low_rank_grad"), inputs, attrs, node.name);
  grads.insert(grads.end(), c.grad_out.begin(), c.grad_out.end());
  return grads;
}

/// Returns a node that computes output `i` alone.
ir::Node repeat_up(const ir::Node& node, size_t i) {
  const size_t count = node.outputs.size();
  ir::Node one{.op = node.op,
               .inputs = {node.inputs[0], node.inputs[1 + i], node.inputs[1 + count + i]},
               .outputs = {},
               .attrs = node.attrs,
               .name = node.name};
  one.attrs.set("begins", std::vector<int64_t>{node.attrs.list("begins")[i]});
  one.attrs.set("factors", std::vector<double>{node.attrs.reals("factors")[i]});
  return one;
}

/// Returns the input index of the base of output `i`; nullopt if several inputs are that value.
std::optional<size_t> base_of(const ir::Node& node, size_t i) {
  const size_t base = 1 + node.outputs.size() + i;
  return std::ranges::count(node.inputs, node.inputs[base]) == 1 ? std::optional(base) : std::nullopt;
}

// --- samples ---

/// An adapter of a sample: its features and rank.
struct Adapter {
  int64_t features, rank;
};
struct Case {
  int64_t rows;
  std::vector<Adapter> adapters;
  DType dtype = DType::f32, base = dtype;
};
/// Cases of one to three adapters, whose products do not fill blocks, fill several, or have many terms.
std::vector<Case> cases() {
  const DType half = DType::bf16;
  return {{.rows = 5, .adapters = {{16, 8}, {8, 16}}},
          {.rows = 70, .adapters = {{72, 8}}},
          {.rows = 9, .adapters = {{16, 8}, {24, 8}, {8, 16}}, .dtype = half},
          {.rows = 135, .adapters = {{136, 16}, {40, 8}, {520, 16}}, .dtype = half},
          {.rows = 135, .adapters = {{136, 16}, {152, 16}}, .dtype = half, .base = DType::f32},
          {.rows = 530, .adapters = {{72, 24}, {600, 16}}, .dtype = half},
          {.rows = 530, .adapters = {{136, 8}, {64, 16}}, .dtype = half, .base = DType::f32}};
}
std::vector<double> factors_of(const Case& c) {
  std::vector<double> factors;
  for (size_t i = 0; i < c.adapters.size(); ++i) factors.push_back(i % 2 == 0 ? 2 : 0.75);
  return factors;
}
int64_t width_of(const Case& c) {
  int64_t width = 0;
  for (const Adapter& adapter : c.adapters) width += adapter.rank;
  return width;
}
/// Returns a sample for each case, with the tolerance of sums of 16-bit products.
std::vector<Sample> samples_of(void (*fill)(const Case&, Sample&)) {
  std::vector<Sample> samples;
  for (const Case& c : cases()) {
    samples.push_back(
        {.attrs = {{"factors", factors_of(c)}}, .tolerance = c.dtype == DType::f32 ? 1e-5 : 1e-2});
    fill(c, samples.back());
  }
  return samples;
}

void fill_up(const Case& c, Sample& sample) {
  sample.in = {normal({c.rows, width_of(c)}, c.dtype)};
  std::vector<int64_t> begins = {0};
  for (const Adapter& adapter : c.adapters) {
    sample.in.push_back(normal({adapter.features, adapter.rank}, c.dtype));
    begins.push_back(begins.back() + adapter.rank);
  }
  for (const Adapter& adapter : c.adapters) sample.in.push_back(normal({c.rows, adapter.features}, c.base));
  begins.pop_back();
  sample.attrs.set("begins", begins);
}
void fill_grad(const Case& c, Sample& sample) {
  sample.in = {normal({c.rows, width_of(c)}, c.dtype)};
  for (const Adapter& adapter : c.adapters) sample.in.push_back(normal({c.rows, adapter.features}, c.dtype));
  for (const Adapter& adapter : c.adapters)
    sample.in.push_back(normal({adapter.features, adapter.rank}, c.dtype));
}

/// Returns extent `axis` of an input or output.
int extent(const Type& type, size_t axis) { return static_cast<int>(type.shape[axis]); }

}  // namespace

std::vector<LowRankProduct> low_rank_up_products(const NodeView& node) {
  std::vector<LowRankProduct> products;
  const size_t count = num_adapters(node);
  const Type& h = node.in_type(0);
  for (size_t i = 0; i < count; ++i) {
    const Type& b = node.in_type(1 + i);
    products.push_back({.shape = {.m = extent(h, 0),
                                  .n = extent(b, 0),
                                  .k = extent(b, 1),
                                  .a_row = h.shape[1],
                                  .b_term = 1,
                                  .b_column = b.shape[1],
                                  .c_row = b.shape[0]},
                        .h = Part::a,
                        .b = 1 + i,
                        .c = i,
                        .a_begin = node.attrs.list("begins")[i],
                        .residual = 1 + count + i,
                        .factor = node.attrs.reals("factors")[i],
                        .is_f32 = node.out_type(i).dtype == DType::f32});
  }
  return products;
}

std::vector<LowRankProduct> low_rank_grad_products(const NodeView& node) {
  std::vector<LowRankProduct> products;
  const size_t count = num_adapters(node);
  const Type& h = node.in_type(0);
  int64_t begin = 0;
  for (size_t i = 0; i < count; ++i) {
    const Type& b = node.in_type(1 + count + i);
    const double factor = node.attrs.reals("factors")[i];
    products.push_back({.shape = {.m = extent(h, 0),
                                  .n = extent(b, 1),
                                  .k = extent(b, 0),
                                  .a_row = b.shape[0],
                                  .b_term = b.shape[1],
                                  .c_row = h.shape[1]},
                        .h = Part::c,
                        .a = 1 + i,
                        .b = 1 + count + i,
                        .c_begin = begin,
                        .factor = factor,
                        .is_f32 = h.dtype == DType::f32});
    products.push_back({.shape = {.m = extent(b, 0),
                                  .n = extent(b, 1),
                                  .k = extent(h, 0),
                                  .a_row = 1,
                                  .a_term = b.shape[0],
                                  .b_term = h.shape[1],
                                  .c_row = b.shape[1]},
                        .h = Part::b,
                        .a = 1 + i,
                        .c = 1 + i,
                        .b_begin = begin,
                        .factor = factor,
                        .is_f32 = true});
    begin += b.shape[1];
  }
  return products;
}

const OpDef low_rank_up{
    .name = "low_rank_up",
    .doc =
        "low_rank_up(h [N, C], all b [M, R], all bases [N, M]): base + factor h[:, begin to begin + R] b^T "
        "for each adapter",
    .inputs = {"h", "b_and_base+"},
    .max_inputs = 1 + 2 * kMaxAdapters,
    .infer = infer_up,
    .vjp = vjp_up,
    .cpu = kernel<low_rank_up_products>,
    .gpu = true,
    .reference = reference<low_rank_up_products>,
    .cost = cost<low_rank_up_products, KernelKind::matmul_nt>,
    .repeat_output = repeat_up,
    .in_place_input = base_of,
    .samples = [] { return samples_of(fill_up); }};

const OpDef low_rank_grad{
    .name = "low_rank_grad",
    .doc =
        "low_rank_grad(h [N, all R], all dy [N, M], all b [M, R]): gradients of h, factor dy b in adjacent "
        "columns, and of each b, factor dy^T h[:, columns of the adapter] in f32",
    .inputs = {"h", "dy_and_b+"},
    .max_inputs = 1 + 2 * kMaxAdapters,
    .infer = infer_grad,
    .no_vjp_because = kNoSecondDerivatives,
    .cpu = kernel<low_rank_grad_products>,
    .gpu = true,
    .reference = reference<low_rank_grad_products>,
    .cost = cost<low_rank_grad_products, KernelKind::matmul_tn>,
    .samples = [] { return samples_of(fill_grad); }};

}  // namespace hearth::ops
