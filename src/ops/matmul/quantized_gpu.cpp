// Matmul with a frozen matrix in nf4, int8 or fp8 on a GPU, by one of three implementations. With many rows
// of x, the matrix is dequantized to the workspace and then multiplied by a matmul kernel or the vendor's
// BLAS library. With 129 to 512 rows, thread blocks of 256 rows dequantize the matrix while they load it, so
// that it is dequantized only once or twice. With fewer rows, the blocks of the default matmul variants
// dequantize it. If x is 16-bit, all three round the matrix's elements to its dtype.
#include "base/e4m3.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/product_blocks.h"
#include "ops/matmul/quantized.h"
#include "ops/update/dynamic_map.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Tables in the workspace for decoding nf4.
struct Nf4Tables {
  float* values;  ///< the 16 values of NormalFloat4
  float* scales;  ///< scale of each block of kBlock4 elements
};

/// Returns the index, in row-major order, of the group of kWide adjacent elements that starts at (row,
/// column).
RT_DEVICE uint32_t group_of(int row, int column, int64_t columns) {
  return static_cast<uint32_t>(row) * static_cast<uint32_t>(columns / kWide) +
         static_cast<uint32_t>(column) / kWide;
}

/// A quantized matrix in nf4; Bytes is one in int8 or fp8, with the same interface. element() returns the
/// same bits as QuantizedMatrix::read(). If the number of columns is a multiple of kWide, load() returns
/// group number first + group_offset, which must be in row `row`.
struct Nf4 {
  int64_t columns;
  const uint8_t* codes;
  Nf4Tables tables;

  RT_DEVICE float element(int64_t row, int64_t column) const {
    const int64_t i = row * columns + column;
    const int two = codes[i / 2];
    return tables.values[i % 2 == 0 ? two / 16 : two % 16] * tables.scales[i / kBlock4];
  }
  /// kWide adjacent elements in their stored form.
  struct Group {
    uint32_t codes;
    float scale;
  };
  RT_DEVICE Group load(uint32_t first, uint32_t group_offset, int /*row*/) const {
    const uint8_t* at = codes + uint64_t{first} * (kWide / 2);
    return {*reinterpret_cast<const rt::Word4*>(at + group_offset * (kWide / 2)),
            tables.scales[(first + group_offset) / (kBlock4 / kWide)]};
  }
  RT_DEVICE rt::Vec<float, kWide> values_of(const Group& group) const {
    rt::Vec<float, kWide> result;
    RT_UNROLL
    for (int e = 0; e < kWide; ++e)
      result.at[e] = tables.values[group.codes >> (e % 2 == 0 ? 4 * e + 4 : 4 * e - 4) & 15] * group.scale;
    return result;
  }
  /// Copies the table of values to shared memory and uses that copy. All threads of a block must call it.
  RT_DEVICE void keep_values(float* shared) {
    if (threadIdx.x < 16) shared[threadIdx.x] = tables.values[threadIdx.x];
    rt::sync_block();
    tables.values = shared;
  }
};
/// A quantized matrix with one byte per element and one factor per row; Format::value() decodes an element.
template <typename Format>
struct Bytes {
  int64_t columns;
  const uint8_t* codes;
  const float* factors;

  RT_DEVICE float element(int64_t row, int64_t column) const {
    return Format::value(codes[row * columns + column], factors[row]);
  }
  struct Group {
    uint32_t codes[2];
    float scale;
  };
  RT_DEVICE Group load(uint32_t first, uint32_t group_offset, int row) const {
    const auto* at = reinterpret_cast<const uint32_t*>(codes + uint64_t{first} * kWide);
    const auto two = rt::load<uint32_t, 2>(at + group_offset * 2);
    return {{two.at[0], two.at[1]}, factors[row]};
  }
  RT_DEVICE rt::Vec<float, kWide> values_of(const Group& group) const {
    rt::Vec<float, kWide> result;
    RT_UNROLL
    for (int e = 0; e < kWide; ++e)
      result.at[e] = Format::value(group.codes[e / 4] >> e % 4 * 8, group.scale);
    return result;
  }
  RT_DEVICE void keep_values(float* /*shared*/) const {}
};
/// Format int8 for Bytes; decodes the lowest byte of `code`.
struct Int8 {
  RT_DEVICE static float value(uint32_t code, float absmax) {
    return static_cast<float>(static_cast<int8_t>(code)) * absmax * kInverse127;
  }
};
struct Fp8 {
  RT_DEVICE static float value(uint32_t code, float scale) { return e4m3_value(code) * scale; }
};

/// A quantized matrix as the right operand of an f32 matmul (plain_product.h): lines are its rows or, with
/// `back`, its columns.
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

template <typename T>
using Result = Out<T, Rounded<T>>;

/// Dequantizes a group to T. Replaces a NaN scale by a canonical NaN, because packed() does not preserve all
/// NaN bit patterns.
template <typename T, typename Matrix>
RT_DEVICE rt::Word16 group_as(const Matrix& matrix, typename Matrix::Group group) {
  group.scale = group.scale == group.scale ? group.scale : nanf("");
  const rt::Vec<float, kWide> values = matrix.values_of(group);
  rt::Vec<uint32_t, kWide / 2> result;
  RT_UNROLL
  for (int w = 0; w < kWide / 2; ++w) result.at[w] = rt::packed<T>(values.at[2 * w], values.at[2 * w + 1]);
  return rt::bits_as<rt::Word16>(result);
}

/// A quantized matrix as the right operand of a matmul with matrix instructions (interface of Operand in
/// product_blocks.h); elements are rounded to T.
template <typename T, typename Matrix>
struct TileSide {
  /// Excludes the variant `large`, which is never used: see Problem::plan().
  using NoLargeBlocks = void;
  Matrix matrix;
  int lines;
  bool back;

  RT_DEVICE bool along_terms() const { return !back; }
  RT_DEVICE rt::Word16 wide(int line, int term, int lines_left, int terms_left) const {
    const int row = back ? term : line, column = back ? line : term;
    const int count = back ? (terms_left > 0 ? lines_left : 0) : (lines_left > 0 ? terms_left : 0);
    if (matrix.columns % kWide == 0)
      return count > 0 ? group_as<T>(matrix, matrix.load(group_of(row, column, matrix.columns), 0, row))
                       : rt::Word16{};
    return wide_of(count,
                   [&](int e) { return uint32_t{rt::from_float<T>(matrix.element(row, column + e)).bits}; });
  }
};

/// A TileSide of full groups. Its PanelLoader loads groups in their stored form and dequantizes them when the
/// loads have completed.
template <typename T, typename Matrix>
struct GroupSide : TileSide<T, Matrix> {};

}  // namespace

template <typename T, int kLines, typename Matrix>
struct PanelLoader<T, kLines, GroupSide<T, Matrix>> {
  static constexpr int kLaneElements = Panel<T, kLines>::kLaneElements;
  const GroupSide<T, Matrix>& from;
  int first_line;
  int line[kLaneElements];  ///< line of each move, relative to first_line, clamped to the last line
  uint32_t group_offset[kLaneElements];  ///< number of groups from the tile's first line and term to each
                                         ///< move's group
  typename Matrix::Group held[kLaneElements];

  RT_DEVICE PanelLoader(const Panel<T, kLines>& panel, const GroupSide<T, Matrix>& side, int first,
                        int /*first_term*/)
      : from(side), first_line(first) {
    const int last = from.lines - first_line - (from.back ? kWide : 1);
    RT_UNROLL
    for (int i = 0; i < kLaneElements; ++i) {
      line[i] = panel.line_of(i) < last ? panel.line_of(i) : last;
      group_offset[i] = from.back ? group_of(panel.term_of(i), line[i], from.matrix.columns)
                                  : group_of(line[i], panel.term_of(i), from.matrix.columns);
    }
  }
  RT_DEVICE void fetch(Panel<T, kLines>& panel, int first_term, int end_term) {
    const uint32_t first = from.back ? group_of(first_term, first_line, from.matrix.columns)
                                     : group_of(first_line, first_term, from.matrix.columns);
    RT_UNROLL
    for (int i = 0; i < kLaneElements; ++i) {
      const int term = first_term + panel.term_of(i);
      held[i] = {};
      if (first_term + kDepth <= end_term || term < end_term)
        held[i] = from.matrix.load(first, group_offset[i], from.back ? term : first_line + line[i]);
    }
  }
  RT_DEVICE void finish(Panel<T, kLines>& panel) const {
    RT_UNROLL
    for (int i = 0; i < kLaneElements; ++i) panel.held[i] = group_as<T>(from.matrix, held[i]);
  }
};

namespace {

/// Dequantizes the matrix to T; each block processes every gridDim.x-th row.
template <typename T, typename Matrix>
__global__ void __launch_bounds__(kBlockThreads) dequantize(Matrix matrix, T* to, int rows) {
  RT_SHARED(values, float[16]);
  matrix.keep_values(values);
  const int columns = static_cast<int>(matrix.columns);
  for (int row = static_cast<int>(blockIdx.x); row < rows; row += static_cast<int>(gridDim.x)) {
    T* line = to + row * matrix.columns;
    for (int column = static_cast<int>(threadIdx.x) * kWide; column < columns;
         column += kBlockThreads * kWide) {
      if (columns % kWide == 0) {
        *reinterpret_cast<rt::Word16*>(line + column) =
            group_as<T>(matrix, matrix.load(group_of(row, column, matrix.columns), 0, row));
      } else {
        for (int c = column; c < column + kWide && c < columns; ++c)
          line[c] = rt::from_float<T>(matrix.element(row, c));
      }
    }
  }
}
/// Maximum number of blocks of dequantize().
constexpr int64_t kDequantizeBlocks = 1024;

/// Block size for matmuls with up to 512 rows of x: 256 rows, so that the matrix is read at most twice, and
/// as many columns as the threads' registers can hold.
using FullRows = Blocking<256, 112, 8>;
/// Number of FullRows blocks that keep a mid-range GPU busy; each fills a compute unit.
constexpr int64_t kMinFullRowBlocks = 40;
template <typename T, typename Matrix>
__global__ void __launch_bounds__(kBlockThreads)
    multiply_quantized(AlignedOperand<T> rows, GroupSide<T, Matrix> columns, MatmulShape shape,
                       Result<T> out) {
  RT_SHARED(values, float[16]);
  columns.matrix.keep_values(values);
  for_each_tile_sum<T, FullRows>(
      rows, columns, static_cast<int>(blockIdx.y) * FullRows::kRows,
      static_cast<int>(blockIdx.x) * FullRows::kColumns, terms_of(shape.k, kDepth),
      [&](int, int) { return [&](int row, int column, float sum) { put(shape, out, row, column, sum); }; });
}
/// Minimum number of rows of x for which dequantizing the matrix first costs less than dequantizing it in
/// every block of the matmul.
constexpr int kDequantizedRows = 256;

struct Codebook {
  float at[16];
};
/// Computes the scales of nf4 and copies the codebook to the workspace; one thread per nf4 block.
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
  DType dtype, out;  ///< of x and y
  bool residual;
  MatmulShape shape;
  std::string way;

  bool may_be_dequantized() const { return dtype != DType::f32 && shape.m >= kDequantizedRows; }
  bool is_dequantized() const { return may_be_dequantized() && !fits_full_rows(); }
  /// True if the matmul uses FullRows blocks, which dequantize the matrix themselves: at most two of them
  /// read each element. False if autotuning selected the BLAS library, which needs a dequantized matrix.
  bool fits_full_rows() const {
    return dtype != DType::f32 && !is_library_variant(way) && shape.m > FullRows::kRows / 2 &&
           shape.m <= 2 * FullRows::kRows && rows % kWide == 0 && columns % kWide == 0;
  }
  ChosenMatmul dequantized_matmul() const { return {shape, dtype, out, way}; }
  /// True if the matmul stores its result in x's dtype to the workspace, and finish_rows() stores y.
  bool is_finished_later() const { return !is_dequantized() && (residual || out != dtype); }
  int64_t unfinished_bytes() const {
    return is_finished_later() ? ceil_div(int64_t{shape.m} * shape.n * dtype_bytes(dtype), 256) * 256 : 0;
  }
  rt::Dim3 whole_blocks() const {
    return {static_cast<unsigned>(ceil_div(shape.n, FullRows::kColumns)),
            static_cast<unsigned>(ceil_div(shape.m, FullRows::kRows)), 1};
  }
  MatmulPlan plan() const {
    const MatmulVariant usual = MatmulKernel::default_variant(shape, dtype);
    MatmulPlan result(shape, usual == MatmulVariant::large ? MatmulVariant::small : usual);
    if (fits_full_rows()) {
      const rt::Dim3 blocks = whole_blocks();
      result.splits = static_cast<int>(std::clamp<int64_t>(
          kMinFullRowBlocks / (blocks.x * blocks.y), 1, std::max<int64_t>(shape.k / kMinTermsPerSplit, 1)));
    }
    return result;
  }
  int64_t matrix_bytes() const { return ceil_div(rows * columns * 2, 256) * 256; }
  int64_t workspace_bytes() const {
    return is_dequantized() ? matrix_bytes() + dequantized_matmul().workspace_bytes()
                            : unfinished_bytes() + plan().workspace_bytes();
  }
};
Problem problem_of(const NodeView& node) {
  Problem p{.rows = node.attrs.integer("rows"),
            .columns = node.attrs.integer("columns"),
            .back = node.attrs.integer_or("back", 0) != 0,
            .dtype = node.in_type(QuantizedIn::x).dtype,
            .out = node.out_type(0).dtype,
            .residual = node.has_input(QuantizedIn::residual),
            .shape = {},
            .way = std::string(variant_at(node.attrs, 0))};
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
  rt::launch(dequantize<T, Matrix>, {std::min(p.rows, kDequantizeBlocks), kBlockThreads},
             args.stream->handle(), matrix, reinterpret_cast<T*>(workspace), static_cast<int>(p.rows));
  p.dequantized_matmul().launch(*args.stream,
                                {.a = args.in[QuantizedIn::x],
                                 .b = workspace,
                                 .residual = p.residual ? args.in[QuantizedIn::residual] : nullptr,
                                 .c = args.out[0],
                                 .workspace = workspace + p.matrix_bytes()});
}

template <typename T, typename Matrix>
void multiply_whole(void* stream, const Problem& p, const Operand<T>& rows, const Matrix& matrix,
                    const Result<T>& out) {
  const MatmulPlan plan = p.plan();
  rt::Dim3 blocks = p.whole_blocks();
  blocks.z = static_cast<unsigned>(plan.splits);
  rt::launch(multiply_quantized<T, Matrix>, {blocks, rt::Dim3{kBlockThreads, 1, 1}}, stream,
             AlignedOperand<T>{rows}, GroupSide<T, Matrix>{{matrix, p.shape.n, p.back}}, p.shape, out);
  if (plan.splits == 1) return;
  rt::launch(add_parts<Result<T>>, {num_stride_blocks(int64_t{p.shape.m} * p.shape.n), kBlockThreads}, stream,
             p.shape, out, plan.splits);
}

/// Stores matmul results plus the residual (null: none).
template <typename T, typename C>
__global__ void __launch_bounds__(kBlockThreads)
    finish_rows(const T* product, const C* residual, C* y, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const float sum = rt::to_float(product[i]);
    y[i] = rt::from_float<C>(residual == nullptr ? sum : sum + rt::to_float(residual[i]));
  }
}
template <typename T, typename C>
void launch_finish(const KernelArgs& args, const Problem& p, const T* product) {
  const int64_t count = int64_t{p.shape.m} * p.shape.n;
  rt::launch(finish_rows<T, C>, {num_stride_blocks(count), kBlockThreads}, args.stream->handle(), product,
             p.residual ? input_of<C>(args, QuantizedIn::residual) : nullptr, output_of<C>(args, 0), count);
}

/// Computes the matmul without residual, in x's dtype, with blocks that dequantize the matrix.
template <typename T, typename Matrix>
void multiply_in_blocks(const KernelArgs& args, const Problem& p, const Matrix& matrix, T* product,
                        std::byte* workspace) {
  void* stream = args.stream->handle();
  const auto* x = input_of<T>(args, QuantizedIn::x);
  const MatmulPlan plan = p.plan();
  const Result<T> out{.epilogue = {}, .c = product, .parts = plan.parts(workspace)};
  if constexpr (!std::is_same_v<T, float>) {
    const Operand<T> rows{x, p.shape.a_row, 1, p.shape.m};
    if (p.fits_full_rows()) return multiply_whole<T>(stream, p, rows, matrix, out);
    launch_matmul<T>(stream, plan, rows, TileSide<T, Matrix>{matrix, p.shape.n, p.back}, out);
  } else if (p.back) {
    launch_matmul<T>(stream, plan, PlainRows{x, p.shape.a_row, 1}, PlainSide<Matrix, true>{matrix}, out);
  } else {
    launch_matmul<T>(stream, plan, PlainRows{x, p.shape.a_row, 1}, PlainSide<Matrix, false>{matrix}, out);
  }
}

template <typename T, typename Matrix>
void multiply(const KernelArgs& args, const Problem& p, const Matrix& matrix, std::byte* workspace) {
  if constexpr (!std::is_same_v<T, float>) {
    if (p.is_dequantized()) return multiply_dequantized<T>(args, p, matrix, workspace);
  }
  if (!p.is_finished_later()) return multiply_in_blocks<T>(args, p, matrix, output_of<T>(args, 0), workspace);
  auto* product = reinterpret_cast<T*>(workspace);
  multiply_in_blocks<T>(args, p, matrix, product, workspace + p.unfinished_bytes());
  if (p.out == p.dtype) return launch_finish<T, T>(args, p, product);
  launch_finish<T, float>(args, p, product);
}

template <typename T>
ir::Kernel make_nf4(const Problem& p) {
  const int64_t blocks = ceil_div(p.rows * p.columns, kBlock4);
  const int64_t table_bytes = ceil_div((16 + blocks) * int64_t{sizeof(float)}, 256) * 256;
  Codebook codebook;
  std::copy(kNormalFloat4.begin(), kNormalFloat4.end(), codebook.at);
  const auto run = [=](const KernelArgs& args) {
    auto* floats = reinterpret_cast<float*>(args.workspace);
    const Nf4Tables tables{floats, floats + 16};
    rt::launch(make_scales, {ceil_div(std::max<int64_t>(blocks, 16), kBlockThreads), kBlockThreads},
               args.stream->handle(), input_of<uint8_t>(args, QuantizedIn::absmax),
               input_of<float>(args, QuantizedIn::absmax_scale), input_of<float>(args, QuantizedIn::offset),
               blocks, codebook, tables);
    const Nf4 matrix{p.columns, input_of<uint8_t>(args, QuantizedIn::codes), tables};
    multiply<T>(args, p, matrix, args.workspace + table_bytes);
  };
  return {.run = run, .workspace_bytes = table_bytes + p.workspace_bytes()};
}
template <typename T, typename Format>
ir::Kernel make_bytes(const Problem& p) {
  const auto run = [=](const KernelArgs& args) {
    const Bytes<Format> matrix{p.columns, input_of<uint8_t>(args, QuantizedIn::codes),
                               input_of<float>(args, QuantizedIn::absmax)};
    multiply<T>(args, p, matrix, args.workspace);
  };
  return {.run = run, .workspace_bytes = p.workspace_bytes()};
}

template <typename T>
ir::Kernel make(const NodeView& node) {
  const Problem p = problem_of(node);
  const std::string format = node.attrs.text("format");
  if (format == "nf4") return make_nf4<T>(p);
  return format == "int8" ? make_bytes<T, Int8>(p) : make_bytes<T, Fp8>(p);
}

/// Returns the matmul with the dequantized W, for autotuning; empty if this node never dequantizes W first.
std::vector<ir::StandaloneNode> quantized_matmuls(const NodeView& node) {
  const Problem p = problem_of(node);
  if (!p.may_be_dequantized()) return {};
  ir::StandaloneNode product{
      .attrs = {{"transpose_b", int64_t{p.back ? 0 : 1}}, {"out_dtype", std::string(dtype_name(p.out))}},
      .in = {node.in_type(QuantizedIn::x), {.dtype = p.dtype, .shape = {p.rows, p.columns}}},
      .out = {node.out_type(0)}};
  if (p.residual) add_residual(product, node.out_type(0));
  return {std::move(product)};
}
ir::Kernel quantized_linear_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(QuantizedIn::x).dtype,
                           [&](auto x) { return make<decltype(x)>(node); });
}

const GpuKernels kKernels = {
    {.op = "quantized_linear", .one = quantized_linear_gpu, .matmuls = quantized_matmuls}};

}  // namespace
}  // namespace hearth::ops
