#include "ops/norm/batch_norm_kernels.h"

#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "backend/cpu/simd/simd.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

struct Tile {
  const float* x;
  const float* residual;
  float* y;
  int64_t rows;
  int64_t width;
};

template <bool kResidual, NormActivation kActivation>
inline __attribute__((always_inline)) void normalize_rows(const Tile& tile, const float* mean,
                                                          const float* scale, const float* bias) {
  for (int64_t r = 0; r < tile.rows; ++r) {
    const float* x = tile.x + r * tile.width;
    const float* residual = kResidual ? tile.residual + r * tile.width : nullptr;
    float* y = tile.y + r * tile.width;
    for (int64_t c = 0; c < tile.width; ++c) {
      float value = (x[c] - mean[c]) * scale[c] + bias[c];
      if (kResidual) value += residual[c];
      if (kActivation == NormActivation::relu) value = value < 0 ? 0.0F : value;
      y[c] = value;
    }
  }
}

/// Normalizes a tile, with any activation except silu.
HEARTH_CLONES void normalize_tile(const Tile& tile, const float* mean, const float* scale, const float* bias,
                                  NormActivation activation) {
  using enum NormActivation;
  if (tile.residual != nullptr) {
    activation == relu ? normalize_rows<true, relu>(tile, mean, scale, bias)
                       : normalize_rows<true, none>(tile, mean, scale, bias);
  } else {
    activation == relu ? normalize_rows<false, relu>(tile, mean, scale, bias)
                       : normalize_rows<false, none>(tile, mean, scale, bias);
  }
}

}  // namespace

bool may_have_mask(const Type& x) { return dtype_bytes(x.dtype) == 2 && x.shape.back() % kMaskElements == 0; }
Type mask_type(const Type& x) {
  return {.dtype = DType::u8, .shape = {x.shape.num_elements() / kMaskElements}};
}

Type moments_type(const Type& x) { return f32_type({moment_groups(num_rows(x.shape)), 2, x.shape.back()}); }

void apply_mask(const Type& type, const void* dy, const uint8_t* mask, void* dx, ThreadPool& threads) {
  threads.parallel_for(type.shape.num_elements(), kGrain, [&](Range range) {
    const auto* from = static_cast<const uint16_t*>(dy);
    auto* to = static_cast<uint16_t*>(dx);
    for (int64_t i = range.begin; i < range.end; ++i)
      to[i] = mask[i / kMaskElements] >> i % kMaskElements & 1 ? from[i] : uint16_t{0};
  });
}

NormShape norm_shape(const Type& x) {
  const int64_t width = x.shape.back();
  const int64_t rows = num_rows(x.shape);
  return {.dtype = x.dtype, .rows = rows, .width = width, .parts = num_sum_parts(rows * width, kNormTile)};
}

int64_t norm_workspace_bytes(const NormShape& shape) {
  return shape.width * (2 * shape.parts * int64_t{sizeof(double)} + 3 * int64_t{sizeof(float)});
}

NormWorkspace norm_workspace(const NormShape& shape, std::byte* workspace) {
  auto* doubles = reinterpret_cast<double*>(workspace);
  const int64_t size = shape.parts * shape.width;
  auto* floats = reinterpret_cast<float*>(doubles + 2 * size);
  return {.first = doubles,
          .second = doubles + size,
          .a = floats,
          .b = floats + shape.width,
          .c = floats + 2 * shape.width};
}

void normalize(const NormShape& shape, const Normalize& how, const void* x, const void* residual, void* y,
               ThreadPool& threads) {
  threads.parallel_for(shape.rows, std::max<int64_t>(1, kNormTile / shape.width), [&](Range range) {
    alignas(64) float scratch[3][kNormTile];
    for_each_tile(shape, range.begin, range.end, [&](int64_t row, int64_t rows, int64_t c, int64_t width) {
      const int64_t at = row * shape.width + c;
      const int64_t count = rows * width;
      float* out = run_to_write(shape.dtype, y, at, scratch[2]);
      const Tile tile{.x = cpu::as_f32(shape.dtype, x, at, count, scratch[0]),
                      .residual = residual == nullptr
                                      ? nullptr
                                      : cpu::as_f32(shape.dtype, residual, at, count, scratch[1]),
                      .y = out,
                      .rows = rows,
                      .width = width};
      if (how.activation == NormActivation::silu) {
        const cpu::NormRows silu{.count = rows,
                                 .width = width,
                                 .mean = how.mean + c,
                                 .scale = how.scale + c,
                                 .bias = how.bias + c};
        cpu::simd().norm_silu(silu, tile.x, out);
      } else {
        normalize_tile(tile, how.mean + c, how.scale + c, how.bias + c, how.activation);
      }
      cpu::store_f32(shape.dtype, out, y, at, count);
    });
  });
}

std::string check_norm_inputs(const NodeView& node, const OpDef& op, size_t last) {
  const Type& x = node.in_type(0);
  if ((x.shape.rank() != 2 && x.shape.rank() != 4) || !is_storage_float(x.dtype) || x.shape.back() == 0)
    return fmt::format("expected x to be a floating array of rank 2 or 4, got {}", to_string(x));
  for (size_t i = 1; i <= last; ++i) {
    if (node.in_type(i) != f32_type({x.shape.back()}))
      return fmt::format("expected input '{}' to be f32[{}], got {}", op.input_name(i), x.shape.back(),
                         to_string(node.in_type(i)));
  }
  return "";
}

}  // namespace hearth::ops
