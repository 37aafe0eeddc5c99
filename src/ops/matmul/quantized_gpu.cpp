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

/// Stored matrices. element(i): the one at place i, row after row, with the bits of QuantizedMatrix::read.
struct Nf4 {
  int64_t columns;
  const uint8_t* codes;
  Nf4Tables tables;

  RT_DEVICE float element(int64_t i) const {
    const int two = codes[i / 2];
    return tables.values[i % 2 == 0 ? two / 16 : two % 16] * tables.scales[i / kBlock4];
  }
};
struct Int8 {
  int64_t columns;
  const int8_t* codes;
  const float* absmax;

  RT_DEVICE float element(int64_t i) const {
    return static_cast<float>(codes[i]) * absmax[i / columns] * kInverse127;
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

  RT_DEVICE Line line(int64_t i) const { return back ? i : i * matrix.columns; }
  RT_DEVICE Term term(int64_t p) const { return back ? p * matrix.columns : p; }
  RT_DEVICE float at(Line line, Term term) const { return matrix.element(line + term); }
};

/// The same for a matmul of tiles (Operand in product_blocks.h), whose elements are rounded to T.
template <typename T, typename Matrix>
struct TileSide {
  Matrix matrix;
  int lines;
  bool back;

  RT_DEVICE bool along_terms() const { return !back; }
  RT_DEVICE rt::Word16 wide(int line, int term, int lines_left, int terms_left) const {
    const int64_t first = back ? term * matrix.columns + line : line * matrix.columns + term;
    const int count = back ? (terms_left > 0 ? lines_left : 0) : (lines_left > 0 ? terms_left : 0);
    return wide_of(count, [&](int e) { return bits(first + e); });
  }

 private:
  RT_DEVICE uint32_t bits(int64_t i) const { return rt::from_float<T>(matrix.element(i)).bits; }
};

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
  MatmulShape shape;
};
Problem problem_of(const NodeView& node) {
  Problem p{.rows = node.attrs.integer("rows"),
            .columns = node.attrs.integer("columns"),
            .back = node.attrs.integer_or("back", 0) != 0};
  const int64_t k = p.back ? p.rows : p.columns, n = p.back ? p.columns : p.rows;
  p.shape = {.m = static_cast<int>(node.in_type(QuantizedIn::x).shape[0]),
             .n = static_cast<int>(n),
             .k = static_cast<int>(k),
             .a_row = k,
             .c_row = n};
  return p;
}

template <typename T, typename Matrix>
void multiply(const KernelArgs& args, const Problem& p, const MatmulPlan& plan, const Matrix& matrix,
              std::byte* workspace) {
  void* stream = args.stream->handle();
  const auto* x = input_of<T>(args, QuantizedIn::x);
  const Out<T> out{.epilogue = {}, .c = output_of<T>(args, 0), .parts = plan.parts(workspace)};
  if constexpr (!std::is_same_v<T, float>) {
    const Operand<T> rows{x, p.shape.a_row, 1, p.shape.m};
    launch_matmul<T>(stream, plan, rows, TileSide<T, Matrix>{matrix, p.shape.n, p.back}, out);
  } else if (p.back) {
    launch_matmul<T>(stream, plan, PlainRows{x, p.shape.a_row, 1}, PlainSide<Matrix, true>{matrix}, out);
  } else {
    launch_matmul<T>(stream, plan, PlainRows{x, p.shape.a_row, 1}, PlainSide<Matrix, false>{matrix}, out);
  }
}

template <typename T>
ir::Kernel make_nf4(const Problem& p, const MatmulPlan& plan) {
  const int64_t blocks = divided_up(p.rows * p.columns, kBlock4);
  const int64_t table_bytes = divided_up((16 + blocks) * int64_t{sizeof(float)}, 64) * 64;
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
    multiply<T>(args, p, plan, matrix, args.workspace + table_bytes);
  };
  return {.run = run, .workspace_bytes = table_bytes + plan.workspace_bytes()};
}
template <typename T>
ir::Kernel make_int8(const Problem& p, const MatmulPlan& plan) {
  const auto run = [=](const KernelArgs& args) {
    const Int8 matrix{p.columns, input_of<int8_t>(args, QuantizedIn::codes),
                      input_of<float>(args, QuantizedIn::absmax)};
    multiply<T>(args, p, plan, matrix, args.workspace);
  };
  return {.run = run, .workspace_bytes = plan.workspace_bytes()};
}

template <typename T>
ir::Kernel make(const NodeView& node) {
  const Problem p = problem_of(node);
  const MatmulPlan plan(p.shape, MatmulKernel::usual_way(p.shape, node.in_type(QuantizedIn::x).dtype));
  return node.attrs.text_or("format", "") == "nf4" ? make_nf4<T>(p, plan) : make_int8<T>(p, plan);
}

}  // namespace

ir::Kernel quantized_linear_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(QuantizedIn::x).dtype,
                           [&](auto x) { return make<decltype(x)>(node); });
}

}  // namespace hearth::ops
