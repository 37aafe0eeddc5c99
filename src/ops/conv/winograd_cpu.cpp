// Winograd F(4x4,3x3) computes 16 outputs of a 3x3 convolution with 36 multiplications per channel instead of
// 144 (Lavin and Gray, arXiv 1509.09308). A tile of 6x6 inputs and the filter are transformed by small
// constant matrices, multiplied elementwise, and transformed back. For each of the 36 positions, the sums
// over channels are an independent matmul of tiles by filters; these matmuls dominate the time. The
// transforms are additions on data in the cache, because a thread transforms, multiplies and transforms back
// one chunk of tiles before the next. All arithmetic is f32 for every storage dtype, because the transforms
// lose about two decimal digits.
#include "ops/conv/winograd_cpu.h"

#include "ops/conv/winograd_tiles.h"

namespace hearth::cpu {
namespace {

constexpr int64_t kP = kWinogradPositions;
/// Floats of the transformed tiles of one thread's chunk: most of a 1 MiB L2 cache.
constexpr int64_t kChunkFloats = 200 * 1024;
/// Floats of the transformed inputs that all threads share if each thread computes different output channels:
/// part of the L3 cache.
constexpr int64_t kSharedFloats = 2560 * 1024;
/// Number of pairs of input and output channels above which the transformed filters exceed the caches.
/// Threads then share the transformed inputs, and each transforms the filters of one panel of output channels
/// at a time.
constexpr int64_t kManyPairs = 200 * 200;
constexpr int64_t kMaxRows = 112;

/// Workspace layout: sizes of its parts and strides within them, in floats.
struct Layout {
  TileGrid grid;
  int64_t num_tiles;
  int64_t num_panels;
  bool by_outputs;
  int64_t held_tiles;  ///< transformed input tiles in the workspace: of one thread, or of all if by_outputs
  int64_t chunk;       ///< number of tiles multiplied at a time
  int64_t v_position, u_position, m_position;
  int64_t v_floats, u_floats, m_floats, filter_scratch, tile_scratch;

  explicit Layout(const WinogradForward& c) : grid(c.out_h, c.out_w, c.dilation) {
    num_tiles = c.batch * grid.per_image();
    num_panels = (c.out_c + kPanel - 1) / kPanel;
    by_outputs = c.in_c * c.out_c > kManyPairs && num_panels >= c.num_threads;
    const int64_t share = (num_tiles + c.num_threads - 1) / c.num_threads;
    const int64_t fitting = kChunkFloats / (kP * (c.in_c + kPanel)) / 14 * 14;
    chunk = std::min(share, std::clamp<int64_t>(fitting, 42, kMaxRows));
    held_tiles = chunk;
    if (by_outputs) {
      held_tiles = std::min(num_tiles, std::max(kMaxRows, kSharedFloats / (kP * c.in_c)));
      chunk = std::min(held_tiles, kMaxRows);
    }
    v_position = odd_lines(held_tiles * c.in_c);
    u_position = odd_lines(c.in_c * kPanel);
    m_position = odd_lines(chunk * kPanel);
    v_floats = kP * v_position;
    u_floats = kP * u_position;
    m_floats = kP * m_position;
    filter_scratch = 10 * c.in_c * kPanel;
    tile_scratch = round_up(kP * c.in_c + 2 * 16 * kPanel, 16);
  }
  int64_t shared_floats() const { return by_outputs ? v_floats : num_panels * u_floats; }
  int64_t thread_floats() const {
    return (by_outputs ? u_floats : v_floats) + m_floats + filter_scratch + tile_scratch;
  }
};

/// Operands and workspace of one call of WinogradForward::run().
struct Job {
  const WinogradForward& c;
  const Layout& layout;
  const void* w;
  const float* bias;
  Images in, residual;
  void* out;
  float* shared;

  int64_t columns(int64_t panel) const { return std::min(kPanel, c.out_c - panel * kPanel); }
  float* local(int thread) const { return shared + layout.shared_floats() + thread * layout.thread_floats(); }

  void transform_filters(int64_t panel, float* u, float* scratch) const;
  void transform_input(int64_t index, float* v, float* scratch) const;
  void multiply(int64_t count, int64_t panel, const float* v, const float* u, float* m) const;
  void transform_outputs(int64_t begin, int64_t count, int64_t panel, const float* m, float* scratch) const;
  void run_by_tiles(ThreadPool& threads) const;
  void run_by_outputs(ThreadPool& threads) const;
};

void Job::transform_filters(int64_t panel, float* u, float* scratch) const {
  const int64_t first = panel * kPanel;
  const int64_t n = columns(panel);
  const auto* g = static_cast<const float*>(w);
  int64_t tap_stride = c.in_c * c.out_c;
  int64_t row = c.out_c;
  g += first;
  if (c.adjoint) {
    float* wide = scratch + 9 * c.in_c * kPanel;
    for (int64_t tap = 0; tap < 9; ++tap) {
      const int64_t offset = tap * tap_stride + first * c.in_c;
      const float* rows = as_f32(c.w, w, offset, n * c.in_c, wide);
      simd().transpose(rows, c.in_c, n, c.in_c, scratch + tap * c.in_c * kPanel, kPanel);
    }
  } else if (c.w != DType::f32) {
    for (int64_t i = 0; i < 9 * c.in_c; ++i) load_f32(c.w, w, i * c.out_c + first, n, scratch + i * kPanel);
  }
  if (c.adjoint || c.w != DType::f32) {
    g = scratch;
    tap_stride = c.in_c * kPanel;
    row = kPanel;
  }
  for (int64_t i = 0; i < c.in_c; ++i)
    simd().winograd_filter(g + i * row, tap_stride, n, c.adjoint, u + i * kPanel, layout.u_position);
}

void Job::transform_input(int64_t index, float* v, float* scratch) const {
  Tile tile = layout.grid.at(index);
  tile.y -= c.padding;
  tile.x -= c.padding;
  const TileWindow window = in.window(tile, kPatchSide);
  simd().winograd_input(in.tile(tile, window, kPatchSide, 0, c.in_c, scratch), window, c.in_c, v,
                        layout.v_position);
}

void Job::multiply(int64_t count, int64_t panel, const float* v, const float* u, float* m) const {
  for (int64_t p = 0; p < kP; ++p) {
    simd().gemm(count, columns(panel), c.in_c, v + p * layout.v_position, c.in_c, 1,
                u + p * layout.u_position, kPanel, m + p * layout.m_position, kPanel, false);
  }
}

void Job::transform_outputs(int64_t begin, int64_t count, int64_t panel, const float* m,
                            float* scratch) const {
  const int64_t first = panel * kPanel;
  const int64_t n = columns(panel);
  Epilogue epilogue{.bias = bias == nullptr ? nullptr : bias + first, .residual = {}, .relu = c.relu};
  for (int64_t t = 0; t < count; ++t) {
    const Tile tile = layout.grid.at(begin + t);
    const TileWindow window = residual.window(tile, kTileSide);
    if (residual.data != nullptr)
      epilogue.residual = residual.tile(tile, window, kTileSide, first, n, scratch + 16 * kPanel);
    const int64_t offset = residual.index(tile) + first;
    const int64_t across = c.dilation * c.out_c, down = c.out_w * across;
    const float* sums = m + t * kPanel;
    if (c.x == DType::f32) {
      simd().winograd_output(sums, layout.m_position, window, n, epilogue,
                             {static_cast<float*>(out) + offset, down, across});
      continue;
    }
    simd().winograd_output(sums, layout.m_position, window, n, epilogue, {scratch, kTileSide * n, n});
    for (int64_t y = 0; y < window.y1; ++y) {
      for (int64_t x = 0; x < window.x1; ++x)
        store_f32(c.x, scratch + (y * kTileSide + x) * n, out, offset + y * down + x * across, n);
    }
  }
}

void Job::run_by_tiles(ThreadPool& threads) const {
  threads.run([&](int thread) {
    float* scratch = local(thread) + layout.v_floats + layout.m_floats;
    const Range panels = split_range(layout.num_panels, c.num_threads, thread);
    for (int64_t panel = panels.begin; panel < panels.end; ++panel)
      transform_filters(panel, shared + panel * layout.u_floats, scratch);
  });
  threads.run([&](int thread) {
    float* v = local(thread);
    float* m = v + layout.v_floats;
    float* scratch = m + layout.m_floats + layout.filter_scratch;
    const Range mine = split_range(layout.num_tiles, c.num_threads, thread);
    for (int64_t begin = mine.begin; begin < mine.end; begin += layout.chunk) {
      const int64_t count = std::min(layout.chunk, mine.end - begin);
      for (int64_t t = 0; t < count; ++t) transform_input(begin + t, v + t * c.in_c, scratch);
      for (int64_t panel = 0; panel < layout.num_panels; ++panel) {
        multiply(count, panel, v, shared + panel * layout.u_floats, m);
        transform_outputs(begin, count, panel, m, scratch);
      }
    }
  });
}

void Job::run_by_outputs(ThreadPool& threads) const {
  for (int64_t held = 0; held < layout.num_tiles; held += layout.held_tiles) {
    const int64_t num_held = std::min(layout.held_tiles, layout.num_tiles - held);
    threads.run([&](int thread) {
      const Range mine = split_range(num_held, c.num_threads, thread);
      for (int64_t t = mine.begin; t < mine.end; ++t)
        transform_input(held + t, shared + t * c.in_c, local(thread));
    });
    threads.run([&](int thread) {
      float* u = local(thread);
      float* m = u + layout.u_floats;
      float* scratch = m + layout.m_floats;
      const Range panels = split_range(layout.num_panels, c.num_threads, thread);
      for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
        transform_filters(panel, u, scratch);
        for (int64_t begin = 0; begin < num_held; begin += layout.chunk) {
          const int64_t count = std::min(layout.chunk, num_held - begin);
          multiply(count, panel, shared + begin * c.in_c, u, m);
          transform_outputs(held + begin, count, panel, m, scratch + layout.filter_scratch);
        }
      }
    });
  }
}

}  // namespace

int64_t WinogradForward::workspace_bytes() const {
  const Layout layout(*this);
  return (layout.shared_floats() + num_threads * layout.thread_floats()) *
         static_cast<int64_t>(sizeof(float));
}

void WinogradForward::run(const void* in, const void* w, const float* bias, const void* residual, void* out,
                          std::byte* workspace, ThreadPool& threads) const {
  const Layout layout(*this);
  const Job job{.c = *this,
                .layout = layout,
                .w = w,
                .bias = bias,
                .in = {x, in, in_h, in_w, in_c, dilation},
                .residual = {x, residual, out_h, out_w, out_c, dilation},
                .out = out,
                .shared = reinterpret_cast<float*>(workspace)};
  layout.by_outputs ? job.run_by_outputs(threads) : job.run_by_tiles(threads);
}

}  // namespace hearth::cpu
