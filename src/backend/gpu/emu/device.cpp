#include "backend/gpu/device.h"

#include <chrono>
#include <cstring>
#include <map>
#include <thread>

#include "backend/gpu/emu/blas.h"
#include "backend/gpu/emu/checker.h"
#include "backend/gpu/emu/library.h"
#include "backend/gpu/emu/stream.h"
#include "base/error.h"
#include "base/text.h"

namespace hearth::gpu {
namespace {

using Kind = DeviceError::Kind;

void cross_the_link(const emu::Gpu& gpu, int64_t num_bytes) {
  const double rate = gpu.settings.link_bytes_per_second;
  if (rate > 0)
    std::this_thread::sleep_for(std::chrono::duration<double>(static_cast<double>(num_bytes) / rate));
}

DeviceInfo info_of(size_t index) {
  const emu::GpuSettings& settings = emu::gpus()[index];
  return {.name = fmt::format("emulated GPU {}", index),
          .architecture = "emu",
          .pci_address = fmt::format("emu:{:02x}:00.0", index),
          .driver = "emulator",
          .memory_bytes = settings.memory_bytes,
          .shared_bytes = emu::settings().shared_bytes,
          .num_multiprocessors = 1};
}

}  // namespace

struct Device::Parts {
  DeviceInfo info;
  emu::Gpu gpu;
  std::map<std::byte*, int64_t> allocated = {};
};

struct Event::Parts {
  std::shared_ptr<emu::Mark> mark = {};
};

struct Recording::Parts {
  std::shared_ptr<emu::Recording> recording;
};

struct Stream::Parts {
  explicit Parts(emu::Gpu& gpu) : queue(gpu) {}
  emu::Stream queue;
};

Runtime runtime() { return {.name = "emulated", .architectures = "emu", .library = blas_library()}; }

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> all;
  for (size_t i = 0; i < emu::gpus().size(); ++i) all.push_back(info_of(i));
  return all;
}

Device::Device(int index) {
  const auto position = static_cast<size_t>(index);
  HEARTH_CHECK(position < emu::gpus().size());
  parts_ =
      std::make_unique<Parts>(Parts{.info = info_of(position), .gpu = {.settings = emu::gpus()[position]}});
}
Device::~Device() {
  for (const auto& [memory, bytes] : parts_->allocated) emu::release(memory);
}
const DeviceInfo& Device::info() const { return parts_->info; }
int64_t Device::free_bytes() const { return parts_->gpu.settings.memory_bytes - parts_->gpu.used_bytes; }

std::byte* Device::allocate(int64_t num_bytes) {
  emu::Gpu& gpu = parts_->gpu;
  const bool refused = gpu.num_allocations++ == gpu.settings.refused_allocation;
  if (refused || num_bytes > free_bytes()) {
    throw DeviceError(Kind::out_of_memory, fmt::format("{} has {} free, {} were asked for", parts_->info.name,
                                                       human_bytes(free_bytes()), human_bytes(num_bytes)));
  }
  std::byte* memory = emu::allocate(num_bytes);
  gpu.used_bytes += num_bytes;
  parts_->allocated[memory] = num_bytes;
  return memory;
}
void Device::release(std::byte* memory) {
  const auto found = parts_->allocated.find(memory);
  HEARTH_CHECK(found != parts_->allocated.end());
  parts_->gpu.used_bytes -= found->second;
  parts_->allocated.erase(found);
  emu::release(memory);
}

// What the emulator moves, it moves by memcpy: any memory is as good.
HostMemory::HostMemory(Device&, int64_t num_bytes)
    : data_(static_cast<std::byte*>(::operator new(static_cast<size_t>(num_bytes)))) {}
HostMemory::~HostMemory() { ::operator delete(data_); }

Recording::Recording(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Recording::~Recording() = default;

Event::Event() : parts_(std::make_unique<Parts>()) {}
Event::~Event() = default;
double Event::seconds_since(const Event& earlier) const {
  return std::chrono::duration<double>(parts_->mark->passed - earlier.parts_->mark->passed).count();
}

Stream::Stream(Device& device) : parts_(std::make_unique<Parts>(device.parts().gpu)) {}
Stream::~Stream() { parts_->queue.gpu().patience.forget(this); }

void Stream::copy_in(std::byte* device, const void* host, int64_t num_bytes) {
  parts_->queue.enqueue([=, &gpu = parts_->queue.gpu()] {
    cross_the_link(gpu, num_bytes);
    std::memcpy(device, host, static_cast<size_t>(num_bytes));
  });
}
void Stream::copy_out(void* host, const std::byte* device, int64_t num_bytes) {
  parts_->queue.enqueue([=, &gpu = parts_->queue.gpu()] {
    cross_the_link(gpu, num_bytes);
    std::memcpy(host, device, static_cast<size_t>(num_bytes));
  });
}
void Stream::fill(std::byte* device, int value, int64_t num_bytes) {
  parts_->queue.enqueue([=] { std::memset(device, value, static_cast<size_t>(num_bytes)); });
}
void Stream::call(void (*function)(void*), void* argument) {
  parts_->queue.enqueue([=] { function(argument); });
}
void Stream::multiply(const BlasMatmul& matmul, const BlasArrays& arrays) {
  emu::multiply(parts_->queue, matmul, arrays);
}
void Stream::record(Event& event) { event.parts().mark = parts_->queue.record(); }
void Stream::wait(const Event& event) {
  if (event.parts().mark) parts_->queue.wait(event.parts().mark);
}

void Stream::start_recording() { parts_->queue.start_recording(); }
std::unique_ptr<Recording> Stream::finish_recording() {
  auto recording = parts_->queue.finish_recording();
  if (parts_->queue.gpu().settings.cannot_record) return nullptr;
  return std::make_unique<Recording>(
      std::make_unique<Recording::Parts>(Recording::Parts{std::move(recording)}));
}
void Stream::replay(const Recording& recording) {
  for (const auto& call : recording.parts().recording->calls) call();
}

void Stream::allow(double work_seconds, double wait_seconds) {
  parts_->queue.gpu().patience.allow(this, work_seconds, wait_seconds);
}
double Stream::patience_seconds() const { return parts_->queue.gpu().patience.seconds(); }

void Stream::synchronize(double deadline_seconds) {
  emu::Gpu& gpu = parts_->queue.gpu();
  try {
    parts_->queue.run_all();
  } catch (const emu::Fault& fault) {
    throw DeviceError(Kind::fault, fault.what());
  }
  if (!gpu.hangs) return gpu.patience.forget(this);
  std::this_thread::sleep_for(std::chrono::duration<double>(deadline_seconds * gpu.settings.hang_scale));
  throw DeviceError(Kind::no_answer, fmt::format("the GPU gave no answer for {:.0f} s", deadline_seconds));
}
void* Stream::handle() { return &parts_->queue; }

}  // namespace hearth::gpu

void hearth_emulated_call(void* queue, void (*function)(void*), void* argument) {
  static_cast<hearth::emu::Stream*>(queue)->enqueue([=] { function(argument); });
}
