#pragma once

#include "backend/gpu/rt_tile.h"
#include "ops/gpu_support.h"

/// What the kernels of attention for GPUs share. A block works on the rows of one side (of one head of one
/// sample), kept in shared memory, and takes the other side's tile after tile.
namespace hearth::ops {

struct Attention {
  int batch, time, heads, kv_heads, size;
  float scale, softcap;
  int window;
  bool causal;

  RT_DEVICE int64_t q_row() const { return static_cast<int64_t>(heads) * size; }
  RT_DEVICE int64_t kv_row() const { return static_cast<int64_t>(kv_heads) * size; }
  RT_DEVICE bool sees(int query, int key, int start) const {
    if (query >= time || key >= time || (causal && key > query)) return false;
    return (window == 0 || query - key < window) && (key >= start || key == query);
  }
};
inline Attention attention_of(const ir::NodeView& node) {
  const int64_t batch = node.attrs.integer("batch");
  return {.batch = static_cast<int>(batch),
          .time = static_cast<int>(node.in_type(0).shape[0] / batch),
          .heads = static_cast<int>(node.attrs.integer("heads")),
          .kv_heads = static_cast<int>(node.attrs.integer("kv_heads")),
          .size = static_cast<int>(node.attrs.integer("head_size")),
          .scale = static_cast<float>(node.attrs.real("scale")),
          .softcap = static_cast<float>(node.attrs.real_or("softcap", 0)),
          .window = static_cast<int>(node.attrs.integer_or("window", 0)),
          .causal = node.attrs.integer_or("causal", 1) != 0};
}

/// The score of a product of query and key, and its slope over that product.
struct Score {
  float value, slope;
};
RT_DEVICE Score score_of(const Attention& spec, float product) {
  const float plain = spec.scale * product;
  if (spec.softcap == 0) return {plain, spec.scale};
  const float t = tanhf(plain / spec.softcap);
  return {spec.softcap * t, spec.scale * (1 - t * t)};
}
RT_DEVICE float exponential(float x) { return exp2f(x * 1.44269504F); }

/// Heads are padded to one of these sizes; columns are held a slice at a time, so that both sides fit.
template <typename T, int size>
struct Slices {
  static constexpr int kSize = size;
  static constexpr int kMost = sizeof(T) == 4 ? 64 : 128;
  static constexpr int kCount = (size + kMost - 1) / kMost;
  static constexpr int kSlice = size / kCount;
  static_assert(kSlice % rt::kTile == 0);
};
/// Elements that keep lines of shared memory aligned and on different banks.
template <typename T>
inline constexpr int kPadding = static_cast<int>(16 / sizeof(T));

/// Rows of one head of one sample: element (r, c) at r * stride + c.
template <typename T>
struct HeadRows {
  const T* at;
  int64_t stride;
  int num_rows, num_columns;

  /// kPadding<T> elements side by side, zeros where there are none.
  RT_DEVICE rt::Vec<T, kPadding<T>> read(int row, int column) const {
    constexpr int kWide = kPadding<T>;
    const T* from = at + row * stride + column;
    if (row < num_rows && column + kWide <= num_columns && num_columns % kWide == 0)
      return rt::load<T, kWide>(from);
    rt::Vec<T, kWide> made;
    RT_UNROLL
    for (int e = 0; e < kWide; ++e)
      made.at[e] = row < num_rows && column + e < num_columns ? from[e] : rt::from_float<T>(0.0F);
    return made;
  }
};

/// Where a query head of a sample lies, and the key head that it reads.
struct HeadPlace {
  int64_t first_token, q, kv;

  RT_DEVICE HeadPlace(const Attention& spec, int sample, int head)
      : first_token(static_cast<int64_t>(sample) * spec.time),
        q(first_token * spec.q_row() + static_cast<int64_t>(head) * spec.size),
        kv(first_token * spec.kv_row() +
           static_cast<int64_t>(head) * spec.kv_heads / spec.heads * spec.size) {}
  template <typename T>
  RT_DEVICE HeadRows<T> queries(const T* all, const Attention& spec) const {
    return {all + q, spec.q_row(), spec.time, spec.size};
  }
  template <typename T>
  RT_DEVICE HeadRows<T> keys(const T* all, const Attention& spec) const {
    return {all + kv, spec.kv_row(), spec.time, spec.size};
  }
  /// Null: every token sees from 0 on.
  RT_DEVICE const int32_t* starts(const int32_t* all) const {
    return all == nullptr ? nullptr : all + first_token;
  }
};

/// Copies `rows` x `columns` from (first_row, first_column) on into lines of columns + kPadding.
template <int rows, int columns, typename T>
RT_DEVICE void copy_lines(T* to, const HeadRows<T>& from, int first_row, int first_column) {
  constexpr int kWide = kPadding<T>, kMoves = columns / kWide;
  for (int i = static_cast<int>(threadIdx.x); i < rows * kMoves; i += static_cast<int>(blockDim.x)) {
    const int row = i / kMoves, column = i % kMoves * kWide;
    rt::store(to + row * (columns + kWide) + column, from.read(first_row + row, first_column + column));
  }
}
/// The same with a line per column, of rows + kPadding.
template <int rows, int columns, typename T>
RT_DEVICE void copy_across(T* to, const HeadRows<T>& from, int first_row, int first_column) {
  constexpr int kWide = kPadding<T>, kMoves = columns / kWide;
  for (int i = static_cast<int>(threadIdx.x); i < rows * kMoves; i += static_cast<int>(blockDim.x)) {
    const int row = i % rows, column = i / rows * kWide;
    const auto read = from.read(first_row + row, first_column + column);
    RT_UNROLL
    for (int e = 0; e < kWide; ++e) to[(column + e) * (rows + kWide) + row] = read.at[e];
  }
}

/// sums[t] += left (16 lines) * right (16 lines for each t), both `terms` wide.
template <int terms, int tiles, typename T>
RT_DEVICE void add_products(rt::Acc<T> (&sums)[tiles], const T* left, const T* right) {
  constexpr int kLine = terms + kPadding<T>;
  RT_UNROLL
  for (int c = 0; c < terms; c += rt::kTile) {
    const auto lines = rt::load_left(left + c, kLine);
    RT_UNROLL
    for (int t = 0; t < tiles; ++t)
      rt::multiply_add(sums[t], lines, rt::load_right(right + t * rt::kTile * kLine + c, kLine));
    rt::keep_order(sums[tiles - 1].at[0]);
  }
}

/// Whether any of the queries sees any of the keys; alike in all threads.
RT_DEVICE bool any_meet(const Attention& spec, const int32_t* starts, int first_query, int num_queries,
                        int first_key, int num_keys) {
  const int last_query = first_query + num_queries - 1, last_key = first_key + num_keys - 1;
  if (spec.causal && first_key > last_query) return false;
  if (spec.window > 0 && first_query - last_key >= spec.window) return false;
  if (starts == nullptr || first_query <= last_key) return true;
  for (int q = first_query; q <= last_query && q < spec.time; ++q) {
    if (starts[q] <= last_key) return true;
  }
  return false;
}

/// Calls body(size of Slices) for the size that holds the node's heads.
template <typename Body>
ir::Kernel with_head_size(int size, Body body) {
  if (size <= 32) return body(std::integral_constant<int, 32>());
  if (size <= 64) return body(std::integral_constant<int, 64>());
  if (size <= 96) return body(std::integral_constant<int, 96>());
  if (size <= 128) return body(std::integral_constant<int, 128>());
  if (size <= 256) return body(std::integral_constant<int, 256>());
  refuse_on_gpu("head_size", 256, size);
}

}  // namespace hearth::ops
