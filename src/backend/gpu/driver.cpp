// Implements the classes of device.h by forwarding to the Parts of a driver.
#include "backend/gpu/driver.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace hearth::gpu {

ir::Kernel Driver::kernel(std::string_view op, std::span<const ir::NodeView> nodes) const {
  const ir::GpuKernel* const found = find_kernel(op);
  if (found == nullptr) internal_error("{} has no kernel for {} GPUs", op, runtime().name);
  if (found->many != nullptr) return found->many(nodes);
  HEARTH_CHECK(nodes.size() == 1);
  return found->one(nodes[0]);
}

bool is_integrated(const DeviceInfo& gpu) {
  constexpr auto kArchitectures = std::to_array<std::string_view>(
      {"gfx902", "gfx90c", "gfx1033", "gfx1035", "gfx1036", "gfx1037", "gfx1103", "gfx1150", "gfx1151",
       "gfx1152", "gfx1153", "gfx909", "gfx1013"});
  return gpu.integrated || std::ranges::find(kArchitectures, gpu.architecture) != kArchitectures.end();
}

Device::Device(const DeviceInfo& info) : info_(info), parts_(info.driver->open(info)) {}
Device::~Device() = default;
int64_t Device::free_bytes() const { return parts_->free_bytes(); }
std::byte* Device::allocate(int64_t num_bytes) { return parts_->allocate(num_bytes); }
void Device::release(std::byte* memory) { parts_->release(memory); }

HostMemory::HostMemory(Device& device, int64_t num_bytes)
    : driver_(*device.info().driver), data_(device.parts().allocate_host(num_bytes)) {}
HostMemory::~HostMemory() { driver_.release_host(data_); }

Event::Event(Kind kind) : kind_(kind) {}
Event::~Event() = default;
double Event::seconds_since(const Event& earlier) const {
  HEARTH_CHECK(kind_ == Kind::timed && earlier.kind_ == Kind::timed);
  return parts_->seconds_since(*earlier.parts_);
}

Recording::Recording(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Recording::~Recording() = default;

Stream::Stream(Device& device) : parts_(device.parts().make_stream()) {}
Stream::~Stream() = default;
void Stream::copy_in(std::byte* device, const void* host, int64_t num_bytes) {
  parts_->copy_in(device, host, num_bytes);
}
void Stream::copy_out(void* host, const std::byte* device, int64_t num_bytes) {
  parts_->copy_out(host, device, num_bytes);
}
void Stream::fill(std::byte* device, int value, int64_t num_bytes) { parts_->fill(device, value, num_bytes); }
void Stream::call(void (*function)(void*), void* argument) { parts_->call(function, argument); }
void Stream::multiply(const BlasMatmul& matmul, const BlasArrays& arrays) {
  parts_->multiply(matmul, arrays);
}
std::vector<BlasAlgorithm> Stream::algorithms(const BlasMatmul& matmul) { return parts_->algorithms(matmul); }
std::string Stream::algorithm_fault(const BlasMatmul& matmul) { return parts_->algorithm_fault(matmul); }
void Stream::record(Event& event) { parts_->record(event.parts_, event.kind_); }
void Stream::wait(const Event& event) {
  if (event.parts_) parts_->wait(*event.parts_);
}
void Stream::start_recording() { parts_->start_recording(); }
std::unique_ptr<Recording> Stream::finish_recording(std::string* fault) {
  std::string why;
  auto kept = parts_->finish_recording(why);
  if (fault != nullptr) *fault = std::move(why);
  return kept ? std::make_unique<Recording>(std::move(kept)) : nullptr;
}
void Stream::replay(const Recording& recording) { parts_->replay(recording.parts()); }
void Stream::allow(double work_seconds, double wait_seconds) { parts_->allow(work_seconds, wait_seconds); }
double Stream::timeout_seconds() const { return parts_->timeout_seconds(); }
void Stream::synchronize(double deadline_seconds) { parts_->synchronize(deadline_seconds); }
void* Stream::handle() { return parts_->handle(); }

}  // namespace hearth::gpu
