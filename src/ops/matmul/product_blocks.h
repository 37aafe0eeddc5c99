#pragma once

#include "backend/gpu/rt_panel.h"
#include "ops/gpu_support.h"
#include "ops/matmul/matmul_kernel.h"
#include "ops/matmul/plain_product.h"

/// Building blocks of GPU matmuls with matrix instructions, also for operands that are computed or gathered
/// while they are loaded. "Lines" are rows of the left or columns of the right operand; "terms" are indices
/// of the reduction axis. A thread block computes a rectangle of outputs, kDepth terms at a time. In each
/// step it loads a tile of both operands through registers into one half of a double buffer in shared memory,
/// while its warps multiply the tiles in the other half. Matmuls with few blocks divide their terms over
/// several blocks (split-K), whose partial sums a second kernel adds in order. The number of splits depends
/// only on the shape, so that results do not depend on the GPU.
namespace hearth::ops {

/// Number of terms per step of a block, and number of 16-bit elements of a 16-byte move (load or store).
inline constexpr int kDepth = rt::kPanelTerms<rt::bf16>;
inline constexpr int kWide = rt::kWide<rt::bf16>;

/// Alternative to Epilogue that only converts the sums to C.
template <typename C>
struct Rounded {
  RT_DEVICE C operator()(float sum, int64_t, int64_t) const { return rt::from_float<C>(sum); }
};
/// Destination of a block's sums.
template <typename C, typename End = Epilogue<C>>
struct Out {
  End epilogue;
  C* c;
  float* parts;  ///< split-K partial sums [splits][m][n]; null: sums are written to c
};

/// Applies the epilogue to a sum and stores it to c.
template <typename To>
RT_DEVICE void finish(const MatmulShape& shape, const To& out, int64_t row, int64_t column, float sum) {
  const int64_t at = row * shape.c_row + column;
  out.c[at] = out.epilogue(sum, column, at);
}
/// Stores a sum: to c or, with split-K, to this split's partial sums.
template <typename To>
RT_DEVICE void put(const MatmulShape& shape, const To& out, int64_t row, int64_t column, float sum) {
  if (row >= shape.m || column >= shape.n) return;
  if (out.parts == nullptr) return finish(shape, out, row, column, sum);
  out.parts[(blockIdx.z * static_cast<int64_t>(shape.m) + row) * shape.n + column] = sum;
}

/// Adds the partial sums of a split-K matmul in order and applies the epilogue.
template <typename To>
__global__ void __launch_bounds__(kBlockThreads) add_parts(MatmulShape shape, To out, int splits) {
  const int64_t count = static_cast<int64_t>(shape.m) * shape.n;
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    float sum = 0;
    for (int s = 0; s < splits; ++s) sum += out.parts[s * count + i];
    const int number = static_cast<int>(i);
    finish(shape, out, number / shape.n, number % shape.n, sum);
  }
}

/// The range of terms [first, end) that this block sums (its split).
struct Terms {
  int first, end;
};
RT_DEVICE Terms terms_of(int k, int depth) {
  const int steps = (k + depth - 1) / depth;
  const int splits = static_cast<int>(gridDim.z), split = static_cast<int>(blockIdx.z);
  const int end = (split + 1) * steps / splits * depth;
  return {split * steps / splits * depth, end < k ? end : k};
}

// --- f32 ---

/// An f32 operand in memory with any strides.
using PlainRows = Strided<float, false>;

/// Computes a matmul in f32 arithmetic, without matrix instructions.
template <typename To, typename Columns>
__global__ void __launch_bounds__(kBlockThreads)
    multiply_plain(PlainRows rows, Columns columns, MatmulShape shape, To out) {
  const Terms terms = terms_of(shape.k, kPlainDepth);
  const ProductPart part{.m = shape.m,
                         .n = shape.n,
                         .row = static_cast<int64_t>(blockIdx.y) * kPlainTile,
                         .column = static_cast<int64_t>(blockIdx.x) * kPlainTile,
                         .begin = terms.first,
                         .end = terms.end};
  const ThreadSums sums = add_products(rows, columns, part);
  for_each_sum(sums, part,
               [&](int64_t row, int64_t column, float sum) { put(shape, out, row, column, sum); });
}

// --- 16 bits ---

/// Returns a 16-byte word whose 16-bit element e is bits(e), or zero for e >= count.
template <typename Bits>
RT_DEVICE rt::Word16 wide_of(int count, Bits bits) {
  rt::Vec<uint32_t, 4> words;
  RT_UNROLL
  for (int w = 0; w < 4; ++w) {
    const uint32_t low = 2 * w < count ? bits(2 * w) : 0U;
    const uint32_t high = 2 * w + 1 < count ? bits(2 * w + 1) : 0U;
    words.at[w] = low | high << 16;
  }
  return rt::bits_as<rt::Word16>(words);
}

/// Operand of a matmul in memory: element (line, term) is at[line * line_stride + term * term_stride]. Types
/// of operands that are computed while they are loaded have the same members along_terms(), wide() and lines.
template <typename T>
struct Operand {
  using Element = T;
  const T* at;
  int64_t line_stride, term_stride;
  int lines;

  /// True if adjacent terms are adjacent in memory, false if adjacent lines are.
  RT_DEVICE bool along_terms() const { return term_stride == 1; }
  /// Returns kWide elements from (line, term) on, adjacent along terms or lines; zero after `lines_left`
  /// lines and `terms_left` terms.
  RT_DEVICE rt::Word16 wide(int line, int term, int lines_left, int terms_left) const {
    const T* from = at + line * line_stride + term * term_stride;
    const bool aligned = (along_terms() ? line_stride : term_stride) % kWide == 0;
    const bool whole = lines_left >= (along_terms() ? 1 : kWide) && terms_left >= (along_terms() ? kWide : 1);
    if (whole && aligned) return *reinterpret_cast<const rt::Word16*>(from);
    const int count = along_terms() ? (lines_left > 0 ? terms_left : 0) : (terms_left > 0 ? lines_left : 0);
    return wide_of(count, [&](int e) { return uint32_t{from[e].bits}; });
  }
};
/// An operand in memory whose 16-byte loads are all aligned, and fully inside or fully outside of the matrix.
template <typename T>
struct AlignedOperand : Operand<T> {};
/// True if `side` meets the requirements of AlignedOperand for k terms, and byte offsets within a block fit
/// in 32 bits.
template <typename T>
bool is_aligned(const Operand<T>& side, int k) {
  const bool along_terms = side.term_stride == 1;
  const int64_t apart = along_terms ? side.line_stride : side.term_stride;
  return (along_terms ? k : side.lines) % kWide == 0 && apart % kWide == 0 && apart < int64_t{1} << 23;
}

/// A thread's part of a tile of kLines lines by kDepth terms, on its way from the operand through registers
/// to shared memory. A thread has two moves of 16 bytes: kWide adjacent terms each (along_terms), or kWide
/// adjacent lines of two adjacent terms. Larger tiles, with more moves per thread, are copied along terms
/// only.
template <typename T, int kLines>
struct Panel {
  static constexpr int kMoves = kLines * kDepth / kWide;
  static constexpr int kLaneElements = kMoves <= 2 * kBlockThreads ? 2 : kMoves / kBlockThreads;
  static_assert(kMoves <= kLaneElements * kBlockThreads);
  rt::Word16 held[kLaneElements];
  bool along_terms;
  int line, term;          ///< position in the tile of the first 16-byte word that this thread copies
  uint32_t shared_offset;  ///< byte offset in shared memory of that word's destination

  RT_DEVICE explicit Panel(bool terms) : along_terms(terms || kLaneElements > 2) {
    const int thread = static_cast<int>(threadIdx.x);
    if (along_terms) {
      line = thread / Swizzle::kSlots;
      term = thread % Swizzle::kSlots * kWide;
    } else {
      const rt::AcrossMove<T, kLines> move(thread);
      line = move.line;
      term = move.term;
    }
    shared_offset = Swizzle::at(line, 2 * term);
  }
  RT_DEVICE bool has_move(int i) const {
    if (kMoves == kLaneElements * kBlockThreads) return true;
    const int thread = static_cast<int>(threadIdx.x);
    return (along_terms ? thread + i * kBlockThreads : kLaneElements * thread) < kMoves;
  }
  RT_DEVICE int line_of(int i) const {
    return along_terms ? line + i * (kBlockThreads / Swizzle::kSlots) : line;
  }
  RT_DEVICE int term_of(int i) const { return along_terms ? term : term + i; }

  /// Stores the thread's registers to a tile in shared memory.
  RT_DEVICE void put(std::byte* shared) {
    RT_UNROLL
    for (int i = 0; i < kLaneElements; ++i) rt::keep_whole(held[i]);
    if (along_terms) {
      static_assert(kBlockThreads / Swizzle::kSlots % (4 * rt::kTile) == 0);
      RT_UNROLL
      for (int i = 0; i < kLaneElements; ++i) {
        std::byte* to = shared + shared_offset + i * kBlockThreads * static_cast<int>(Swizzle::kSlotBytes);
        if (has_move(i)) *reinterpret_cast<rt::Word16*>(to) = held[i];
      }
    } else if (has_move(0)) {
      rt::put_across<T>(shared, shared_offset, held[0], held[1]);
    }
  }

 private:
  using Swizzle = rt::Swizzle;
};

/// Loads tiles of an operand into registers (Panel), kDepth terms per step, by Operand::wide(). A
/// specialization for a right operand may also have finish(panel), which converts the loaded elements before
/// they are stored to shared memory.
template <typename T, int kLines, typename Side>
struct PanelLoader {
  const Side& from;
  int first_line;

  RT_DEVICE PanelLoader(const Panel<T, kLines>& /*panel*/, const Side& side, int line, int /*first_term*/)
      : from(side), first_line(line) {}
  /// Loads terms [first_term, first_term + kDepth); zeros from end_term on and after the last line.
  RT_DEVICE void fetch(Panel<T, kLines>& panel, int first_term, int end_term) const {
    RT_UNROLL
    for (int i = 0; i < panel.kLaneElements; ++i) {
      const int line = first_line + panel.line_of(i), term = first_term + panel.term_of(i);
      panel.held[i] = from.wide(line, term, panel.has_move(i) ? from.lines - line : 0, end_term - term);
    }
  }
};
/// PanelLoader of an AlignedOperand: each move has a constant byte offset from an address that is uniform
/// across the block. Lines past the end of the matrix are clamped to the last ones; their sums are not used.
template <typename T, int kLines>
struct PanelLoader<T, kLines, AlignedOperand<T>> {
  const AlignedOperand<T>& from;
  int first_line;
  uint32_t distance[Panel<T, kLines>::kLaneElements];

  RT_DEVICE PanelLoader(const Panel<T, kLines>& panel, const AlignedOperand<T>& side, int first,
                        int /*first_term*/)
      : from(side), first_line(first) {
    const int last = from.lines - first_line - (from.along_terms() ? 1 : kWide);
    RT_UNROLL
    for (int i = 0; i < panel.kLaneElements; ++i) {
      const int line = panel.line_of(i) < last ? panel.line_of(i) : last;
      const int64_t elements = line * from.line_stride + panel.term_of(i) * from.term_stride;
      distance[i] = static_cast<uint32_t>(elements * int64_t{sizeof(T)});
    }
  }
  RT_DEVICE void fetch(Panel<T, kLines>& panel, int first_term, int end_term) const {
    const auto* at = reinterpret_cast<const std::byte*>(from.at + first_line * from.line_stride +
                                                        first_term * from.term_stride);
    if (first_term + kDepth <= end_term) {
      RT_UNROLL
      for (int i = 0; i < panel.kLaneElements; ++i) {
        if (panel.has_move(i)) panel.held[i] = *reinterpret_cast<const rt::Word16*>(at + distance[i]);
      }
      return;
    }
    RT_UNROLL
    for (int i = 0; i < panel.kLaneElements; ++i) {
      panel.held[i] = {};
      if (panel.has_move(i) && first_term + panel.term_of(i) < end_term)
        panel.held[i] = *reinterpret_cast<const rt::Word16*>(at + distance[i]);
    }
  }
};

/// Block size of a matmul: a block computes rows x columns outputs, with its warps in a grid of warps_down
/// rows. Warps and matrix tiles are counted in rows (down) and columns (across).
template <int rows, int columns, int warps_down>
struct Blocking {
  static constexpr int kRows = rows, kColumns = columns;
  static constexpr bool kAligned = false, kUniform = false;
  static constexpr int kWarpsAcross = kBlockThreads / rt::kWarp / warps_down;
  static constexpr int kTilesDown = rows / warps_down / rt::kTile;
  static constexpr int kTilesAcross = columns / kWarpsAcross / rt::kTile;
  static_assert(kTilesDown >= 1 && (kTilesDown & (kTilesDown - 1)) == 0);
  static_assert(kTilesAcross >= 1 && (kWarpsAcross == 1 || (kTilesAcross & (kTilesAcross - 1)) == 0));
};

/// Accumulators of a warp's grid of matrix tiles, kTilesDown x kTilesAcross.
template <typename T, typename B>
struct WarpTiles {
  /// True if the next fragment is loaded while the current one is multiplied: with many tiles per warp, too
  /// few warps fit on a compute unit to hide the latency of loads.
  static constexpr bool kPrefetch = B::kTilesAcross > 4;
  rt::Acc<T> sums[B::kTilesDown][B::kTilesAcross];
  int row, column;  ///< first tile of the warp within the block, in tiles
  rt::PanelReader<T, rt::Side::left> of_left;
  rt::PanelReader<T, rt::Side::right> of_right;

  RT_DEVICE WarpTiles()
      : row(rt::warp() / B::kWarpsAcross * B::kTilesDown),
        column(rt::warp() % B::kWarpsAcross * B::kTilesAcross),
        of_left(row),
        of_right(column) {}

  /// Adds the product of two tiles in shared memory to the sums.
  RT_DEVICE void add(const std::byte* left, const std::byte* right) {
    // Unrolled by hand: on GPUs without matrix instructions a tile takes much code, and compilers do not
    // unroll the loop.
    static_assert(kDepth == 2 * rt::kTile);
    add_terms(left, right, 0);
    add_terms(left, right, rt::kTile);
  }

 private:
  RT_DEVICE void add_terms(const std::byte* left, const std::byte* right, int first) {
    rt::Fragment<T, rt::Side::left> lines[B::kTilesDown];
    RT_UNROLL
    for (int r = 0; r < B::kTilesDown; ++r) lines[r] = of_left.load(left, r, first);
    rt::Fragment<T, rt::Side::right> next[2];
    next[0] = of_right.load(right, 0, first);
    RT_UNROLL
    for (int s = 0; s < B::kTilesAcross; ++s) {
      const bool is_last = s + 1 == B::kTilesAcross;
      const auto load_next = [&] { next[(s + 1) % 2] = of_right.load(right, s + 1, first); };
      if (kPrefetch && !is_last) {
        load_next();
        rt::keep_order();
      }
      RT_UNROLL
      for (int r = 0; r < B::kTilesDown; ++r) rt::multiply_add(sums[r][s], lines[r], next[s % 2]);
      if (!kPrefetch && !is_last) load_next();
    }
  }
};

/// Double buffer in shared memory for tiles of one operand: one tile is multiplied while the next one is
/// loaded.
template <int lines>
struct TwoPanels {
  alignas(16) std::byte at[2][lines * rt::Swizzle::kLineBytes];
};

/// Computes the block's outputs from (first_row, first_column) on, summed over `terms`, then calls body(row,
/// column, sum) for each output that the thread holds, including outputs outside of the product. body_of(row,
/// column) is called once, for the thread's first output, and returns `body`. The offsets from the first
/// output to the others are equal in all threads. All threads of the block must call this function, and only
/// once per kernel.
template <typename T, typename B, typename Rows, typename Columns, typename BodyOf>
RT_DEVICE void for_each_tile_sum(const Rows& rows, const Columns& columns, int first_row, int first_column,
                                 Terms terms, BodyOf body_of) {
  terms = {rt::uniform_value(terms.first), rt::uniform_value(terms.end)};
  RT_SHARED(left, TwoPanels<B::kRows>);
  RT_SHARED(right, TwoPanels<B::kColumns>);
  Panel<T, B::kRows> next_left(rows.along_terms());
  Panel<T, B::kColumns> next_right(columns.along_terms());
  PanelLoader<T, B::kRows, Rows> feed_left(next_left, rows, first_row, terms.first);
  PanelLoader<T, B::kColumns, Columns> feed_right(next_right, columns, first_column, terms.first);
  WarpTiles<T, B> tiles;
  // False for warps whose outputs are all outside of the product.
  const bool any = first_row + tiles.row * rt::kTile < rows.lines &&
                   first_column + tiles.column * rt::kTile < columns.lines;
  feed_left.fetch(next_left, terms.first, terms.end);
  feed_right.fetch(next_right, terms.first, terms.end);
  const auto step = [&](int next_term, int side) {
    if constexpr (requires { feed_right.finish(next_right); }) feed_right.finish(next_right);
    next_left.put(left.at[side]);
    next_right.put(right.at[side]);
    rt::sync_block();
    if (next_term < terms.end) {
      feed_left.fetch(next_left, next_term, terms.end);
      feed_right.fetch(next_right, next_term, terms.end);
    }
    if (any) tiles.add(left.at[side], right.at[side]);
  };
  for (int p = terms.first; p < terms.end; p += 2 * kDepth) {
    step(p + kDepth, 0);
    if (p + kDepth < terms.end) step(p + 2 * kDepth, 1);
  }
  const int row = first_row + tiles.row * rt::kTile + rt::Acc<T>::row(0);
  const int column = first_column + tiles.column * rt::kTile + rt::Acc<T>::column(0);
  const auto body = body_of(row, column);
  RT_UNROLL
  for (int r = 0; r < B::kTilesDown; ++r) {
    RT_UNROLL
    for (int s = 0; s < B::kTilesAcross; ++s) {
      const auto& tile = tiles.sums[r][s];
      RT_UNROLL
      for (int e = 0; e < rt::kLaneElements; ++e)
        body(row + (r * rt::kTile + tile.row(e) - tile.row(0)),
             column + (s * rt::kTile + tile.column(e) - tile.column(0)), tile.at[e]);
    }
  }
}

template <typename T, typename To, typename B, typename Rows, typename Columns>
__global__ void __launch_bounds__(kBlockThreads)
    multiply_tiles(Rows rows, Columns columns, MatmulShape shape, To out) {
  for_each_tile_sum<T, B>(
      rows, columns, static_cast<int>(blockIdx.y) * B::kRows, static_cast<int>(blockIdx.x) * B::kColumns,
      terms_of(shape.k, kDepth),
      [&](int, int) { return [&](int row, int column, float sum) { put(shape, out, row, column, sum); }; });
}

// --- host ---

/// Block sizes of the variants: rows of outputs, columns of outputs, and rows of the grid of warps.
using Large = Blocking<128, 128, 4>;
using Small = Blocking<64, 64, 4>;
using Narrow = Blocking<128, 64, 4>;
using Tall = Blocking<128, 16, 8>;
using Wide = Blocking<16, 128, 1>;

/// True if an m x n product fills at least one large block.
inline bool fills_large(int64_t m, int64_t n) { return m >= Large::kRows && n >= Large::kColumns; }

struct Extent {
  int rows, columns;
};
/// Returns the numbers of output rows and columns per block of a variant.
inline Extent extent_of(MatmulVariant way) {
  if (way == MatmulVariant::large) return {Large::kRows, Large::kColumns};
  if (way == MatmulVariant::small) return {Small::kRows, Small::kColumns};
  if (way == MatmulVariant::tall) return {Tall::kRows, Tall::kColumns};
  if (way == MatmulVariant::wide) return {Wide::kRows, Wide::kColumns};
  return {kPlainTile, kPlainTile};
}
/// Returns the number of blocks of a variant, without splits.
inline int64_t num_blocks(const MatmulShape& shape, MatmulVariant way) {
  const Extent extent = extent_of(way);
  return ceil_div(shape.m, extent.rows) * ceil_div(shape.n, extent.columns);
}

/// Variant and number of splits of a matmul; both depend only on the shape.
struct MatmulPlan {
  MatmulShape shape;
  MatmulVariant way;
  int splits;

  MatmulPlan(const MatmulShape& of, MatmulVariant by)
      : shape(of), way(by), splits(choose_splits(num_blocks(of, by), of.k)) {}
  /// Returns the bytes of the partial sums (Out::parts); 0 without split-K.
  int64_t workspace_bytes() const {
    return splits == 1 ? 0 : int64_t{splits} * shape.m * shape.n * int64_t{sizeof(float)};
  }
  float* parts(std::byte* workspace) const {
    return splits == 1 ? nullptr : reinterpret_cast<float*>(workspace);
  }
  rt::Shape launch_shape() const {
    const Extent extent = extent_of(way);
    return {rt::Dim3{static_cast<unsigned>(ceil_div(shape.n, extent.columns)),
                     static_cast<unsigned>(ceil_div(shape.m, extent.rows)), static_cast<unsigned>(splits)},
            rt::Dim3{kBlockThreads, 1, 1}};
  }
};

/// Returns the kernel of a variant.
template <typename T, typename To, typename Rows, typename Columns>
auto matmul_kernel(MatmulVariant way) {
  if constexpr (std::is_same_v<T, float>) {
    return multiply_plain<To, Columns>;
  } else {
    if (way == MatmulVariant::tall) return multiply_tiles<T, To, Tall, Rows, Columns>;
    if (way == MatmulVariant::wide) return multiply_tiles<T, To, Wide, Rows, Columns>;
    if constexpr (!requires { typename Columns::NoLargeBlocks; }) {
      if (way == MatmulVariant::large) return multiply_tiles<T, To, Large, Rows, Columns>;
    }
    return multiply_tiles<T, To, Small, Rows, Columns>;
  }
}

/// Launches a matmul, and the reduction if it uses split-K. For f32, `rows` is PlainRows and `columns` a side
/// (plain_product.h); for 16-bit dtypes both have the interface of Operand.
template <typename T, typename To, typename Rows, typename Columns>
void launch_matmul(void* stream, const MatmulPlan& plan, const Rows& rows, const Columns& columns,
                   const To& out) {
  const MatmulShape& shape = plan.shape;
  rt::launch(matmul_kernel<T, To, Rows, Columns>(plan.way), plan.launch_shape(), stream, rows, columns, shape,
             out);
  if (plan.splits == 1) return;
  const int64_t count = static_cast<int64_t>(shape.m) * shape.n;
  rt::launch(add_parts<To>, {num_stride_blocks(count), kBlockThreads}, stream, shape, out, plan.splits);
}

}  // namespace hearth::ops
