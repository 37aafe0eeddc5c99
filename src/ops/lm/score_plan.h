#pragma once

#include <algorithm>
#include <cstdint>

#include "ir/op_def.h"

namespace hearth::ops {

/// Queries per block of the product dq = dS k, and granularity of the ranges of queries.
inline constexpr int kScoreRows = 64;
/// Default of attention_grad's attribute `score_bytes`: max bytes of workspace for gradients of scores (dS)
/// and partial sums of dk and dv. 0: dS is not stored.
inline constexpr int64_t kMaxScoreBytes = int64_t{256} << 20;
/// Number of blocks of keys that keep a large GPU busy. Constant for all GPUs, because the order of sums must
/// not depend on the GPU.
inline constexpr int64_t kBusyKeyBlocks = 1024;
/// Max number of samples per launch, so that there are at most 65,535 blocks along each axis.
inline constexpr int64_t kMaxGridSize = 8192;

/// Sizes of an attention node.
struct ScoreShape {
  int64_t batch, kv_heads, queries_per_key;  ///< query heads per key head
  int64_t time, head_size;                   ///< head_size of the kernel, with padding
};

/// Division of the backward pass of attention in 16 bits on a GPU. Heads are processed in groups: all heads
/// of some samples, or some key heads of one sample with their query heads. For each group and each range of
/// queries, one kernel stores dS and adds to the sums of dk and dv, and a matmul computes dq. Sums are stored
/// between ranges. If dS of kScoreRows queries of one key head exceeds the limit, dS is not stored: the
/// scores are computed twice, by seven matmuls instead of five.
struct ScorePlan {
  int64_t samples, key_heads;  ///< samples per group, and key heads of each
  int64_t queries;             ///< queries per range, a multiple of kScoreRows
  int64_t score_bytes = 0, sum_bytes = 0;

  ScorePlan(const ScoreShape& of, int64_t max_bytes)
      : samples(std::min(of.batch, kMaxGridSize)), key_heads(of.kv_heads), queries(padded(of.time)) {
    const int64_t time = padded(of.time), bytes_per_query = 2 * of.queries_per_key * time;
    const int64_t bytes_of_sums = 2 * int64_t{sizeof(float)} * time * of.head_size;
    const int64_t busy = std::max<int64_t>(1, kBusyKeyBlocks * kScoreRows / time);
    for (int64_t group = std::min(busy, of.batch * of.kv_heads); group > 0; group /= 2) {
      const int64_t bytes = max_bytes / group;
      const bool fits = bytes_per_query * time <= bytes;
      const int64_t max_size =
          fits ? time : (bytes - bytes_of_sums) / bytes_per_query / kScoreRows * kScoreRows;
      if (max_size <= 0) continue;
      samples = even(of.batch, std::max<int64_t>(1, group / of.kv_heads));
      key_heads = even(of.kv_heads, std::min(group, of.kv_heads));
      queries = padded(even(time, max_size));
      score_bytes = samples * key_heads * bytes_per_query * queries;
      sum_bytes = fits ? 0 : samples * key_heads * bytes_of_sums;
      return;
    }
  }
  bool is_stored() const { return score_bytes > 0; }
  /// Returns `count` rounded up to a multiple of kScoreRows.
  static int64_t padded(int64_t count) { return (count + kScoreRows - 1) / kScoreRows * kScoreRows; }

 private:
  /// Returns the size of the parts if `total` is divided into as few equal parts of at most `max_size` as
  /// possible.
  static int64_t even(int64_t total, int64_t max_size) {
    const int64_t parts = (total + max_size - 1) / max_size;
    return (total + parts - 1) / parts;
  }
};

/// Returns the plan of an attention_grad node. dS is not stored for f32, for head_size above 128, whose
/// kernels compute slices of the columns, and if rows of a head are not aligned to 16 bytes.
inline ScorePlan score_plan_of(const ir::NodeView& node) {
  const int64_t batch = node.attrs.integer("batch"), kv_heads = node.attrs.integer("kv_heads");
  const int64_t head_size = node.attrs.integer("head_size");
  const bool fits = dtype_bytes(node.in_type(0).dtype) == 2 && head_size % 8 == 0 && head_size <= 128;
  return {{.batch = batch,
           .kv_heads = kv_heads,
           .queries_per_key = node.attrs.integer("heads") / kv_heads,
           .time = node.in_type(0).shape[0] / batch,
           .head_size = (head_size + 31) / 32 * 32},
          fits ? node.attrs.integer_or("score_bytes", kMaxScoreBytes) : 0};
}

}  // namespace hearth::ops
