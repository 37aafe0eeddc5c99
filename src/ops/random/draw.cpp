#include "ops/random/draw.h"

#include "backend/gpu/driver.h"

namespace hearth::ops {

void draw_on_gpu(gpu::Device& device, gpu::Stream& stream, const ir::Type& type, std::byte* to, uint32_t seed,
                 float scale) {
  const ir::Attrs attrs = {{"seed", int64_t{seed}}, {"scale", double{scale}}};
  const ir::NodeView node{.attrs = attrs, .in = {}, .out = {&type, 1}};
  void* const out[] = {to};
  device.info().driver->kernel("draw", node).run({.in = {}, .out = out, .stream = &stream});
}

}  // namespace hearth::ops
