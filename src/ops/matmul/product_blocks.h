#pragma once

#include "backend/gpu/rt_tile.h"
#include "ops/gpu_support.h"
#include "ops/matmul/matmul_kernel.h"
#include "ops/matmul/plain_product.h"

/// What matmuls on GPUs are made of, for kernels whose right side is made while it is read.
namespace hearth::ops {

/// Terms that a block of tiles holds at a time, and the room of a line: 16 bytes more keep lines on
/// different banks.
inline constexpr int kDepth = 32;
inline constexpr int kLine = kDepth + 8;
/// Elements of a wide move.
inline constexpr int kWide = 8;

/// Where a block's sums go.
template <typename C>
struct Out {
  Epilogue<C> epilogue;
  C* c;
  float* parts;  ///< [splits][m][n]; null: straight into c
};

template <typename C>
RT_DEVICE void finish(const MatmulShape& shape, const Out<C>& out, int64_t row, int64_t column, float sum) {
  const int64_t at = row * shape.c_row + column;
  out.c[at] = out.epilogue(sum, column, at);
}
template <typename C>
RT_DEVICE void put(const MatmulShape& shape, const Out<C>& out, int64_t row, int64_t column, float sum) {
  if (row >= shape.m || column >= shape.n) return;
  if (out.parts == nullptr) return finish(shape, out, row, column, sum);
  out.parts[(blockIdx.z * static_cast<int64_t>(shape.m) + row) * shape.n + column] = sum;
}

/// Adds the parts of a matmul whose terms were dealt out.
template <typename C>
__global__ void __launch_bounds__(kBlockThreads) add_parts(MatmulShape shape, Out<C> out, int splits) {
  const int64_t count = static_cast<int64_t>(shape.m) * shape.n;
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    float sum = 0;
    for (int s = 0; s < splits; ++s) sum += out.parts[s * count + i];
    finish(shape, out, i / shape.n, i % shape.n, sum);
  }
}

/// The terms of this block: [first, end).
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

/// A side in memory, whichever way it lies.
using PlainRows = Strided<float, false>;

/// Plain arithmetic, for any GPU.
template <typename C, typename Columns>
__global__ void __launch_bounds__(kBlockThreads)
    multiply_plain(PlainRows rows, Columns columns, MatmulShape shape, Out<C> out) {
  const Terms terms = terms_of(shape.k, kPlainDepth);
  const ProductPart part{.m = shape.m,
                         .n = shape.n,
                         .row = static_cast<int64_t>(blockIdx.y) * kPlainTile,
                         .column = static_cast<int64_t>(blockIdx.x) * kPlainTile,
                         .begin = terms.first,
                         .end = terms.end};
  const OwnSums sums = add_products(rows, columns, part);
  for_each_sum(sums, part,
               [&](int64_t row, int64_t column, float sum) { put(shape, out, row, column, sum); });
}

// --- 16 bits ---

/// A wide move whose 16-bit element e is bits(e), zero from `count` on.
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

/// One side of a matmul in memory: element (line, term) at line * line_stride + term * term_stride. A side
/// of another kind, which is made while it is read, has the same members.
template <typename T>
struct Operand {
  using Element = T;
  const T* at;
  int64_t line_stride, term_stride;
  int lines;

  /// Whether the terms of a line lie side by side, or the lines of a term.
  RT_DEVICE bool along_terms() const { return term_stride == 1; }
  /// kWide elements from (line, term) on, zeros after `lines_left` lines and `terms_left` terms.
  RT_DEVICE rt::Word16 wide(int line, int term, int lines_left, int terms_left) const {
    const T* from = at + line * line_stride + term * term_stride;
    const bool aligned = (along_terms() ? line_stride : term_stride) % kWide == 0;
    const bool whole = lines_left >= (along_terms() ? 1 : kWide) && terms_left >= (along_terms() ? kWide : 1);
    if (whole && aligned) return *reinterpret_cast<const rt::Word16*>(from);
    const int count = along_terms() ? (lines_left > 0 ? terms_left : 0) : (terms_left > 0 ? lines_left : 0);
    return wide_of(count, [&](int e) { return uint32_t{from[e].bits}; });
  }
};

/// kLines lines of a block's terms, on their way from the operand through registers into shared memory.
template <typename T, int kLines>
struct Panel {
  static constexpr int kMoves = kLines * kDepth / kWide;
  static constexpr int kOwnMoves = (kMoves + kBlockThreads - 1) / kBlockThreads;
  rt::Word16 held[kOwnMoves];

  /// Reads the terms [first_term, first_term + kDepth), zeros after end_term and after the last line.
  template <typename Side>
  RT_DEVICE void fetch(const Side& from, int first_line, int first_term, int end_term) {
    RT_UNROLL
    for (int i = 0; i < kOwnMoves; ++i) {
      const int move = static_cast<int>(threadIdx.x) + i * kBlockThreads;
      const bool along_terms = from.along_terms();
      const int line = first_line + (along_terms ? move / (kDepth / kWide) : move % (kLines / kWide) * kWide);
      const int term = first_term + (along_terms ? move % (kDepth / kWide) * kWide : move / (kLines / kWide));
      held[i] = from.wide(line, term, move < kMoves ? from.lines - line : 0, end_term - term);
    }
  }
  /// Into lines of kLine elements, terms side by side.
  RT_DEVICE void put(T* shared, bool along_terms) const {
    RT_UNROLL
    for (int i = 0; i < kOwnMoves; ++i) {
      const int move = static_cast<int>(threadIdx.x) + i * kBlockThreads;
      if (move >= kMoves) continue;
      if (along_terms) {
        *reinterpret_cast<rt::Word16*>(shared + move / (kDepth / kWide) * kLine +
                                       move % (kDepth / kWide) * kWide) = held[i];
        continue;
      }
      const auto values = rt::bits_as<rt::Vec<T, kWide>>(held[i]);
      T* to = shared + move % (kLines / kWide) * kWide * kLine + move / (kLines / kWide);
      RT_UNROLL
      for (int e = 0; e < kWide; ++e) to[e * kLine] = values.at[e];
    }
  }
};

/// A block makes kRows x kColumns; its warps stand kWarpsDown below each other.
template <int rows, int columns, int warps_down>
struct Blocking {
  static constexpr int kRows = rows, kColumns = columns;
  static constexpr int kWarpsAcross = kBlockThreads / rt::kWarp / warps_down;
  static constexpr int kTilesDown = rows / warps_down / rt::kTile;
  static constexpr int kTilesAcross = columns / kWarpsAcross / rt::kTile;
  static_assert(kTilesDown >= 1 && kTilesAcross >= 1);
};

/// The sums of a warp's tiles.
template <typename T, typename B>
struct WarpTiles {
  rt::Acc<T> sums[B::kTilesDown][B::kTilesAcross];

  /// left: this warp's first line of the block's left panel; right alike.
  RT_DEVICE void add(const T* left, const T* right) {
    RT_UNROLL
    for (int t = 0; t < kDepth; t += rt::kTile) {
      decltype(rt::load_left(left, kLine)) lines[B::kTilesDown];
      RT_UNROLL
      for (int r = 0; r < B::kTilesDown; ++r)
        lines[r] = rt::load_left(left + r * rt::kTile * kLine + t, kLine);
      RT_UNROLL
      for (int s = 0; s < B::kTilesAcross; ++s) {
        const auto column = rt::load_right(right + s * rt::kTile * kLine + t, kLine);
        RT_UNROLL
        for (int r = 0; r < B::kTilesDown; ++r) rt::multiply_add(sums[r][s], lines[r], column);
      }
    }
  }
};

/// Shared memory of two panels: one is multiplied while the next is on its way.
template <typename T, int lines>
struct Panels {
  T at[2][lines * kLine];
};

/// Calls body(row, column, sum over `terms`) for each output of a block, from (first_row, first_column) on,
/// that the thread holds, whether it exists or not. All threads must call it, once in a kernel.
template <typename T, typename B, typename Rows, typename Columns, typename Body>
RT_DEVICE void for_each_tile_sum(const Rows& rows, const Columns& columns, int first_row, int first_column,
                                 Terms terms, Body body) {
  RT_SHARED(left, Panels<T, B::kRows>);
  RT_SHARED(right, Panels<T, B::kColumns>);
  const int warp_row = rt::warp() / B::kWarpsAcross * B::kTilesDown * rt::kTile;
  const int warp_column = rt::warp() % B::kWarpsAcross * B::kTilesAcross * rt::kTile;
  Panel<T, B::kRows> next_left;
  Panel<T, B::kColumns> next_right;
  WarpTiles<T, B> tiles;
  next_left.fetch(rows, first_row, terms.first, terms.end);
  next_right.fetch(columns, first_column, terms.first, terms.end);
  int side = 0;
  for (int p = terms.first; p < terms.end; p += kDepth) {
    next_left.put(left.at[side], rows.along_terms());
    next_right.put(right.at[side], columns.along_terms());
    rt::sync_block();
    next_left.fetch(rows, first_row, p + kDepth, terms.end);
    next_right.fetch(columns, first_column, p + kDepth, terms.end);
    tiles.add(left.at[side] + warp_row * kLine, right.at[side] + warp_column * kLine);
    side = 1 - side;
  }
  RT_UNROLL
  for (int r = 0; r < B::kTilesDown; ++r) {
    RT_UNROLL
    for (int s = 0; s < B::kTilesAcross; ++s) {
      const auto& tile = tiles.sums[r][s];
      RT_UNROLL
      for (int e = 0; e < rt::kOwn; ++e)
        body(first_row + warp_row + r * rt::kTile + tile.row(e),
             first_column + warp_column + s * rt::kTile + tile.column(e), tile.at[e]);
    }
  }
}

template <typename T, typename C, typename B, typename Columns>
__global__ void __launch_bounds__(kBlockThreads)
    multiply_tiles(Operand<T> rows, Columns columns, MatmulShape shape, Out<C> out) {
  for_each_tile_sum<T, B>(rows, columns, static_cast<int>(blockIdx.y) * B::kRows,
                          static_cast<int>(blockIdx.x) * B::kColumns, terms_of(shape.k, kDepth),
                          [&](int row, int column, float sum) { put(shape, out, row, column, sum); });
}

// --- what the host decides ---

using Large = Blocking<128, 128, 4>;
using Small = Blocking<64, 64, 4>;
using Tall = Blocking<128, 16, 8>;
using Wide = Blocking<16, 128, 1>;

/// Blocks that keep a GPU of the middle busy, whichever GPU it is: the order of sums must not depend on it.
inline constexpr int64_t kBusy = 96;
inline constexpr int64_t kMostSplits = 32;
/// Terms that a split must have at least, so that its sums are worth a detour.
inline constexpr int64_t kLeastTerms = 256;

struct Extent {
  int rows, columns;
};
inline Extent extent_of(MatmulWay way) {
  if (way == MatmulWay::large) return {Large::kRows, Large::kColumns};
  if (way == MatmulWay::small) return {Small::kRows, Small::kColumns};
  if (way == MatmulWay::tall) return {Tall::kRows, Tall::kColumns};
  if (way == MatmulWay::wide) return {Wide::kRows, Wide::kColumns};
  return {kPlainTile, kPlainTile};
}
inline int64_t num_blocks(const MatmulShape& shape, MatmulWay way) {
  const Extent extent = extent_of(way);
  return divided_up(shape.m, extent.rows) * divided_up(shape.n, extent.columns);
}
inline int choose_splits(const MatmulShape& shape, MatmulWay way) {
  const int64_t wanted = kBusy / num_blocks(shape, way), most = shape.k / kLeastTerms;
  return static_cast<int>(std::clamp<int64_t>(std::min(wanted, most), 1, kMostSplits));
}

/// How a matmul is done, which its shape alone decides.
struct MatmulPlan {
  MatmulShape shape;
  MatmulWay way;
  int splits;

  MatmulPlan(const MatmulShape& of, MatmulWay by) : shape(of), way(by), splits(choose_splits(of, by)) {}
  /// Of Out::parts.
  int64_t workspace_bytes() const {
    return splits == 1 ? 0 : int64_t{splits} * shape.m * shape.n * int64_t{sizeof(float)};
  }
  float* parts(std::byte* workspace) const {
    return splits == 1 ? nullptr : reinterpret_cast<float*>(workspace);
  }
  rt::Shape launch_shape() const {
    const Extent extent = extent_of(way);
    return {rt::Dim3{static_cast<unsigned>(divided_up(shape.n, extent.columns)),
                     static_cast<unsigned>(divided_up(shape.m, extent.rows)), static_cast<unsigned>(splits)},
            rt::Dim3{kBlockThreads, 1, 1}};
  }
};

template <typename T, typename C, typename Columns>
auto matmul_kernel(MatmulWay way) {
  if constexpr (std::is_same_v<T, float>) {
    return multiply_plain<C, Columns>;
  } else {
    if (way == MatmulWay::tall) return multiply_tiles<T, C, Tall, Columns>;
    if (way == MatmulWay::wide) return multiply_tiles<T, C, Wide, Columns>;
    return way == MatmulWay::large ? multiply_tiles<T, C, Large, Columns>
                                   : multiply_tiles<T, C, Small, Columns>;
  }
}

/// rows: PlainRows or an Operand, and columns a side of the same kind.
template <typename T, typename C, typename Rows, typename Columns>
void launch_matmul(void* stream, const MatmulPlan& plan, const Rows& rows, const Columns& columns,
                   const Out<C>& out) {
  const MatmulShape& shape = plan.shape;
  rt::launch(matmul_kernel<T, C, Columns>(plan.way), plan.launch_shape(), stream, rows, columns, shape, out);
  if (plan.splits == 1) return;
  const int64_t count = static_cast<int64_t>(shape.m) * shape.n;
  rt::launch(add_parts<C>, {num_stride_blocks(count), kBlockThreads}, stream, shape, out, plan.splits);
}

}  // namespace hearth::ops
