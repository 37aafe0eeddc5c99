#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/gpu/blas.h"
#include "backend/gpu/device.h"
#include "ir/gpu_kernel.h"

/// Interface that a GPU module implements. Every call may throw DeviceError as described in device.h.
namespace hearth::gpu {

/// Base of objects that a module allocates; not copyable.
class MadeByModule {
 public:
  MadeByModule() = default;
  virtual ~MadeByModule() = default;
  MadeByModule(const MadeByModule&) = delete;
  MadeByModule& operator=(const MadeByModule&) = delete;
};

/// A GPU runtime with its kernels: HIP, CUDA or the emulator.
class Driver : public MadeByModule {
 public:
  virtual Runtime runtime() const = 0;
  /// Lists every GPU of the runtime, in its order.
  virtual std::vector<DeviceInfo> list_devices() const = 0;
  virtual std::unique_ptr<Device::Parts> open(const DeviceInfo& info) const = 0;
  virtual void release_host(std::byte* memory) const = 0;
  /// Returns the kernel of the op with that name; null if there is none.
  virtual const ir::GpuKernel* find_kernel(std::string_view op) const = 0;
  /// Prepares one kernel for the nodes, which all have this op. Several nodes are allowed only if the op's
  /// GpuKernel::many is set.
  ir::Kernel kernel(std::string_view op, std::span<const ir::NodeView> nodes) const;
  ir::Kernel kernel(std::string_view op, const ir::NodeView& node) const { return kernel(op, {&node, 1}); }
};

/// Implementation of Device.
struct Device::Parts : MadeByModule {
  virtual int64_t free_bytes() const = 0;
  virtual std::byte* allocate(int64_t num_bytes) = 0;
  virtual void release(std::byte* memory) = 0;
  virtual std::byte* allocate_host(int64_t num_bytes) = 0;
  virtual std::unique_ptr<Stream::Parts> make_stream() = 0;
};

struct Event::Parts : MadeByModule {
  virtual double seconds_since(const Parts& earlier) const = 0;
};

struct Recording::Parts : MadeByModule {};

/// Implementation of Stream; the functions are documented there.
struct Stream::Parts : MadeByModule {
  virtual void copy_in(std::byte* device, const void* host, int64_t num_bytes) = 0;
  virtual void copy_out(void* host, const std::byte* device, int64_t num_bytes) = 0;
  virtual void fill(std::byte* device, int value, int64_t num_bytes) = 0;
  virtual void call(void (*function)(void*), void* argument) = 0;
  virtual void multiply(const BlasMatmul& matmul, const BlasArrays& arrays) = 0;
  virtual std::vector<BlasAlgorithm> algorithms(const BlasMatmul& matmul) = 0;
  virtual std::string algorithm_fault(const BlasMatmul& matmul) = 0;
  /// Records the event in the stream. A null `event` is created; an event of another GPU is replaced.
  virtual void record(std::unique_ptr<Event::Parts>& event, Event::Kind kind) = 0;
  virtual void wait(const Event::Parts& event) = 0;
  virtual void start_recording() = 0;
  virtual std::unique_ptr<Recording::Parts> finish_recording(std::string& fault) = 0;
  virtual void replay(const Recording::Parts& recording) = 0;
  virtual void allow(double work_seconds, double wait_seconds) = 0;
  virtual double timeout_seconds() const = 0;
  virtual void synchronize(double deadline_seconds) = 0;
  virtual void* handle() = 0;
};

/// Looks up the kernels that are compiled into a module.
using FindKernel = const ir::GpuKernel* (*)(std::string_view op);
std::unique_ptr<Driver> make_driver(FindKernel find_kernel);

/// Entry point of a module, exported under the symbol name `hearth_gpu_module`.
struct Module {
  uint64_t layout;  ///< kModuleLayout of the sources that the module was built from
  const Driver& (*driver)();
};
/// Hash of struct sizes. A module with another hash was built from other sources and is refused.
inline constexpr uint64_t kModuleLayout =
    ((((sizeof(ir::OpDef) * 1009 + sizeof(ir::NodeView)) * 1009 + sizeof(ir::KernelArgs)) * 1009 +
      sizeof(DeviceInfo)) *
         1009 +
     sizeof(Runtime)) *
        1009 +
    sizeof(BlasMatmul) + sizeof(BlasArrays) + sizeof(Event);

}  // namespace hearth::gpu
