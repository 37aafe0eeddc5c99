#include "ops/matmul/matmul.h"
#include "ops/matmul/product_blocks.h"
#include "ops/matmul/quantized.h"
#include "ops/update/dynamic_map.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// What nf4 is read by, in the workspace.
struct Nf4Tables {
  float* values;  ///< the 16 of NormalFloat4
  float* scales;  ///< of each block
};

/// Stored matrices: an element with the bits of QuantizedMatrix::read.
struct Nf4 {
  int64_t columns;
  const uint8_t* codes;
  Nf4Tables tables;

  RT_DEVICE float element(int64_t row, int64_t column) const {
    const int64_t i = row * columns + column;
    const int two = codes[i / 2];
    return tables.values[i % 2 == 0 ? two / 16 : two % 16] * tables.scales[i / kBlock4];
  }
};
struct Int8 {
  int64_t columns;
  const int8_t* codes;
  const float* absmax;

  RT_DEVICE float element(int64_t row, int64_t column) const {
    return static_cast<float>(codes[row * columns + column]) * absmax[row] * kInverse127;
  }
};

/// The right side of a plain matmul (plain_product.h): lines are the rows of the matrix or, with `back`, its
/// columns.
template <typename Matrix, bool back>
struct PlainSide {
  using Line = int64_t;
  using Term = int64_t;
  static constexpr bool kLinesAreNeighbors = back;
  Matrix matrix;

  RT_DEVICE Line line(int64_t i) const { return i; }
  RT_DEVICE Term term(int64_t p) const { return p; }
  RT_DEVICE float at(Line line, Term term) const {
    return back ? matrix.element(term, line) : matrix.element(line, term);
  }
};

/// The same for a matmul of tiles (Operand in product_blocks.h), whose elements are rounded to T.
template <typename T, typename Matrix>
struct TileSide {
  Matrix matrix;
  int lines;
  bool back;

  RT_DEVICE bool along_terms() const { return !back; }
  RT_DEVICE rt::Word16 wide(int line, int term, int lines_left, int terms_left) const {
    const int64_t row = back ? term : line, column = back ? line : term;
    const int count = back ? (terms_left > 0 ? lines_left : 0) : (lines_left > 0 ? terms_left : 0);
    return wide_of(count,
                   [&](int e) { return uint32_t{rt::from_float<T>(matrix.element(row, column + e)).bits}; });
  }
};

/// The matrix as T, a block per row.
template <typename T, typename Matrix>
__global__ void __launch_bounds__(kBlockThreads) dequantize(Matrix matrix, T* to) {
  const int64_t row = blockIdx.x;
  for (int64_t column = int64_t{threadIdx.x} * kWide; column < matrix.columns;
       column += int64_t{kBlockThreads} * kWide) {
    T* at = to + row * matrix.columns + column;
    rt::Vec<T, kWide> made;
    if (matrix.columns % kWide == 0) {
      RT_UNROLL
      for (int e = 0; e < kWide; ++e) made.at[e] = rt::from_float<T>(matrix.element(row, column + e));
      rt::store(at, made);
    } else {
      for (int e = 0; e < kWide && column + e < matrix.columns; ++e)
        at[e] = rt::from_float<T>(matrix.element(row, column + e));
    }
  }
}
/// Rows of x from which that costs less than reading codes in every block of the matmul.
constexpr int kDequantizedRows = 256;

struct Codebook {
  float at[16];
};
/// A thread per block of nf4.
__global__ void __launch_bounds__(kBlockThreads)
    make_scales(const uint8_t* absmax8, const float* absmax, const float* offset, int64_t blocks,
                Codebook codebook, Nf4Tables tables) {
  const int64_t block = first_element();
  if (block < 16) tables.values[block] = codebook.at[block];
  if (block >= blocks) return;
  tables.scales[block] =
      rt::multiply_then_add(dynamic_value(true, absmax8[block]), absmax[block / kBlockAbsmax], *offset);
}

struct Problem {
  int64_t rows, columns;
  bool back;
  DType dtype;
  MatmulShape shape;
  std::string way;

  bool is_dequantized() const { return dtype != DType::f32 && shape.m >= kDequantizedRows; }
  ChosenMatmul dequantized_matmul() const { return {shape, dtype, dtype, way}; }
  MatmulPlan plan() const { return {shape, MatmulKernel::usual_way(shape, dtype)}; }
  int64_t matrix_bytes() const { return divided_up(rows * columns * 2, 256) * 256; }
  int64_t workspace_bytes() const {
    return is_dequantized() ? matrix_bytes() + dequantized_matmul().workspace_bytes()
                            : plan().workspace_bytes();
  }
};
Problem problem_of(const NodeView& node) {
  Problem p{.rows = node.attrs.integer("rows"),
            .columns = node.attrs.integer("columns"),
            .back = node.attrs.integer_or("back", 0) != 0,
            .dtype = node.in_type(QuantizedIn::x).dtype,
            .shape = {},
            .way = std::string(way_at(node.attrs, 0))};
  const int64_t k = p.back ? p.rows : p.columns, n = p.back ? p.columns : p.rows;
  p.shape = {.m = static_cast<int>(node.in_type(QuantizedIn::x).shape[0]),
             .n = static_cast<int>(n),
             .k = static_cast<int>(k),
             .a_row = k,
             .b_term = p.back ? p.columns : 1,
             .b_column = p.back ? 1 : p.columns,
             .c_row = n};
  return p;
}

template <typename T, typename Matrix>
void multiply_dequantized(const KernelArgs& args, const Problem& p, const Matrix& matrix,
                          std::byte* workspace) {
  rt::launch(dequantize<T, Matrix>, {p.rows, kBlockThreads}, args.stream->handle(), matrix,
             reinterpret_cast<T*>(workspace));
  p.dequantized_matmul().launch(*args.stream, {.a = args.in[QuantizedIn::x],
                                               .b = workspace,
                                               .c = args.out[0],
                                               .workspace = workspace + p.matrix_bytes()});
}

template <typename T, typename Matrix>
void multiply(const KernelArgs& args, const Problem& p, const Matrix& matrix, std::byte* workspace) {
  void* stream = args.stream->handle();
  const auto* x = input_of<T>(args, QuantizedIn::x);
  const MatmulPlan plan = p.plan();
  const Out<T> out{.epilogue = {}, .c = output_of<T>(args, 0), .parts = plan.parts(workspace)};
  if constexpr (!std::is_same_v<T, float>) {
    if (p.is_dequantized()) return multiply_dequantized<T>(args, p, matrix, workspace);
    const Operand<T> rows{x, p.shape.a_row, 1, p.shape.m};
    launch_matmul<T>(stream, plan, rows, TileSide<T, Matrix>{matrix, p.shape.n, p.back}, out);
  } else if (p.back) {
    launch_matmul<T>(stream, plan, PlainRows{x, p.shape.a_row, 1}, PlainSide<Matrix, true>{matrix}, out);
  } else {
    launch_matmul<T>(stream, plan, PlainRows{x, p.shape.a_row, 1}, PlainSide<Matrix, false>{matrix}, out);
  }
}

template <typename T>
ir::Kernel make_nf4(const Problem& p) {
  const int64_t blocks = divided_up(p.rows * p.columns, kBlock4);
  const int64_t table_bytes = divided_up((16 + blocks) * int64_t{sizeof(float)}, 256) * 256;
  Codebook codebook;
  std::copy(kNormalFloat4.begin(), kNormalFloat4.end(), codebook.at);
  const auto run = [=](const KernelArgs& args) {
    auto* floats = reinterpret_cast<float*>(args.workspace);
    const Nf4Tables tables{floats, floats + 16};
    rt::launch(make_scales, {divided_up(std::max<int64_t>(blocks, 16), kBlockThreads), kBlockThreads},
               args.stream->handle(), input_of<uint8_t>(args, QuantizedIn::absmax),
               input_of<float>(args, QuantizedIn::absmax_scale), input_of<float>(args, QuantizedIn::offset),
               blocks, codebook, tables);
    const Nf4 matrix{p.columns, input_of<uint8_t>(args, QuantizedIn::codes), tables};
    multiply<T>(args, p, matrix, args.workspace + table_bytes);
  };
  return {.run = run, .workspace_bytes = table_bytes + p.workspace_bytes()};
}
template <typename T>
ir::Kernel make_int8(const Problem& p) {
  const auto run = [=](const KernelArgs& args) {
    const Int8 matrix{p.columns, input_of<int8_t>(args, QuantizedIn::codes),
                      input_of<float>(args, QuantizedIn::absmax)};
    multiply<T>(args, p, matrix, args.workspace);
  };
  return {.run = run, .workspace_bytes = p.workspace_bytes()};
}

template <typename T>
ir::Kernel make(const NodeView& node) {
  const Problem p = problem_of(node);
  return node.attrs.text_or("format", "") == "nf4" ? make_nf4<T>(p) : make_int8<T>(p);
}

/// Of many rows of x, W is written out first; under 16 bits its elements are rounded to x's dtype.
std::vector<ir::LoneNode> quantized_matmuls(const NodeView& node) {
  const Problem p = problem_of(node);
  if (!p.is_dequantized()) return {};
  return {{.attrs = {{"transpose_b", int64_t{p.back ? 0 : 1}}},
           .in = {node.in_type(QuantizedIn::x), {.dtype = p.dtype, .shape = {p.rows, p.columns}}},
           .out = {node.out_type(0)}}};
}
ir::Kernel quantized_linear_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(QuantizedIn::x).dtype,
                           [&](auto x) { return make<decltype(x)>(node); });
}

const GpuKernels kKernels = {
    {.op = "quantized_linear", .one = quantized_linear_gpu, .matmuls = quantized_matmuls}};

}  // namespace
}  // namespace hearth::ops
