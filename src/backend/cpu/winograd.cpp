#include "backend/cpu/winograd.h"

#include <algorithm>

#include "backend/cpu/convert.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd/simd.h"

namespace hearth::cpu {
namespace {

constexpr int64_t kP = kWinogradPositions;
constexpr int64_t kTileSide = 4;
constexpr int64_t kPatchSide = 6;
/// Transformed tiles of one chunk: half of a 1 MiB L2 for the forward pass, a share of L3 for the weight
/// gradient, whose chunks all threads work on together.
constexpr int64_t kForwardChunkFloats = 160 * 1024;
constexpr int64_t kWeightsChunkFloats = 512 * 1024;

/// Where tile `index` lies.
struct Tile {
  int64_t image, y, x;
};

struct TileGrid {
  int64_t rows, columns;
  TileGrid(int64_t out_h, int64_t out_w) : rows((out_h + 3) / kTileSide), columns((out_w + 3) / kTileSide) {}
  int64_t per_image() const { return rows * columns; }
  Tile at(int64_t index) const {
    const int64_t in_image = index % per_image();
    return {index / per_image(), in_image / columns * kTileSide, in_image % columns * kTileSide};
  }
};

/// The rows and columns of a side x side tile at (y, x) that lie inside h x w.
TileWindow window_of(int64_t y, int64_t x, int64_t h, int64_t w, int64_t side) {
  return {std::max<int64_t>(0, -y), std::min(side, h - y), std::max<int64_t>(0, -x), std::min(side, w - x)};
}

/// An image tensor NHWC from which f32 tiles are read.
struct Images {
  DType dtype;
  const void* data;
  int64_t h, w, c;

  int64_t index(int64_t image, int64_t y, int64_t x) const { return ((image * h + y) * w + x) * c; }

  /// A field whose (0, 0) is at (y, x): the image itself for f32, else a copy of the window in `scratch`.
  Field<const float> tile(int64_t image, int64_t y, int64_t x, TileWindow window, int64_t side,
                          float* scratch) const {
    if (dtype == DType::f32) return {static_cast<const float*>(data) + index(image, y, x), w * c, c};
    for (int64_t row = window.y0; row < window.y1; ++row) {
      load_f32(dtype, data, index(image, y + row, x + window.x0), (window.x1 - window.x0) * c,
               scratch + (row * side + window.x0) * c);
    }
    return {scratch, side * c, c};
  }
};

void store_tile(DType dtype, const float* scratch, TileWindow window, void* out, int64_t offset, int64_t row,
                int64_t c) {
  for (int64_t y = 0; y < window.y1; ++y) {
    store_f32(dtype, scratch + y * kTileSide * c, out, offset + y * row, window.x1 * c);
  }
}

int64_t forward_chunk(int64_t channels, int64_t tiles_per_thread) {
  const int64_t fitting = kForwardChunkFloats / (kP * channels);
  const int64_t wanted = std::clamp<int64_t>(fitting / 14 * 14, 42, 224);
  return std::min(wanted, std::max<int64_t>(1, tiles_per_thread));
}

}  // namespace

int64_t WinogradForward::workspace_bytes() const {
  const TileGrid grid(out_h, out_w);
  const int64_t per_thread = (batch * grid.per_image() + num_threads - 1) / num_threads;
  const int64_t chunk = forward_chunk(in_c + out_c, per_thread);
  const int64_t filters = kP * panel_floats(in_c, out_c) + 2 * 9 * in_c * out_c + 64;
  const int64_t tiles = kP * chunk * (in_c + out_c) + kP * in_c + 2 * 16 * out_c + 64;
  return (filters + num_threads * tiles) * static_cast<int64_t>(sizeof(float));
}

void WinogradForward::run(const void* in, const void* w, const float* bias, const void* residual, void* out,
                          std::byte* workspace, ThreadPool& threads) const {
  const SimdKernels& kernels = simd();
  const TileGrid grid(out_h, out_w);
  const int64_t num_tiles = batch * grid.per_image();
  const int64_t chunk = forward_chunk(in_c + out_c, (num_tiles + num_threads - 1) / num_threads);
  const int64_t u_stride = panel_floats(in_c, out_c);
  auto* u = reinterpret_cast<float*>(workspace);
  float* wide = u + kP * u_stride;
  float* turned = wide + 9 * in_c * out_c;
  float* per_thread = turned + 9 * in_c * out_c + 64;
  const int64_t thread_floats = kP * chunk * (in_c + out_c) + kP * in_c + 2 * 16 * out_c + 64;

  const auto* g = static_cast<const float*>(w);
  if (this->w != DType::f32) {
    threads.parallel_for(9 * in_c * out_c, 16384,
                         [&](Range r) { load_f32(this->w, w, r.begin, r.size(), wide + r.begin); });
    g = wide;
  }
  if (adjoint) {
    for (int64_t tap = 0; tap < 9; ++tap) {
      transpose(g + tap * in_c * out_c, out_c, in_c, turned + tap * in_c * out_c, threads);
    }
    g = turned;
  }
  threads.parallel_for(in_c, 4, [&](Range range) {
    for (int64_t c = range.begin; c < range.end; ++c) {
      for (int64_t first = 0; first < out_c; first += kPanel) {
        kernels.winograd_filter(g + c * out_c + first, in_c * out_c, std::min(kPanel, out_c - first), adjoint,
                                u + first * in_c + c * kPanel, u_stride);
      }
    }
  });

  const Images images{x, in, in_h, in_w, in_c};
  const Images residuals{x, residual, out_h, out_w, out_c};
  threads.run([&](int thread) {
    float* v = per_thread + thread * thread_floats;
    float* m = v + kP * chunk * in_c;
    float* scratch = m + kP * chunk * out_c;
    float* out_scratch = scratch + kP * in_c;
    const Range mine = split_range(num_tiles, num_threads, thread);
    for (int64_t begin = mine.begin; begin < mine.end; begin += chunk) {
      const int64_t count = std::min(chunk, mine.end - begin);
      for (int64_t t = 0; t < count; ++t) {
        const Tile tile = grid.at(begin + t);
        const TileWindow window = window_of(tile.y - padding, tile.x - padding, in_h, in_w, kPatchSide);
        const auto field =
            images.tile(tile.image, tile.y - padding, tile.x - padding, window, kPatchSide, scratch);
        kernels.winograd_input(field, window, in_c, v + t * in_c, chunk * in_c);
      }
      for (int64_t p = 0; p < kP; ++p) {
        for (int64_t first = 0; first < out_c; first += kPanel) {
          kernels.gemm(count, std::min(kPanel, out_c - first), in_c, v + p * chunk * in_c, in_c, 1,
                       u + p * u_stride + first * in_c, kPanel, m + p * chunk * out_c + first, out_c, false);
        }
      }
      for (int64_t t = 0; t < count; ++t) {
        const Tile tile = grid.at(begin + t);
        const TileWindow window = window_of(tile.y, tile.x, out_h, out_w, kTileSide);
        Epilogue epilogue{.bias = bias, .residual = {}, .relu = relu};
        if (residual != nullptr) {
          epilogue.residual =
              residuals.tile(tile.image, tile.y, tile.x, window, kTileSide, out_scratch + 16 * out_c);
        }
        const int64_t offset = residuals.index(tile.image, tile.y, tile.x);
        if (x == DType::f32) {
          kernels.winograd_output(m + t * out_c, chunk * out_c, window, out_c, epilogue,
                                  {static_cast<float*>(out) + offset, out_w * out_c, out_c});
        } else {
          kernels.winograd_output(m + t * out_c, chunk * out_c, window, out_c, epilogue,
                                  {out_scratch, kTileSide * out_c, out_c});
          store_tile(x, out_scratch, window, out, offset, out_w * out_c, out_c);
        }
      }
    }
  });
}

namespace {

int64_t weights_chunk(const ConvShape& shape) {
  const TileGrid grid(shape.out_h(), shape.out_w());
  const int64_t fitting = kWeightsChunkFloats / (kP * (shape.in_c + round_up(shape.out_c, kPanel)));
  return std::min(std::max<int64_t>(64, fitting), shape.batch * grid.per_image());
}

}  // namespace

int64_t WinogradBackwardWeights::workspace_bytes() const {
  const int64_t chunk = weights_chunk(shape);
  const int64_t tiles = kP * chunk * (shape.in_c + round_up(shape.out_c, kPanel));
  const int64_t filters = kP * shape.in_c * shape.out_c;
  return (tiles + filters + num_threads * kP * (shape.in_c + shape.out_c) + 64) *
         static_cast<int64_t>(sizeof(float));
}

void WinogradBackwardWeights::run(const void* in, const void* dy, float* dw, std::byte* workspace,
                                  ThreadPool& threads) const {
  const SimdKernels& kernels = simd();
  const int64_t c = shape.in_c;
  const int64_t o = shape.out_c;
  const TileGrid grid(shape.out_h(), shape.out_w());
  const int64_t num_tiles = shape.batch * grid.per_image();
  const int64_t chunk = weights_chunk(shape);
  const int64_t z_stride = chunk * round_up(o, kPanel);
  auto* v = reinterpret_cast<float*>(workspace);
  float* z = v + kP * chunk * c;
  float* u = z + kP * z_stride;
  float* scratch = u + kP * c * o;
  const Images images{x, in, shape.in_h, shape.in_w, c};
  const Images cotangents{x, dy, shape.out_h(), shape.out_w(), o};

  for (int64_t begin = 0; begin < num_tiles; begin += chunk) {
    const int64_t count = std::min(chunk, num_tiles - begin);
    threads.run([&](int thread) {
      float* mine = scratch + thread * kP * (c + o);
      const Range range = split_range(count, threads.size(), thread);
      for (int64_t t = range.begin; t < range.end; ++t) {
        const Tile tile = grid.at(begin + t);
        const int64_t y = tile.y - shape.padding;
        const int64_t x0 = tile.x - shape.padding;
        const TileWindow patch = window_of(y, x0, shape.in_h, shape.in_w, kPatchSide);
        kernels.winograd_input(images.tile(tile.image, y, x0, patch, kPatchSide, mine), patch, c, v + t * c,
                               chunk * c);
        const TileWindow window = window_of(tile.y, tile.x, shape.out_h(), shape.out_w(), kTileSide);
        Field<const float> field =
            cotangents.tile(tile.image, tile.y, tile.x, window, kTileSide, mine + kP * c);
        for (int64_t first = 0; first < o; first += kPanel, field.data += kPanel) {
          kernels.winograd_cotangent(field, window, std::min(kPanel, o - first),
                                     z + first * chunk + t * kPanel, z_stride);
        }
      }
    });
    threads.run([&](int thread) {
      const Range positions = split_range(kP, threads.size(), thread);
      for (int64_t p = positions.begin; p < positions.end; ++p) {
        for (int64_t first = 0; first < o; first += kPanel) {
          kernels.gemm(c, std::min(kPanel, o - first), count, v + p * chunk * c, 1, c,
                       z + p * z_stride + first * chunk, kPanel, u + p * c * o + first, o, begin > 0);
        }
      }
    });
  }
  threads.parallel_for(c, 4, [&](Range range) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      kernels.winograd_filter_gradient(u + i * o, c * o, o, dw + i * o, c * o);
    }
  });
}

}  // namespace hearth::cpu
