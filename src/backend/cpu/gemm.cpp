#include "backend/cpu/gemm.h"

#include <algorithm>

#include "backend/cpu/blocks.h"
#include "backend/cpu/convert.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd/simd.h"

/// Matmul on the CPU, after Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication (2008).
/// A micro-kernel (simd/product.inc) keeps a block of outputs in registers and reads a panel of 32 columns of
/// b and a sliver of 14 rows of a. blocks.h packs a block of a that fits the L2 cache and multiplies it by
/// every panel. This file chooses the loop order and which operands are packed, and divides c among threads.
/// One thread sums each output, in an order that depends on the shape alone, so results do not depend on
/// timing.
namespace hearth::cpu {
namespace {

/// Loop order of a matmul, chosen such that the larger operand needs no packing.
enum class LoopOrder : uint8_t {
  rows,  ///< rows of a are broadcast and multiplied by rows of b, read in place or from panels
  /// b is [n][k] and large: rows of b are broadcast and a is packed into panels; c is written transposed
  swapped,
  dots,  ///< both operands are contiguous over k and one side is narrow: dot products
};

/// Max number of rows of an operand that is called narrow.
constexpr int64_t kFewRows = 16;

/// Returns the loop order. For up to kFewRows rows of a it does not depend on m, so that the result for a row
/// has the same bits whichever rows are multiplied with it.
LoopOrder loop_order_of(const GemmSpec& s) {
  if (!s.transpose_b) return LoopOrder::rows;
  if (!s.transpose_a && std::min(s.m, s.n) <= kFewRows && s.k >= 256) return LoopOrder::dots;
  if (s.m <= kFewRows) return LoopOrder::swapped;
  return s.n * s.k > s.m * (s.n + s.k) ? LoopOrder::swapped : LoopOrder::rows;
}

/// Min number of rows per task: fewer would not amortize reading all panels of b. Several tasks per thread
/// balance the load.
constexpr int64_t kMinRowsPerTask = 8 * kSliver;
constexpr int64_t kTasksPerThread = 4;

/// True if packing b into panels is faster: many rows of a use each panel, and the rows of b are far apart in
/// memory.
bool packs_rows(const GemmSpec& s) {
  return loop_order_of(s) == LoopOrder::rows && s.m >= 32 && s.n > 2 * kPanel && s.k >= 64;
}

/// True if threads divide the rows of c among them; otherwise they divide its columns.
bool splits_rows(const GemmSpec& s) {
  return s.m >= kMinRowsPerTask * s.num_threads || s.n < s.num_threads * kPanel;
}

/// True if all of b is packed before the matmul: b is transposed, or several row ranges read it.
bool packs_b(const GemmSpec& s) {
  return loop_order_of(s) == LoopOrder::rows && (s.transpose_b || (packs_rows(s) && splits_rows(s)));
}

/// Returns the floats that a thread needs for a packed block of the left operand.
int64_t packed_a_floats(const GemmSpec& s) {
  if (loop_order_of(s) == LoopOrder::swapped) return packs_a(s.m) ? packed_floats(s.n, s.k) : 0;
  return packs_a(s.n) ? packed_floats(s.m, s.k) : 0;
}
int64_t thread_floats(const GemmSpec& s) {
  if (loop_order_of(s) == LoopOrder::dots) return 0;
  const int64_t panel = packs_rows(s) && !packs_b(s) ? std::min(s.k, kDepthBlock) * kPanel : 0;
  return packed_a_floats(s) + panel;
}

/// Returns the number of tasks: row ranges, or one range of full panels per thread.
int64_t num_tasks(const GemmSpec& s) {
  if (s.m * s.n * s.k < 65536) return 1;
  if (!splits_rows(s)) return s.num_threads;
  // A multiple of num_threads: with few tasks, any other number would leave threads idle at the end.
  return std::clamp<int64_t>(s.m / kMinRowsPerTask / s.num_threads, 1, kTasksPerThread) * s.num_threads;
}

struct Part {
  Range m, n;
};
Part part_of(const GemmSpec& s, bool pairs, int64_t tasks, int64_t task) {
  const auto parts = static_cast<int>(tasks), index = static_cast<int>(task);
  const auto cut = [&](int64_t count, int64_t unit) {
    const Range units = split_range((count + unit - 1) / unit, parts, index);
    return Range{std::min(units.begin * unit, count), std::min(units.end * unit, count)};
  };
  if (splits_rows(s)) return {cut(s.m, s.m < kSliver * tasks ? 1 : row_unit(pairs)), {0, s.n}};
  return {{0, s.m}, cut(s.n, kPanel)};
}

/// Returns the number of rows of c that a thread accumulates in a private f32 buffer and then converts to c
/// while they are in its cache; 0 if one shared buffer holds all of c.
int64_t buffered_rows(const GemmSpec& s, bool pairs) {
  if (loop_order_of(s) != LoopOrder::rows || !splits_rows(s)) return 0;
  const int64_t tasks = num_tasks(s);
  return std::min(s.m, round_up((s.m + tasks - 1) / tasks, row_unit(pairs)));
}

/// Offsets of the workspace's parts, in floats.
struct Layout {
  int64_t a, b, c, panels, thread_scratch, transposed, residual, total;
  Layout(const GemmSpec& s, bool pairs) {
    int64_t next = 0;
    const auto take = [&](bool wanted, int64_t count) {
      const int64_t at = next;
      if (wanted) next += round_up(count, 16);
      return at;
    };
    const bool swapped = loop_order_of(s) == LoopOrder::swapped;
    a = take(pairs ? s.transpose_a : s.a != DType::f32, s.m * s.k);
    b = take(pairs ? !s.transpose_b : s.b != DType::f32, s.k * s.n);
    const int64_t rows = buffered_rows(s, pairs);
    c = take(s.c != DType::f32, (rows > 0 ? s.num_threads * rows : s.m) * s.n);
    residual = take(s.residual && s.c != DType::f32, s.num_threads * s.n);
    panels = take(swapped || packs_b(s), panel_floats(s.k, swapped ? s.m : s.n));
    thread_scratch = take(true, s.num_threads * thread_floats(s));
    transposed = take(swapped, s.m * s.n);
    total = next;
  }
};

/// Epilogue: converts f32 sums to c, with bias, residual and activation.
struct GemmEpilogue {
  const GemmSpec& s;
  const float* bias;
  const void* residual;
  void* c;
  float* sums;       ///< f32 buffer for all of c, or for buffered_rows() per thread; null: c itself
  float* residuals;  ///< a row of c for each thread, in f32

  float* sums_of(Part part, int64_t rows, int thread) const {
    if (sums == nullptr) return static_cast<float*>(c) + part.m.begin * s.n + part.n.begin;
    return sums + (rows > 0 ? thread * rows : part.m.begin) * s.n + part.n.begin;
  }
  /// Applies the epilogue to the part's final sums, whose rows are s.n floats apart.
  void finish(Part part, float* row, int thread) const {
    const bool relu = s.activation == GemmSpec::Activation::relu;
    if (sums == nullptr && bias == nullptr && residual == nullptr && !relu) return;
    for (int64_t i = part.m.begin; i < part.m.end; ++i, row += s.n) {
      const int64_t at = i * s.n + part.n.begin, count = part.n.size();
      const float* more =
          residual == nullptr ? nullptr : as_f32(s.c, residual, at, count, residuals + thread * s.n);
      finish_row(row, count, bias == nullptr ? nullptr : bias + part.n.begin, more, relu);
      store_f32(s.c, row, c, at, count);
    }
  }
};

void run_rows(const GemmSpec& s, bool pairs, const float* a, const float* b, const GemmEpilogue& end,
              float* panels, float* thread_scratch, ThreadPool& threads) {
  if (packs_b(s)) pack_panels(DType::f32, b, s.k, s.n, s.transpose_b, panels, nullptr, threads);
  const int64_t a_row = s.transpose_a ? 1 : s.k;
  const int64_t a_k = s.transpose_a ? s.m : 1;
  const int64_t tasks = num_tasks(s), rows = buffered_rows(s, pairs);
  threads.run_tasks(tasks, s.num_threads, [&](int64_t task, int thread) {
    float* scratch = thread_scratch + thread * thread_floats(s);
    const Part mine = part_of(s, pairs, tasks, task);
    float* sums = end.sums_of(mine, rows, thread);
    const BlockProduct part{.m = mine.m.size(),
                            .n = mine.n.size(),
                            .k = s.k,
                            .a = a + mine.m.begin * a_row,
                            .a_row = a_row,
                            .a_k = a_k,
                            .c = sums,
                            .c_row = s.n,
                            .packed_a = packs_a(s.n) ? scratch : nullptr,
                            .pairs = pairs};
    const float* columns_of_b = b + mine.n.begin;
    if (packs_b(s)) {
      multiply_blocks(part, panels + mine.n.begin * s.k);
    } else if (!packs_rows(s)) {
      multiply_blocks(part, s.n,
                      [&](int64_t p, int64_t, int64_t j, int64_t) { return columns_of_b + p * s.n + j; });
    } else {
      float* packed = scratch + packed_a_floats(s);
      multiply_blocks(part, kPanel, [&](int64_t p, int64_t depth, int64_t j, int64_t columns) {
        for (int64_t row = 0; row < depth; ++row) {
          const float* from = columns_of_b + (p + row) * s.n + j;
          std::copy(from, from + columns, packed + row * kPanel);
        }
        return packed;
      });
    }
    end.finish(mine, sums, thread);
  });
}

void run_swapped(const GemmSpec& s, bool pairs, const float* a, const float* b, float* c, float* panels,
                 float* transposed, float* thread_scratch, ThreadPool& threads) {
  pack_panels(DType::f32, a, s.k, s.m, !s.transpose_a, panels, nullptr, threads);
  threads.run([&](int thread) {
    const Range rows = split_range(s.n, s.num_threads, thread);
    const BlockProduct part{.m = rows.size(),
                            .n = s.m,
                            .k = s.k,
                            .a = b + rows.begin * s.k,
                            .a_row = s.k,
                            .a_k = 1,
                            .c = transposed + rows.begin * s.m,
                            .c_row = s.m,
                            .packed_a = packs_a(s.m) ? thread_scratch + thread * thread_floats(s) : nullptr,
                            .pairs = pairs};
    multiply_blocks(part, panels);
  });
  transpose(transposed, s.n, s.m, c, threads);
}

void run_dots(const GemmSpec& s, bool pairs, const float* a, const float* b, float* c, ThreadPool& threads) {
  const auto dot = pairs ? simd().dot_pairs : simd().dot;
  threads.run([&](int thread) {
    const bool by_rows = s.m >= s.n;
    const Range part = split_range(by_rows ? s.m : s.n, s.num_threads, thread);
    if (part.size() == 0) return;
    if (by_rows) {
      dot(part.size(), s.n, s.k, a + part.begin * s.k, s.k, b, s.k, c + part.begin * s.n, s.n, 1);
    } else {
      dot(s.m, part.size(), s.k, a, s.k, b + part.begin * s.k, s.k, c + part.begin, s.n, 1);
    }
  });
}

/// Returns the operand in the format that the kernels read: f32, or pairs of bf16. If the two elements of
/// each pair are adjacent in memory (row == 0), the operand is read in place. Otherwise they are in adjacent
/// rows of `row` elements, and the rows are interleaved into `scratch`.
const float* operand(const void* data, DType dtype, int64_t count, bool pairs, int64_t row, float* scratch,
                     ThreadPool& threads) {
  if (dtype == DType::f32 || (pairs && row == 0)) return static_cast<const float*>(data);
  if (pairs) {
    join_rows(data, count / row, row, scratch, threads);
  } else {
    widen(dtype, data, count, scratch, threads);
  }
  return scratch;
}

}  // namespace

Gemm::Gemm(const GemmSpec& spec) : spec_(spec), pairs_(has_pairs(spec.a, spec.b, spec.k)) {
  if (pairs_) spec_.k /= 2;
}

int64_t Gemm::workspace_bytes() const { return float_bytes(Layout(spec_, pairs_).total); }

void Gemm::run(const void* a, const void* b, const float* bias, const void* residual, void* c,
               std::byte* workspace, ThreadPool& threads) const {
  const GemmSpec& s = spec_;
  const Layout layout(s, pairs_);
  auto* base = reinterpret_cast<float*>(workspace);
  const float* left = operand(a, s.a, s.m * s.k, pairs_, s.transpose_a ? s.m : 0, base + layout.a, threads);
  const float* right = operand(b, s.b, s.k * s.n, pairs_, s.transpose_b ? 0 : s.n, base + layout.b, threads);
  const GemmEpilogue end{
      s, bias, residual, c, s.c == DType::f32 ? nullptr : base + layout.c, base + layout.residual};
  float* sums = end.sums_of({{0, s.m}, {0, s.n}}, 0, 0);
  switch (loop_order_of(s)) {
    case LoopOrder::rows:
      return run_rows(s, pairs_, left, right, end, base + layout.panels, base + layout.thread_scratch,
                      threads);
    case LoopOrder::swapped:
      run_swapped(s, pairs_, left, right, sums, base + layout.panels, base + layout.transposed,
                  base + layout.thread_scratch, threads);
      break;
    case LoopOrder::dots:
      run_dots(s, pairs_, left, right, sums, threads);
      break;
  }
  const int tasks = s.m * s.n < 32768 ? 1 : s.num_threads;
  threads.run_tasks(tasks, s.num_threads, [&](int64_t task, int thread) {
    const Range rows = split_range(s.m, tasks, static_cast<int>(task));
    end.finish({rows, {0, s.n}}, sums + rows.begin * s.n, thread);
  });
}

}  // namespace hearth::cpu
