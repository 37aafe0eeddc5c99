#pragma once

/// Reductions over a warp or a block. Their order depends on the number of threads only, so results are
/// reproducible.
namespace hearth::rt {

/// Reduction operators.
struct Add {
  RT_DEVICE float operator()(float a, float b) const { return a + b; }
};
struct Max {
  RT_DEVICE float operator()(float a, float b) const { return larger(a, b); }
};

/// Reduces over a warp; every lane gets the result.
template <typename Op>
RT_DEVICE float reduce_warp(float value, Op op) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = op(value, shuffle_xor(value, mask));
  return value;
}

/// Reduces over a block of full warps. All threads must call it, and all get the result. `none` is the
/// identity of the operator: op(none, x) = x.
template <typename Op>
RT_DEVICE float reduce_block(float value, Op op, float none) {
  RT_SHARED(parts, float[kWarp]);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int num_warps = static_cast<int>(blockDim.x) / kWarp;
  value = reduce_warp(value, op);
  sync_block();
  if (lane() == 0) parts[warp] = value;
  sync_block();
  return reduce_warp(lane() < num_warps ? parts[lane()] : none, op);
}

}  // namespace hearth::rt
