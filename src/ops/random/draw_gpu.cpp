#include "ops/gpu_support.h"
#include "ops/random/draw.h"

namespace hearth::ops {
namespace {

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) draw(T* out, int64_t count, uint32_t seed, float scale) {
  for (int64_t i = first_element(); i < count; i += element_stride())
    out[i] = rt::from_float<T>(scale * drawn_element(seed, i));
}

}  // namespace

void draw_on_gpu(gpu::Stream& stream, DType dtype, std::byte* to, int64_t count, uint32_t seed, float scale) {
  with_storage_type(dtype, [&](auto x) {
    using T = decltype(x);
    rt::launch(draw<T>, {num_stride_blocks(count), kBlockThreads}, stream.handle(), reinterpret_cast<T*>(to),
               count, seed, scale);
    return ir::Kernel();
  });
}

}  // namespace hearth::ops
