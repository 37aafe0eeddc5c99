#include "exec/device/gpu.h"

#include <algorithm>
#include <cstring>

#include "base/process.h"
#include "exec/device/display.h"
#include "passes/memory/storage.h"

namespace hearth::exec {

Gpu::Gpu(const GpuRequest& request)
    : device_(find_gpu(request.device, request.number)),
      reserve_bytes_(request.reserve_bytes.value_or(default_reserve_bytes(device_.info()))),
      recorder_(request.record, device_.info(), request.recordings),
      queues_{gpu::Stream(device_), gpu::Stream(device_), gpu::Stream(device_), gpu::Stream(device_)} {}

int64_t Gpu::usable_bytes(int64_t host_bytes) const {
  int64_t free = device_.free_bytes();
  if (is_integrated(device_.info())) free = std::min(free, available_memory_bytes() - host_bytes);
  return std::max<int64_t>(0, free - reserve_bytes_);
}

void ProgramMemory::Requirements::cover(const Program& program) {
  arena_bytes = std::max(arena_bytes, program.arena_bytes());
  staging_bytes = std::max(staging_bytes, program.staging_bytes);
  host_bytes = std::max(host_bytes, program.report.host_bytes);
}

int64_t ProgramMemory::Requirements::gpu_bytes() const {
  return passes::padded_bytes(arena_bytes) + Staging::gpu_bytes(staging_bytes) + Gpu::kSlackBytes;
}

ProgramMemory::ProgramMemory(gpu::Device& device, const Requirements& needs, std::byte* memory)
    : own_(memory == nullptr ? std::make_unique<gpu::Memory>(device, needs.gpu_bytes()) : nullptr),
      arena_(own_ ? own_->data() : memory),
      host_(needs.host_bytes > 0 ? std::make_unique<gpu::HostMemory>(device, needs.host_bytes) : nullptr),
      staging_(device, arena_ + passes::padded_bytes(needs.arena_bytes), needs.staging_bytes) {}

int64_t Gpu::needed_bytes(const PersistentLayout& layout, const ProgramMemory::Requirements& needs) {
  return passes::padded_bytes(layout.device_bytes()) + needs.gpu_bytes();
}

void Gpu::allocate(const PersistentLayout& layout, std::byte* image,
                   const ProgramMemory::Requirements& needs) {
  memory_ = std::make_unique<gpu::Memory>(device_, needed_bytes(layout, needs));
  program_memory_.emplace(device_, needs, memory_->data() + passes::padded_bytes(layout.device_bytes()));
  image_ = image;
  pieces_ = layout.device_pieces();
}

Bindings Gpu::bindings_in(ProgramMemory& room) {
  return {.persistent = memory_->data(),
          .arena = room.arena_,
          .host = room.host_ ? room.host_->data() : nullptr,
          .host_persistent = image_,
          .staging = &room.staging_,
          .queues = {&queues_[0], &queues_[1], &queues_[2], &queues_[3]},
          .pieces = pieces_,
          .recorder = &recorder_};
}

void Gpu::upload() {
  for (const DevicePiece& piece : pieces_)
    compute().copy_in(memory_->data() + piece.device_offset, image_ + piece.offset, piece.num_bytes);
  wait();
}

void Gpu::download() {
  for (const DevicePiece& piece : pieces_)
    compute().copy_out(image_ + piece.offset, memory_->data() + piece.device_offset, piece.num_bytes);
  wait();
}

void Gpu::read(const PersistentBuffer& buffer, void* host, int64_t num_bytes) {
  if (buffer.on_host) {
    std::memcpy(host, image_ + buffer.offset, static_cast<size_t>(num_bytes));
  } else {
    compute().copy_out(host, memory_->data() + buffer.device_offset, num_bytes);
  }
}

}  // namespace hearth::exec
