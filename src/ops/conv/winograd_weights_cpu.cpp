#include "ops/conv/winograd_cpu.h"
#include "ops/conv/winograd_tiles.h"

namespace hearth::cpu {
namespace {

constexpr int64_t kP = kWinogradPositions;
/// Maximum number of floats for the transformed gradients of all filters; for larger ones, input channels are
/// processed in batches.
constexpr int64_t kFilterFloats = 10'000'000;
constexpr int64_t kWeightsChunkFloats = 512 * 1024;

/// Batch sizes (input channels, tiles per chunk) and workspace sizes.
struct WeightsPlan {
  int64_t channels;  ///< input channels per batch
  int64_t tiles, chunk;
  int64_t v, z, u, of_thread;  ///< floats of: transformed x, transformed dy, products, thread scratch

  WeightsPlan(const ConvShape& s, const TileGrid& grid) : tiles(s.batch * grid.per_image()) {
    const int64_t outputs = round_up(s.out_c, kPanel);
    const int64_t blocks = (kP * s.in_c * s.out_c + kFilterFloats - 1) / kFilterFloats;
    channels = std::min(round_up((s.in_c + blocks - 1) / blocks, kPanel), s.in_c);
    chunk = std::min(std::max<int64_t>(64, kWeightsChunkFloats / (kP * (channels + outputs))), tiles);
    v = kP * chunk * channels;
    z = kP * chunk * outputs;
    u = kP * channels * s.out_c;
    of_thread = kP * (channels + s.out_c);
  }
};

TileGrid grid_of(const ConvShape& shape) { return {shape.out_h(), shape.out_w(), shape.dilation}; }

}  // namespace

int64_t WinogradBackwardWeights::workspace_bytes() const {
  const WeightsPlan plan(shape, grid_of(shape));
  return (plan.v + plan.z + plan.u + num_threads * plan.of_thread + 64) * static_cast<int64_t>(sizeof(float));
}

void WinogradBackwardWeights::run(const void* in, const void* dy, float* dw, std::byte* workspace,
                                  ThreadPool& threads) const {
  const SimdKernels& kernels = simd();
  const int64_t o = shape.out_c;
  const TileGrid grid = grid_of(shape);
  const WeightsPlan plan(shape, grid);
  const int64_t chunk = plan.chunk, z_stride = plan.z / kP;
  auto* v = reinterpret_cast<float*>(workspace);
  float* z = v + plan.v;
  float* u = z + plan.z;
  float* scratch = u + plan.u;
  const Images images{x, in, shape.in_h, shape.in_w, shape.in_c, shape.dilation};
  const Images cotangents{x, dy, shape.out_h(), shape.out_w(), o, shape.dilation};

  for (int64_t channel = 0; channel < shape.in_c; channel += plan.channels) {
    const int64_t c = std::min(plan.channels, shape.in_c - channel);
    for (int64_t begin = 0; begin < plan.tiles; begin += chunk) {
      const int64_t count = std::min(chunk, plan.tiles - begin);
      // z (the transformed dy) is independent of the input channels: if one chunk has all tiles, z is
      // computed only once.
      const bool needs_z = channel == 0 || plan.tiles > chunk;
      threads.run([&](int thread) {
        float* mine = scratch + thread * plan.of_thread;
        const Range range = split_range(count, threads.size(), thread);
        for (int64_t t = range.begin; t < range.end; ++t) {
          const Tile tile = grid.at(begin + t);
          Tile seen = tile;
          seen.y -= shape.padding / shape.dilation;
          seen.x -= shape.padding / shape.dilation;
          const TileWindow patch = images.window(seen, kPatchSide);
          kernels.winograd_input(images.tile(seen, patch, kPatchSide, channel, c, mine), patch, c, v + t * c,
                                 chunk * c);
          if (!needs_z) continue;
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
      for (int64_t i = range.begin; i < range.end; ++i)
        kernels.winograd_filter_gradient(u + i * o, c * o, o, dw + (channel + i) * o, shape.in_c * o);
    });
  }
}

}  // namespace hearth::cpu
