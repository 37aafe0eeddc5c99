#pragma once

#include <algorithm>

#include "backend/cpu/blocks.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd/simd.h"
#include "base/dtype.h"
#include "base/threads.h"
#include "ops/loss/distill_formula.h"

namespace hearth::cpu {

/// Shapes and options of an LM head: logits = x weight^T, x [tokens, width], weight [vocab, width], and their
/// cross-entropy with labels. Logits are f32. If x and weight are bf16 and the CPU has instructions that
/// multiply pairs of bf16, gradients of logits are rounded to bf16 for the matmuls with x and weight, as in
/// torch.autocast.
struct HeadSpec {
  /// Outputs of a run. losses: losses and lse. gradients: dx and dweight, with the softmax recomputed from
  /// lse. both: losses, dx and dweight. top_k: the most likely tokens.
  enum class Task : uint8_t { losses, gradients, both, top_k };
  Task task = Task::losses;
  int64_t tokens = 0;
  int64_t width = 0;
  int64_t vocab = 0;
  int64_t chunk = 256;  ///< maximum number of tokens whose logits are in memory at a time
  float softcap = 0;    ///< logits = softcap * tanh(x weight^T / softcap); 0: no cap
  DType x = DType::f32;
  DType weight = DType::f32;
  bool frozen = false;     ///< true if dweight is not needed
  int64_t top_k = 0;       ///< number of tokens that a teacher or the task top_k lists per token
  int64_t num_listed = 0;  ///< task top_k: lists tokens with ids below this number only
  ops::DistillFormula distill;
  int num_threads = 1;
};

/// Number of vocabulary rows per tile: the logits of a tile for a chunk of tokens stay in the L2 cache.
inline constexpr int64_t kHeadTileRows = kRowBlock;
/// Minimum number of vocabulary rows per part. The vocabulary is split into parts with separate partial sums.
inline constexpr int64_t kMinHeadPartRows = 16;

/// True if the task computes dx.
inline bool has_gradients(const HeadSpec& s) {
  return s.task == HeadSpec::Task::gradients || s.task == HeadSpec::Task::both;
}

/// Workspace layout, in floats. Logits are stored transposed: [vocab][chunk].
struct HeadLayout {
  bool pairs;  ///< true if matmuls multiply pairs of bf16; gradients of logits are then rounded to bf16
  bool keeps_logits;  ///< true if the workspace has the logits of a full chunk, not of a tile
  // Offsets in floats of arrays in the workspace, except num_parts, sizes (total, *_floats) and members with
  // a comment.
  int64_t chunk;      ///< number of tokens of a full chunk
  int64_t logit_row;  ///< row stride of logits, in floats
  int64_t tokens = 0, x = 0, x_panels = 0, x_columns = 0, lse = 0, factor = 0, of_label = 0, logits = 0;
  int64_t listed = 0;  ///< [chunk][top_k]: student's logits of the teacher's tokens, then their gradients
  int64_t tail_gradient = 0;  ///< [chunk]: gradient of the logsumexp of all other logits
  int64_t parts = 0, threads = 0, total = 0;
  int64_t dx = 0, row_max = 0, sum = 0;                               ///< offsets within a part's workspace
  int64_t tile = 0, weight = 0, packed = 0, panel = 0, next_max = 0;  ///< offsets within a thread's workspace
  int64_t x_rows = 0;                      ///< rows of x in bf16, two adjacent tokens in each 32-bit word
  int64_t rounded = 0, rounded_pairs = 0;  ///< per thread: a tile's gradients of logits in bf16
  int64_t num_parts = 0, part_floats = 0, thread_floats = 0;

  explicit HeadLayout(const HeadSpec& s) {
    pairs = has_pairs(s.x, s.weight, s.width);
    keeps_logits = s.task == HeadSpec::Task::both || (s.task != HeadSpec::Task::losses && s.top_k > 0);
    chunk = std::max<int64_t>(1, std::min(s.chunk, s.tokens));
    logit_row = round_up(chunk, 16) + 16;
    place_shared(s);
    place_parts(s);
    place_threads(s);
    num_parts = num_sum_parts(s.vocab, kMinHeadPartRows);
    threads = parts + num_parts * part_floats;
    total = threads + s.num_threads * thread_floats;
  }

 private:
  static int64_t take(int64_t& next, bool wanted, int64_t count) {
    const int64_t at = next;
    if (wanted) next += round_up(count, 16);
    return at;
  }
  void place_shared(const HeadSpec& s) {
    int64_t next = 0;
    tokens = take(next, true, s.tokens);
    const bool sums = has_gradients(s) && !s.frozen;
    const int64_t width = pairs ? s.width / 2 : s.width;
    const int64_t rows = pairs ? (chunk + 1) / 2 : chunk;
    x = take(next, true, (chunk + 1) * width);
    x_panels = take(next, true, panel_floats(width, chunk));
    x_rows = take(next, pairs && sums, rows * s.width);
    x_columns = take(next, sums, panel_floats(rows, s.width));
    lse = take(next, true, chunk);
    factor = take(next, true, chunk);
    of_label = take(next, true, chunk);
    const bool has_teacher = s.top_k > 0 && s.task != HeadSpec::Task::top_k;
    listed = take(next, has_teacher, chunk * s.top_k);
    tail_gradient = take(next, has_teacher, chunk);
    logits = take(next, keeps_logits, s.vocab * logit_row);
    parts = next;
  }
  void place_parts(const HeadSpec& s) {
    int64_t next = 0;
    dx = take(next, has_gradients(s), chunk * s.width);
    row_max = take(next, true, chunk);
    sum = take(next, true, chunk);
    part_floats = next;
  }
  void place_threads(const HeadSpec& s) {
    const bool gradients = has_gradients(s);
    int64_t next = 0;
    tile = take(next, !keeps_logits, kHeadTileRows * logit_row);
    weight = take(next, s.weight != DType::f32 && !pairs, kHeadTileRows * s.width);
    rounded = take(next, pairs && gradients, kHeadTileRows * logit_row / 2);
    rounded_pairs = take(next, pairs && gradients, kHeadTileRows / 2 * logit_row);
    const int64_t for_logits =
        packs_a(chunk) ? packed_floats(kHeadTileRows, pairs ? s.width / 2 : s.width) : 0;
    const int64_t for_gradients =
        std::max(packed_floats(kHeadTileRows, chunk), packed_floats(chunk, kHeadTileRows));
    packed = take(next, true, std::max(for_logits, gradients && packs_a(s.width) ? for_gradients : 0));
    panel = take(next, gradients, kDepthBlock * kPanel);
    next_max = take(next, true, chunk);
    thread_floats = next;
  }
};

}  // namespace hearth::cpu
