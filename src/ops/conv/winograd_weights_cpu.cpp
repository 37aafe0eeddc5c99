#include "ops/conv/winograd_cpu.h"
#include "ops/conv/winograd_tiles.h"

namespace hearth::cpu {
namespace {

constexpr int64_t kP = kWinogradPositions;
constexpr int64_t kWeightsChunkFloats = 512 * 1024;

int64_t weights_chunk(const ConvShape& shape) {
  const TileGrid grid(shape.out_h(), shape.out_w(), shape.dilation);
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
  const TileGrid grid(shape.out_h(), shape.out_w(), shape.dilation);
  const int64_t num_tiles = shape.batch * grid.per_image();
  const int64_t chunk = weights_chunk(shape);
  const int64_t z_stride = chunk * round_up(o, kPanel);
  auto* v = reinterpret_cast<float*>(workspace);
  float* z = v + kP * chunk * c;
  float* u = z + kP * z_stride;
  float* scratch = u + kP * c * o;
  const Images images{x, in, shape.in_h, shape.in_w, c, shape.dilation};
  const Images cotangents{x, dy, shape.out_h(), shape.out_w(), o, shape.dilation};

  for (int64_t begin = 0; begin < num_tiles; begin += chunk) {
    const int64_t count = std::min(chunk, num_tiles - begin);
    threads.run([&](int thread) {
      float* mine = scratch + thread * kP * (c + o);
      const Range range = split_range(count, threads.size(), thread);
      for (int64_t t = range.begin; t < range.end; ++t) {
        const Tile tile = grid.at(begin + t);
        Tile seen = tile;
        seen.y -= shape.padding / shape.dilation;
        seen.x -= shape.padding / shape.dilation;
        const TileWindow patch = images.window(seen, kPatchSide);
        kernels.winograd_input(images.tile(seen, patch, kPatchSide, 0, c, mine), patch, c, v + t * c,
                               chunk * c);
        const TileWindow window = cotangents.window(tile, kTileSide);
        Field<const float> field = cotangents.tile(tile, window, kTileSide, 0, o, mine + kP * c);
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
