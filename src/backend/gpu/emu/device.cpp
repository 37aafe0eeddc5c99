#include "backend/gpu/device.h"

#include <chrono>
#include <cstring>
#include <map>
#include <thread>

#include "backend/gpu/driver.h"
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

struct EmulatedEvent : Event::Parts {
  std::shared_ptr<emu::Mark> mark = {};

  double seconds_since(const Event::Parts& earlier) const override {
    const auto& other = static_cast<const EmulatedEvent&>(earlier);
    return std::chrono::duration<double>(mark->passed - other.mark->passed).count();
  }
};

struct EmulatedRecording : Recording::Parts {
  std::shared_ptr<emu::Recording> recording = {};
};

class EmulatedStream : public Stream::Parts {
 public:
  explicit EmulatedStream(emu::Gpu& gpu) : gpu_(gpu), queue_(gpu) {}
  ~EmulatedStream() override { gpu_.wait_timeout.forget(this); }

  void copy_in(std::byte* device, const void* host, int64_t num_bytes) override {
    copy(device, host, num_bytes);
  }
  void copy_out(void* host, const std::byte* device, int64_t num_bytes) override {
    copy(host, device, num_bytes);
  }
  void fill(std::byte* device, int value, int64_t num_bytes) override {
    queue_.enqueue([=] { std::memset(device, value, static_cast<size_t>(num_bytes)); });
  }
  void call(void (*function)(void*), void* argument) override {
    queue_.enqueue([=] { function(argument); });
  }
  void multiply(const BlasMatmul& matmul, const BlasArrays& arrays) override {
    emu::multiply(queue_, matmul, arrays);
  }
  std::vector<BlasAlgorithm> algorithms(const BlasMatmul&) override { return emu::algorithms(gpu_); }
  std::string algorithm_fault(const BlasMatmul& matmul) override {
    return emu::algorithm_fault(gpu_, matmul);
  }
  void record(std::unique_ptr<Event::Parts>& event, Event::Kind) override {
    if (!event) event = std::make_unique<EmulatedEvent>();
    static_cast<EmulatedEvent&>(*event).mark = queue_.record();
  }
  void wait(const Event::Parts& event) override {
    queue_.wait(static_cast<const EmulatedEvent&>(event).mark);
  }
  void start_recording() override { queue_.start_recording(); }
  std::unique_ptr<Recording::Parts> finish_recording(std::string& fault) override {
    auto kept = std::make_unique<EmulatedRecording>();
    kept->recording = queue_.finish_recording();
    while (gpu_.settings.hangs_while_recording) std::this_thread::sleep_for(std::chrono::hours(1));
    if (!gpu_.settings.cannot_record) return kept;
    fault = "this emulated GPU cannot record";
    return nullptr;
  }
  void replay(const Recording::Parts& recording) override {
    emu::Recording& all = *static_cast<const EmulatedRecording&>(recording).recording;
    if (all.num_replays++ == gpu_.settings.failing_replay)
      throw DeviceError(Kind::fault, "this replay is configured to fail");
    for (const auto& call : all.calls) call();
  }
  void allow(double work_seconds, double wait_seconds) override {
    gpu_.wait_timeout.allow(this, work_seconds, wait_seconds);
  }
  double timeout_seconds() const override { return gpu_.wait_timeout.seconds(); }
  void synchronize(double deadline_seconds) override;
  void* handle() override { return &queue_; }

 private:
  void copy(void* to, const void* from, int64_t num_bytes) {
    queue_.enqueue([=, this] {
      cross_the_link(gpu_, num_bytes);
      std::memcpy(to, from, static_cast<size_t>(num_bytes));
    });
  }

  emu::Gpu& gpu_;
  emu::Stream queue_;
};

void EmulatedStream::synchronize(double deadline_seconds) {
  try {
    queue_.run_all();
  } catch (const emu::Fault& fault) {
    throw DeviceError(gpu_.settings.no_code ? Kind::no_code : Kind::fault, fault.what());
  }
  if (!gpu_.hangs) return gpu_.wait_timeout.forget(this);
  std::this_thread::sleep_for(std::chrono::duration<double>(deadline_seconds * gpu_.settings.hang_scale));
  throw DeviceError(Kind::timed_out, fmt::format("the GPU did not respond for {:.0f} s", deadline_seconds));
}

class EmulatedDevice : public Device::Parts {
 public:
  explicit EmulatedDevice(const DeviceInfo& info)
      : name_(info.name), gpu_{.settings = emu::gpus().at(static_cast<size_t>(info.index))} {}
  ~EmulatedDevice() override {
    for (const auto& [memory, bytes] : allocated_) emu::release(memory);
  }

  int64_t free_bytes() const override { return gpu_.settings.memory_bytes - gpu_.used_bytes; }
  std::byte* allocate(int64_t num_bytes) override;
  void release(std::byte* memory) override;
  // Not page-locked, because the emulator copies by memcpy.
  std::byte* allocate_host(int64_t num_bytes) override {
    return static_cast<std::byte*>(::operator new(static_cast<size_t>(num_bytes)));
  }
  std::unique_ptr<Stream::Parts> make_stream() override { return std::make_unique<EmulatedStream>(gpu_); }

 private:
  std::string name_;
  emu::Gpu gpu_;
  std::map<std::byte*, int64_t> allocated_;
};

std::byte* EmulatedDevice::allocate(int64_t num_bytes) {
  const bool refused = gpu_.num_allocations++ == gpu_.settings.refused_allocation;
  if (refused || num_bytes > free_bytes()) {
    throw DeviceError(Kind::out_of_memory, fmt::format("{} has {} free, {} requested", name_,
                                                       human_bytes(free_bytes()), human_bytes(num_bytes)));
  }
  std::byte* memory = emu::allocate(num_bytes);
  gpu_.used_bytes += num_bytes;
  allocated_[memory] = num_bytes;
  return memory;
}
void EmulatedDevice::release(std::byte* memory) {
  const auto found = allocated_.find(memory);
  HEARTH_CHECK(found != allocated_.end());
  gpu_.used_bytes -= found->second;
  allocated_.erase(found);
  emu::release(memory);
}

class Emulator : public Driver {
 public:
  explicit Emulator(FindKernel find_kernel) : find_kernel_(find_kernel) {}

  Runtime runtime() const override {
    return {.name = "emulated",
            .architectures = "emu",
            .library = blas_library(),
            .library_workspace_bytes = blas_workspace_bytes()};
  }
  std::vector<DeviceInfo> list_devices() const override {
    std::vector<DeviceInfo> all;
    for (size_t i = 0; i < emu::gpus().size(); ++i) {
      all.push_back({.driver = this,
                     .index = static_cast<int>(i),
                     .name = fmt::format("emulated GPU {}", i),
                     .architecture = "emu",
                     .pci_address = fmt::format("emu:{:02x}:00.0", i),
                     .driver_version = "emulator",
                     .memory_bytes = emu::gpus()[i].memory_bytes,
                     .shared_bytes = emu::settings().shared_bytes,
                     .num_multiprocessors = 1,
                     .integrated = emu::gpus()[i].integrated,
                     .has_display = emu::gpus()[i].has_display});
    }
    return all;
  }
  std::unique_ptr<Device::Parts> open(const DeviceInfo& info) const override {
    return std::make_unique<EmulatedDevice>(info);
  }
  void release_host(std::byte* memory) const override { ::operator delete(memory); }
  const ir::GpuKernel* find_kernel(std::string_view op) const override { return find_kernel_(op); }

 private:
  FindKernel find_kernel_;
};

}  // namespace

std::unique_ptr<Driver> make_driver(FindKernel find_kernel) {
  return std::make_unique<Emulator>(find_kernel);
}

}  // namespace hearth::gpu

void hearth_emulated_call(void* queue, void (*function)(void*), void* argument) {
  static_cast<hearth::emu::Stream*>(queue)->enqueue([=] { function(argument); });
}
