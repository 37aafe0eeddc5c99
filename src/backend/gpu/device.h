#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

/// GPUs, their memory and their queues, without a vendor's header. HIP's, CUDA's and emulated ones are
/// driven by modules (backend/gpu/modules.h).
namespace hearth::gpu {

class Driver;
struct BlasMatmul;
struct BlasArrays;

/// What a GPU did instead of what it was asked. Never the user's mistake; the GPU may be unusable from then
/// on.
class DeviceError : public std::runtime_error {
 public:
  enum class Kind : uint8_t {
    out_of_memory,
    fault,      ///< a kernel did what it must not, or the GPU reported an error
    no_answer,  ///< the deadline passed
  };
  DeviceError(Kind kind, const std::string& what) : std::runtime_error(what), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

struct DeviceInfo {
  const Driver* driver = nullptr;  ///< whose GPU it is
  int index = 0;                   ///< among those of its driver
  std::string name;
  std::string architecture;    ///< "gfx1100", "sm_90", "emu"
  std::string pci_address;     ///< "0000:03:00.0"
  std::string driver_version;  ///< what a measured choice of kernels depends on
  int64_t memory_bytes = 0;
  int64_t shared_bytes = 0;  ///< that a block may have
  int num_multiprocessors = 0;
  bool integrated = false;  ///< shares the processor's memory
};
/// True if the GPU shares the processor's memory, as reported by its runtime or implied by its architecture.
bool is_integrated(const DeviceInfo& gpu);

/// What drives GPUs.
struct Runtime {
  std::string name;           ///< "HIP", "CUDA", "emulated"
  std::string version;        ///< of its library; empty where it has none
  std::string architectures;  ///< that its kernels were compiled for: "gfx1030 gfx1100"
  std::string library;        ///< of matmuls, and its version: "rocBLAS 3.1.0"; empty where it has none
  int64_t library_workspace_bytes = 0;
  std::string fault;  ///< why it shows no GPU of this machine; empty where it does
};

/// An open GPU. Streams and memory of it must be gone before it.
class Device {
 public:
  explicit Device(const DeviceInfo& info);
  ~Device();
  const DeviceInfo& info() const { return info_; }
  int64_t free_bytes() const;

  /// Bytes on the GPU, aligned to 256. Throws DeviceError.
  std::byte* allocate(int64_t num_bytes);
  void release(std::byte* memory);

  struct Parts;
  Parts& parts() { return *parts_; }

 private:
  DeviceInfo info_;
  std::unique_ptr<Parts> parts_;
};

/// Bytes on a GPU, released by the destructor.
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

/// Page-locked host memory, which copies use without a detour and beside the host's own work. Throws
/// DeviceError.
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

/// A moment in a stream, once one has recorded it.
class Event {
 public:
  Event();
  ~Event();
  /// By the GPU's clock; both have passed.
  double seconds_since(const Event& earlier) const;
  struct Parts;

 private:
  friend class Stream;
  std::unique_ptr<Parts> parts_;
};

/// Work of a stream, kept so that it can be queued again in one call. The memory it names must stay.
class Recording {
 public:
  struct Parts;
  explicit Recording(std::unique_ptr<Parts> parts);
  ~Recording();
  Parts& parts() const { return *parts_; }

 private:
  std::unique_ptr<Parts> parts_;
};

/// A queue of copies and kernels of one GPU, which run in order, and when the GPU gets to them. Host memory
/// that a copy reads or writes belongs to it until synchronize().
class Stream {
 public:
  explicit Stream(Device& device);
  ~Stream();

  void copy_in(std::byte* device, const void* host, int64_t num_bytes);
  void copy_out(void* host, const std::byte* device, int64_t num_bytes);
  void fill_zero(std::byte* device, int64_t num_bytes) { fill(device, 0, num_bytes); }
  /// Every byte becomes `value`.
  void fill(std::byte* device, int value, int64_t num_bytes);
  /// Has the host make this call when the GPU gets to it, on any thread. It must not use the GPU.
  void call(void (*function)(void*), void* argument);
  /// Leaves a matmul to the vendor's library (backend/gpu/blas.h). The first one of each kind sets up what
  /// cannot be recorded; those that follow allocate nothing. Throws DeviceError.
  void multiply(const BlasMatmul& matmul, const BlasArrays& arrays);
  void record(Event& event);
  /// What comes after waits for what stood before the event, in whatever stream.
  void wait(const Event& event);
  /// From here to finish_recording() the stream keeps what it is given instead of doing it.
  void start_recording();
  /// Null where the runtime cannot keep such work: it must then be given anew each time.
  std::unique_ptr<Recording> finish_recording();
  void replay(const Recording& recording);
  /// What was put in may take so long, beyond what was allowed before, and wait so long for other workers.
  void allow(double work_seconds, double wait_seconds = 0);
  /// How long synchronize() waits: a minute, and what the work of the GPU's streams was allowed.
  double patience_seconds() const;
  /// Returns when everything is done. Throws DeviceError.
  void synchronize() { synchronize(patience_seconds()); }
  void synchronize(double deadline_seconds);
  /// What rt::launch takes.
  void* handle();
  struct Parts;

 private:
  std::unique_ptr<Parts> parts_;
};

}  // namespace hearth::gpu
