#include <cmath>

#include "backend/cpu/blocks.h"
#include "backend/cpu/convert.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd/simd.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/quantized.h"
#include "ops/support.h"
#include "ops/update/dynamic_map.h"

namespace hearth::ops {
namespace {

/// Shapes of a quantized_linear node: y [m, n] = x [m, k] op(w), with w [rows, columns].
struct Problem {
  Quantization kind;
  int64_t rows, columns;
  bool back;  ///< true: y = x w; false: y = x w^T
  int64_t m, n, k;
  DType dtype, out;  ///< of x and y
  bool residual;
  int num_threads;
};
Problem problem_of(const NodeView& node) {
  const Type& x = node.in_type(QuantizedIn::x);
  Problem p{.kind = quantization_from_name(node.attrs.text_or("format", "")),
            .rows = node.attrs.integer_or("rows", 0),
            .columns = node.attrs.integer_or("columns", 0),
            .back = node.attrs.integer_or("back", 0) != 0,
            .m = x.shape.rank() == 2 ? x.shape[0] : 0,
            .dtype = x.dtype,
            .out = dtype_attr(node.attrs, "out_dtype", x.dtype),
            .residual = node.has_input(QuantizedIn::residual),
            .num_threads = node.num_threads};
  p.k = p.back ? p.rows : p.columns;
  p.n = p.back ? p.columns : p.rows;
  return p;
}

Inferred infer(const NodeView& node) {
  const Problem p = problem_of(node);
  const Type& x = node.in_type(QuantizedIn::x);
  if (p.kind == Quantization::none || p.rows < 1 || p.columns < 1)
    return refuse("expected format nf4, int8 or fp8, and rows and columns >= 1");
  if (x.shape.rank() != 2 || !is_storage_float(x.dtype) || x.shape[1] != p.k)
    return refuse_type("x", fmt::format("floating [M, {}]", p.k), x);
  const std::vector<QuantizedPart> parts = quantized_parts(p.kind, p.rows, p.columns);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i + 1 >= node.in.size() || node.in_type(i + 1) != parts[i].type)
      return refuse(
          fmt::format("expected tensor {} of the quantized matrix to be {}", i, to_string(parts[i].type)));
  }
  const Type y{.dtype = p.out, .shape = {p.m, p.n}};
  if (y.dtype != x.dtype && y.dtype != DType::f32)
    return refuse(
        fmt::format("expected out_dtype f32 or {}, got {}", dtype_name(x.dtype), dtype_name(y.dtype)));
  if (node.has_input(QuantizedIn::residual) && node.in_type(QuantizedIn::residual) != y)
    return refuse_type("the residual", to_string(y), node.in_type(QuantizedIn::residual));
  return {.out = {y}, .error = ""};
}

/// Maximum number of rows of x that are multiplied directly with rows of the matrix (dot products): for so
/// few rows, transposing the matrix into panels would cost more than the matmul.
constexpr int64_t kFewRows = 8;
constexpr int64_t kRowsAtOnce = 16;
bool by_rows(const Problem& p) { return !p.back && p.m <= kFewRows; }

/// Workspace layout, in floats.
struct Layout {
  int64_t x, y, local, total;
  int64_t packed = 0, panel, run, own_floats;
  explicit Layout(const Problem& p) {
    const bool wide = p.dtype == DType::f32;
    x = 0;
    y = x + (wide ? 0 : cpu::round_up(p.m * p.k, 16));
    local = y + (wide ? 0 : cpu::round_up(p.m * p.n, 16));
    panel = cpu::packs_a(p.n) ? cpu::packed_floats(p.m, p.k) : 0;
    run = panel + cpu::kDepthBlock * cpu::kPanel;
    own_floats = by_rows(p) ? kRowsAtOnce * p.k : run + cpu::kDepthBlock;
    total = local + p.num_threads * own_floats;
  }
};

/// Dequantizes panel[i][j] = op(w)[k.begin + i][n.begin + j]; `run` is scratch of k.size() floats.
void read_panel(const QuantizedMatrix& w, bool back, Range k, Range n, float* run, float* panel) {
  if (back) {
    for (int64_t i = 0; i < k.size(); ++i)
      w.read((k.begin + i) * w.columns + n.begin, n.size(), panel + i * cpu::kPanel);
    return;
  }
  for (int64_t j = 0; j < n.size(); ++j) {
    w.read((n.begin + j) * w.columns + k.begin, k.size(), run);
    for (int64_t i = 0; i < k.size(); ++i) panel[i * cpu::kPanel + j] = run[i];
  }
}

/// Computes one thread's columns of y as dot products, for few rows of x (kFewRows).
void multiply_by_rows(const Problem& p, const QuantizedMatrix& w, const float* x, float* y, float* rows,
                      int thread) {
  const Range mine = split_range(p.n, p.num_threads, thread);
  for (int64_t j = mine.begin; j < mine.end; j += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, mine.end - j);
    w.read(j * w.columns, count * w.columns, rows);
    cpu::simd().dot(p.m, count, p.k, x, p.k, rows, p.k, y + j, p.n, 1);
  }
}

/// Computes one thread's columns of y as a matmul with panels of op(w).
void multiply(const Problem& p, const QuantizedMatrix& w, const float* x, float* y, float* local,
              int thread) {
  const Layout layout(p);
  const Range panels = split_range((p.n + cpu::kPanel - 1) / cpu::kPanel, p.num_threads, thread);
  const int64_t first = panels.begin * cpu::kPanel;
  const int64_t count = std::min(panels.end * cpu::kPanel, p.n) - first;
  if (count <= 0) return;
  float* panel = local + layout.panel;
  const cpu::BlockProduct part{.m = p.m,
                               .n = count,
                               .k = p.k,
                               .a = x,
                               .a_row = p.k,
                               .a_k = 1,
                               .c = y + first,
                               .c_row = p.n,
                               .packed_a = layout.panel > 0 ? local : nullptr};
  cpu::multiply_blocks(part, cpu::kPanel, [&](int64_t at, int64_t depth, int64_t j, int64_t columns) {
    read_panel(w, p.back, {at, at + depth}, {first + j, first + j + columns}, local + layout.run, panel);
    return panel;
  });
}

/// Adds the residual to elements of y (f32) and stores them to the output.
void finish(const Problem& p, const KernelArgs& args, float* y, Range range) {
  alignas(64) float scratch[kTile];
  for (int64_t i = range.begin; i < range.end; i += kTile) {
    const int64_t n = std::min(kTile, range.end - i);
    if (p.residual) cpu::add_row(cpu::as_f32(p.out, args.in[QuantizedIn::residual], i, n, scratch), y + i, n);
    if (y != args.output<float>(0)) cpu::store_f32(p.out, y + i, args.out[0], i, n);
  }
}

Kernel kernel(const NodeView& node) {
  const Problem p = problem_of(node);
  const auto run = [=](const KernelArgs& args) {
    const Layout layout(p);
    auto* base = reinterpret_cast<float*>(args.workspace);
    const QuantizedMatrix w(p.kind, p.rows, p.columns, args.in.subspan(QuantizedIn::codes));
    const bool wide = p.dtype == DType::f32;
    if (!wide) cpu::widen(p.dtype, args.in[QuantizedIn::x], p.m * p.k, base + layout.x, *args.threads);
    const float* x = wide ? args.input<float>(QuantizedIn::x) : base + layout.x;
    float* y = wide ? args.output<float>(0) : base + layout.y;
    args.threads->run([&](int thread) {
      if (thread >= p.num_threads) return;
      float* local = base + layout.local + thread * layout.own_floats;
      by_rows(p) ? multiply_by_rows(p, w, x, y, local, thread) : multiply(p, w, x, y, local, thread);
    });
    if (wide && !p.residual) return;
    args.threads->parallel_for(p.m * p.n, 16384, [&](Range range) { finish(p, args, y, range); });
  };
  return {.run = run, .workspace_bytes = Layout(p).total * int64_t{sizeof(float)}};
}

/// Returns element `i` (row-major) of the matrix, by the definition of the format.
double element(const ReferenceArgs& args, const Problem& p, size_t i) {
  const auto& codes = args.in[QuantizedIn::codes];
  if (p.kind == Quantization::int8)
    return codes[i] * args.in[QuantizedIn::absmax][i / static_cast<size_t>(p.columns)] / 127;
  if (p.kind == Quantization::fp8) {
    const auto code = static_cast<int>(codes[i]);
    const int exponent = code / 8 % 16;
    const double fraction = (exponent == 0 ? 0 : 1) + code % 8 / 8.0;
    return (code < 128 ? 1 : -1) * std::ldexp(fraction, std::max(exponent, 1) - 7) *
           args.in[QuantizedIn::absmax][i / static_cast<size_t>(p.columns)];
  }
  const size_t block = i / kBlock4;
  const double scale =
      static_cast<double>(dynamic_map(true)[static_cast<size_t>(args.in[QuantizedIn::absmax][block])]) *
          args.in[QuantizedIn::absmax_scale][block / kBlockAbsmax] +
      args.in[QuantizedIn::offset][0];
  const auto two = static_cast<size_t>(codes[i / 2]);
  return static_cast<double>(kNormalFloat4[i % 2 == 0 ? two / 16 : two % 16]) * scale;
}

void reference(const ReferenceArgs& args) {
  const Problem p = problem_of(args.node);
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = p.residual ? args.in[QuantizedIn::residual][static_cast<size_t>(i * p.n + j)] : 0;
      for (int64_t k = 0; k < p.k; ++k) {
        const int64_t at = p.back ? k * p.columns + j : j * p.columns + k;
        sum += args.in[QuantizedIn::x][static_cast<size_t>(i * p.k + k)] *
               element(args, p, static_cast<size_t>(at));
      }
      args.out[0][static_cast<size_t>(i * p.n + j)] = sum;
    }
  }
}

std::vector<ValueId> vjp(const VjpContext& context) {
  const ir::Node node = context.node;
  std::vector<ValueId> grads(node.inputs.size(), kNone);
  const ValueId dy = context.grad_out[0];
  if (dy == kNone) return grads;
  if (grads.size() > QuantizedIn::residual && node.inputs[QuantizedIn::residual] != kNone)
    grads[QuantizedIn::residual] = dy;
  const ValueId x = node.inputs[QuantizedIn::x];
  std::vector<ValueId> inputs = node.inputs;
  inputs.resize(std::min<size_t>(inputs.size(), QuantizedIn::residual));
  inputs[QuantizedIn::x] = as_dtype(context, dy, context.graph.type(x).dtype);
  Attrs attrs = node.attrs;
  attrs.set("back", int64_t{attrs.integer_or("back", 0) == 0});
  attrs.set("out_dtype", std::string(dtype_name(gradient_dtype(context.graph, x))));
  grads[QuantizedIn::x] = emit(context, "quantized_linear", inputs, attrs);
  return grads;
}

Cost cost(const NodeView& node) {
  const Problem p = problem_of(node);
  const auto m = static_cast<double>(p.m);
  Cost result = product_cost(m, static_cast<double>(p.n), static_cast<double>(p.k), bytes_moved(node),
                             p.back ? KernelKind::quantized_matmul_nn : KernelKind::quantized_matmul_nt);
  result.rows = m;
  return result;
}

/// Returns the sample with a result in f32 and, if `adds`, a residual.
Sample in_f32(Sample sample, bool adds) {
  const int64_t rows = sample.in[QuantizedIn::x].type.shape[0];
  const bool back = sample.attrs.integer("back") != 0;
  sample.attrs.set("out_dtype", std::string("f32"));
  if (!adds) return sample;
  sample.in.resize(QuantizedIn::residual, absent());
  sample.in.push_back(normal({rows, sample.attrs.integer(back ? "columns" : "rows")}));
  return sample;
}
Sample sample(Quantization kind, int64_t m, int64_t rows, int64_t columns, bool back = false,
              DType dtype = DType::f32) {
  Sample result{.in = {normal({m, back ? rows : columns}, dtype)},
                .attrs = {{"format", std::string(quantization_name(kind))},
                          {"rows", rows},
                          {"columns", columns},
                          {"back", int64_t{back}}},
                .tolerance = dtype == DType::f32 ? 1e-5 : 1e-2};
  for (const QuantizedPart& part : quantized_parts(kind, rows, columns)) {
    const bool codes = part.type.dtype != DType::f32;
    result.in.push_back(
        codes ? indices(part.type.shape, part.type.dtype == DType::i8 ? 128 : 256, part.type.dtype)
              : positive(part.type.shape));
  }
  return result;
}
std::vector<Sample> samples() {
  std::vector<Sample> result = {sample(Quantization::nf4, 5, 7, 600),
                                sample(Quantization::nf4, 5, 7, 24),
                                sample(Quantization::nf4, 3, 33, 71, true),
                                sample(Quantization::nf4, 9, 70, 401),
                                sample(Quantization::nf4, 6, 40, 64, false, DType::bf16),
                                sample(Quantization::nf4, 260, 40, 72, false, DType::bf16),
                                sample(Quantization::nf4, 40, 72, 40, false, DType::bf16),
                                sample(Quantization::nf4, 140, 12, 64, true, DType::bf16),
                                sample(Quantization::nf4, 140, 12, 72, false, DType::bf16),
                                sample(Quantization::nf4, 140, 12, 520, false, DType::bf16),
                                sample(Quantization::nf4, 40, 72, 520, false, DType::bf16),
                                sample(Quantization::nf4, 4, 72, 520, false, DType::bf16),
                                sample(Quantization::int8, 7, 12, 33, false, DType::f16),
                                sample(Quantization::int8, 256, 40, 48, true, DType::f16),
                                sample(Quantization::nf4, 150, 120, 600, true, DType::bf16),
                                sample(Quantization::nf4, 260, 21, 45, true, DType::bf16)};
  for (const Quantization kind : {Quantization::int8, Quantization::fp8}) {
    result.push_back(sample(kind, 5, 37, 19));
    result.push_back(sample(kind, 4, 9, 45, true));
    result.push_back(sample(kind, 4, 40, 72, true, DType::bf16));
    for (const auto& [m, rows, columns] : {std::array<int64_t, 3>{40, 72, 40},
                                           {140, 12, 64},
                                           {140, 12, 520},
                                           {40, 72, 520},
                                           {4, 72, 520},
                                           {260, 40, 72},
                                           {520, 24, 40}})
      result.push_back(sample(kind, m, rows, columns, false, DType::bf16));
  }
  // Shapes that do not fill the last block, for all block sizes of the GPU kernels.
  for (const Quantization kind : kQuantizations) {
    for (const auto& [m, width] : {std::pair{4, 71}, {40, 71}, {140, 13}}) {
      result.push_back(sample(kind, m, width, 45, false, DType::bf16));
      result.push_back(sample(kind, m, width, 521, false, DType::bf16));
      result.push_back(sample(kind, m, 521, width, true, DType::bf16));
    }
  }
  // Residuals and f32 results, with the matrix dequantized by each of the three implementations.
  for (const Quantization kind : kQuantizations) {
    for (const int64_t m : {5, 150, 530}) {
      const Sample plain = sample(kind, m, 40, 72, false, DType::bf16);
      result.push_back(in_f32(plain, false));
      result.push_back(in_f32(plain, true));
      result.push_back(plain);
      result.back().in.resize(QuantizedIn::residual, absent());
      result.back().in.push_back(normal({m, 40}, DType::bf16));
    }
    result.push_back(in_f32(sample(kind, 5, 40, 72), true));
  }
  // Rows of x that fit in one FullRows block, with and without split-K.
  for (const Quantization kind : kQuantizations) {
    for (const int64_t terms : {40, 600}) {
      result.push_back(sample(kind, 150, 120, terms, false, DType::bf16));
      result.push_back(sample(kind, 150, terms, 120, true, DType::bf16));
    }
  }
  return result;
}

}  // namespace

const OpDef quantized_linear{.name = "quantized_linear",
                             .doc =
                                 "quantized_linear(x [M, K], parts of a matrix W in nf4, int8 or fp8, "
                                 "residual?): x W^T, or x W if `back` is 1, plus the residual, in out_dtype "
                                 "(default: x's); W is dequantized tile by tile",
                             .inputs = {"x", "codes", "absmax", "absmax_scale?", "offset?", "residual?"},
                             .infer = infer,
                             .vjp = vjp,
                             .cpu = kernel,
                             .gpu = true,
                             .reference = reference,
                             .cost = cost,
                             .precision = ir::Precision::compute,
                             .samples = samples};

}  // namespace hearth::ops
