#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

/// Interface to GPUs, their memory and their streams, without a vendor's header. HIP, CUDA and emulated GPUs
/// are implemented by modules (backend/gpu/modules.h).
namespace hearth::gpu {

class Driver;
struct BlasAlgorithm;
struct BlasMatmul;
struct BlasArrays;

/// A failure of the GPU or its driver, not of the user's input. The GPU may be unusable afterwards.
class DeviceError : public std::runtime_error {
 public:
  enum class Kind : uint8_t {
    out_of_memory,
    no_code,    ///< the runtime finds no code for this GPU in the module's kernels
    fault,      ///< a kernel made an invalid access, or the GPU reported an error
    timed_out,  ///< the timeout passed
  };
  DeviceError(Kind kind, const std::string& what) : std::runtime_error(what), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

/// Properties of a GPU, as reported by its runtime.
struct DeviceInfo {
  const Driver* driver = nullptr;  ///< the driver that lists this GPU
  int index = 0;                   ///< index among the GPUs of its driver
  std::string name;
  std::string architecture;    ///< "gfx1100", "sm_90", "emu"
  std::string pci_address;     ///< "0000:03:00.0"
  std::string driver_version;  ///< part of the autotuning key
  int64_t memory_bytes = 0;
  int64_t shared_bytes = 0;  ///< shared memory available to a block
  int num_multiprocessors = 0;
  bool integrated = false;  ///< true if the GPU shares the processor's memory
  /// True if a display is connected: streams get the lowest priority, so that the desktop stays responsive.
  bool has_display = false;
};
/// True if the GPU shares the processor's memory, as reported by its runtime or implied by its architecture.
bool is_integrated(const DeviceInfo& gpu);

/// A GPU runtime (HIP, CUDA or the emulator), its version, and the build options of its module.
struct Runtime {
  std::string name;           ///< "HIP", "CUDA", "emulated"
  std::string version;        ///< version of the runtime's library; empty if there is none
  std::string architectures;  ///< architectures its kernels were compiled for: "gfx1030 gfx1100"
  std::string library;        ///< BLAS library and version: "rocBLAS 3.1.0"; empty if there is none
  int64_t library_workspace_bytes = 0;
  std::string fault;  ///< error that keeps the runtime from listing a GPU; empty if it lists one
};

/// An open GPU. Its streams and memory must be destroyed before it.
class Device {
 public:
  explicit Device(const DeviceInfo& info);
  ~Device();
  const DeviceInfo& info() const { return info_; }
  /// Returns the bytes that are free on the GPU now.
  int64_t free_bytes() const;

  /// Allocates bytes on the GPU, aligned to 256. Throws DeviceError.
  std::byte* allocate(int64_t num_bytes);
  /// Frees memory of allocate(); does not throw.
  void release(std::byte* memory);

  struct Parts;
  Parts& parts() { return *parts_; }

 private:
  DeviceInfo info_;
  std::unique_ptr<Parts> parts_;
};

/// An allocation on a GPU, released by the destructor.
class Memory {
 public:
  Memory(Device& device, int64_t num_bytes) : device_(device), data_(device.allocate(num_bytes)) {}
  ~Memory() { device_.release(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const { return data_; }

 private:
  Device& device_;
  std::byte* data_;
};

/// Page-locked (pinned) host memory: copies to and from it are direct and asynchronous. Throws DeviceError.
class HostMemory {
 public:
  HostMemory(Device& device, int64_t num_bytes);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  std::byte* data() const { return data_; }

 private:
  const Driver& driver_;
  std::byte* data_;
};

/// A point in a stream, set by Stream::record.
class Event {
 public:
  enum class Kind : uint8_t {
    ordering,  ///< for Stream::wait only
    timed,     ///< also for seconds_since; costs a timestamp on the GPU
  };
  explicit Event(Kind kind = Kind::ordering);
  ~Event();
  /// Returns the seconds on the GPU between `earlier` and this event. Both must be timed, and the GPU must
  /// have reached both.
  double seconds_since(const Event& earlier) const;
  struct Parts;

 private:
  friend class Stream;
  Kind kind_;
  std::unique_ptr<Parts> parts_;
};

/// A recorded sequence of stream work (a HIP or CUDA graph) that one call replays. The buffers that the work
/// uses must stay allocated.
class Recording {
 public:
  struct Parts;
  explicit Recording(std::unique_ptr<Parts> parts);
  ~Recording();
  Parts& parts() const { return *parts_; }

 private:
  std::unique_ptr<Parts> parts_;
};

/// A queue of copies and kernels of one GPU, which run in order and asynchronously. Host memory that a copy
/// reads or writes must not be touched before synchronize().
class Stream {
 public:
  explicit Stream(Device& device);
  ~Stream();

  /// Queues a copy from host to GPU; asynchronous for page-locked host memory (HostMemory).
  void copy_in(std::byte* device, const void* host, int64_t num_bytes);
  /// Queues a copy from GPU to host.
  void copy_out(void* host, const std::byte* device, int64_t num_bytes);
  void fill_zero(std::byte* device, int64_t num_bytes) { fill(device, 0, num_bytes); }
  /// Sets every byte to `value`.
  void fill(std::byte* device, int value, int64_t num_bytes);
  /// Queues a call of `function`, which runs on a host thread and must not use the GPU.
  void call(void (*function)(void*), void* argument);
  /// Queues a matmul of the vendor's library (backend/gpu/blas.h). The first call for each BlasMatmul does
  /// setup that cannot be recorded; later calls allocate nothing. Throws DeviceError.
  void multiply(const BlasMatmul& matmul, const BlasArrays& arrays);
  /// Returns the algorithms that the library recommends for a matmul, the best first; empty for libraries
  /// without such a list, such as rocBLAS. Each algorithm is deterministic. Throws DeviceError.
  std::vector<BlasAlgorithm> algorithms(const BlasMatmul& matmul);
  /// Returns the reason why BlasMatmul::algorithm must not be used for the matmul; empty if it may be used.
  std::string algorithm_fault(const BlasMatmul& matmul);
  /// Records in `event` the current end of the stream's queue.
  void record(Event& event);
  /// Makes later work of this stream wait until the GPU has reached the event, which may be in another
  /// stream.
  void wait(const Event& event);
  /// Records the following work instead of running it, until finish_recording(). Throws DeviceError if the
  /// runtime refuses.
  void start_recording();
  /// Returns the recording; null if the runtime cannot record this work. The caller must then queue the work
  /// directly. Stores the reason in `fault` unless null.
  std::unique_ptr<Recording> finish_recording(std::string* fault = nullptr);
  /// Queues the recorded work, by one call.
  void replay(const Recording& recording);
  /// Extends the timeout of synchronize(): by work_seconds for the queued work, and to at least wait_seconds
  /// for waiting on other workers.
  void allow(double work_seconds, double wait_seconds = 0);
  /// Returns the timeout of synchronize(): 60 s plus the time allowed for work of all streams of the GPU.
  double timeout_seconds() const;
  /// Waits until all queued work is done. Throws DeviceError.
  void synchronize() { synchronize(timeout_seconds()); }
  /// Waits for at most deadline_seconds, then throws DeviceError with Kind::timed_out.
  void synchronize(double deadline_seconds);
  /// Returns the native stream that rt::launch takes.
  void* handle();
  struct Parts;

 private:
  std::unique_ptr<Parts> parts_;
};

}  // namespace hearth::gpu
