#include "engine/memory.h"

#include <cstring>

#include "base/text.h"

namespace hearth::engine {

DoesNotFit::DoesNotFit(std::shared_ptr<const Plan> refused, int64_t needed, int64_t usable, std::string name)
    : UserError(fmt::format(
          "the plan needs {2}, but {1} has only {0} of usable memory; use a smaller model or micro-batch",
          human_bytes(usable), name, human_bytes(needed))),
      plan(std::move(refused)),
      needed_bytes(needed),
      usable_bytes(usable),
      device(std::move(name)) {}

Memory::Memory(const std::shared_ptr<const Plan>& plan) : plan_(plan) {
  if (plan->options.backend == exec::Backend::gpu) {
    open_gpu();
  } else {
    open_host();
  }
}

void Memory::open_host() {
  persistent_ = exec::Region(passes::padded_bytes(plan_->layout->num_bytes()));
  arena_ = exec::Region(plan_->arena_bytes);
  host_arena_ = exec::Region(plan_->host_arena_bytes);
  image_ = persistent_.data();
}

void Memory::open_gpu() {
  const exec::PersistentLayout& layout = *plan_->layout;
  gpu_ = std::make_unique<exec::Gpu>(plan_->options.gpu);
  const int64_t image_bytes = passes::padded_bytes(layout.num_bytes());
  const int64_t needed = plan_->gpu_bytes();
  const int64_t usable = gpu_->usable_bytes(image_bytes + plan_->host_arena_bytes);
  if (needed > usable) throw DoesNotFit(plan_, needed, usable, gpu_->device().info().name);
  if (layout.device_bytes() < layout.num_bytes()) {
    pinned_ = std::make_unique<gpu::HostMemory>(gpu_->device(), image_bytes);
    std::memset(pinned_->data(), 0, static_cast<size_t>(image_bytes));
    image_ = pinned_->data();
  } else {
    persistent_ = exec::Region(image_bytes);
    image_ = persistent_.data();
  }
  exec::ProgramMemory::Requirements needs;
  for (const exec::Program* program : plan_->programs()) needs.cover(*program);
  gpu_->allocate(layout, image_, needs);
}

exec::Bindings Memory::places() {
  if (gpu_) return gpu_->places();
  return {.persistent = image_, .arena = arena_.data(), .host = host_arena_.data()};
}

std::byte* Memory::host_image() {
  if (gpu_ && newer_ == Newer::gpu) gpu_->download();
  newer_ = Newer::host;
  return image_;
}

void Memory::sync_gpu() {
  if (gpu_ && newer_ == Newer::host) gpu_->upload();
  newer_ = Newer::gpu;
}

void Memory::read_loss_scale(float* to) {
  const exec::PersistentBuffer* scale = plan_->layout->find(kLossScale);
  *to = 1;
  if (scale == nullptr) return;
  if (gpu_ && newer_ == Newer::gpu) {
    gpu_->read(*scale, to, sizeof *to);
  } else {
    std::memcpy(to, image_ + scale->offset, sizeof *to);
  }
}

ScratchMemory::ScratchMemory(Memory& memory, const exec::Program& program) {
  if (exec::Gpu* gpu = memory.gpu()) {
    exec::ProgramMemory::Requirements needs;
    needs.cover(program);
    on_gpu_.emplace(gpu->device(), needs);
    places_ = gpu->bindings_in(*on_gpu_);
  } else {
    arena_ = exec::Region(program.arena_bytes());
    host_ = exec::Region(program.report.host_bytes);
    places_ = {.persistent = memory.image_, .arena = arena_.data(), .host = host_.data()};
  }
}

}  // namespace hearth::engine
