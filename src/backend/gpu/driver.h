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

/// What a module for GPUs implements. Every call throws DeviceError as device.h says.
namespace hearth::gpu {

/// Something that a module made, and that stays where it was made.
class MadeByModule {
 public:
  MadeByModule() = default;
  virtual ~MadeByModule() = default;
  MadeByModule(const MadeByModule&) = delete;
  MadeByModule& operator=(const MadeByModule&) = delete;
};

class Driver : public MadeByModule {
 public:
  virtual Runtime runtime() const = 0;
  /// Every GPU that it shows, in its order.
  virtual std::vector<DeviceInfo> list_devices() const = 0;
  virtual std::unique_ptr<Device::Parts> open(const DeviceInfo& info) const = 0;
  virtual void release_host(std::byte* memory) const = 0;
  /// Of the op of that name; null: it has none.
  virtual const ir::GpuKernel* find_kernel(std::string_view op) const = 0;
  /// The kernel for nodes of that op, which has one: for several only where GpuKernel::many is set.
  ir::Kernel kernel(std::string_view op, std::span<const ir::NodeView> nodes) const;
  ir::Kernel kernel(std::string_view op, const ir::NodeView& node) const { return kernel(op, {&node, 1}); }
};

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

struct Stream::Parts : MadeByModule {
  virtual void copy_in(std::byte* device, const void* host, int64_t num_bytes) = 0;
  virtual void copy_out(void* host, const std::byte* device, int64_t num_bytes) = 0;
  virtual void fill(std::byte* device, int value, int64_t num_bytes) = 0;
  virtual void call(void (*function)(void*), void* argument) = 0;
  virtual void multiply(const BlasMatmul& matmul, const BlasArrays& arrays) = 0;
  /// Makes the event, or one of its own in place of another GPU's.
  virtual void record(std::unique_ptr<Event::Parts>& event) = 0;
  virtual void wait(const Event::Parts& event) = 0;
  virtual void start_recording() = 0;
  virtual std::unique_ptr<Recording::Parts> finish_recording() = 0;
  virtual void replay(const Recording::Parts& recording) = 0;
  virtual void allow(double work_seconds, double wait_seconds) = 0;
  virtual double patience_seconds() const = 0;
  virtual void synchronize(double deadline_seconds) = 0;
  virtual void* handle() = 0;
};

/// The drivers of vendor/ or emu/, over the kernels of a module.
using FindKernel = const ir::GpuKernel* (*)(std::string_view op);
std::unique_ptr<Driver> make_driver(FindKernel find_kernel);

/// What a module exports as `hearth_gpu_module`.
struct Module {
  uint64_t layout;  ///< kModuleLayout of the sources that it was built from
  const Driver& (*driver)();
};
/// Differs where a module and the program would see each other's data differently.
inline constexpr uint64_t kModuleLayout =
    ((((sizeof(ir::OpDef) * 1009 + sizeof(ir::NodeView)) * 1009 + sizeof(ir::KernelArgs)) * 1009 +
      sizeof(DeviceInfo)) *
         1009 +
     sizeof(Runtime)) *
        1009 +
    sizeof(BlasMatmul) + sizeof(BlasArrays);

}  // namespace hearth::gpu
