#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace hearth::exec {

/// Zeroed memory from mmap, aligned to 2 MiB (with huge pages if available); freed by the destructor.
class Region {
 public:
  Region() = default;
  /// Throws UserError if the system cannot allocate that many bytes.
  explicit Region(int64_t num_bytes);
  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;
  ~Region();

  std::byte* data() const { return data_; }
  int64_t num_bytes() const { return num_bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t num_bytes_ = 0;
};

/// One weight or state in the persistent region.
struct PersistentBuffer {
  std::string name;
  ir::Type type;
  ir::Role role = ir::Role::parameter;
  /// Offset in bytes in the persistent region, and in its image on the host.
  int64_t offset = 0;
  bool on_host = false;
  int64_t device_offset = 0;  ///< offset in bytes in the device's memory for persistent buffers
  bool is_on_device() const { return !on_host && role != ir::Role::remote; }
};

/// A range of the persistent region that is contiguous on the device, too.
struct DevicePiece {
  int64_t offset = 0;
  int64_t device_offset = 0;
  int64_t num_bytes = 0;
};

/// Layout of the persistent region: the offset of each weight and state, the same for every program of a run.
/// Frozen weights come first, and values carried within an update last, so that a checkpoint is the
/// contiguous range between them.
class PersistentLayout {
 public:
  /// Adds the weights and states of a graph. A name that was added before must have the same type. All frozen
  /// weights must be in the first graph, and nothing else may be added after carried values.
  void add(const ir::Graph& graph);
  /// Returns the buffer with that name; throws InternalError if there is none.
  const PersistentBuffer& at(const std::string& name) const;
  /// Returns the buffer with that name, or null.
  const PersistentBuffer* find(const std::string& name) const;
  const std::vector<PersistentBuffer>& buffers() const { return buffers_; }
  int64_t num_bytes() const { return num_bytes_; }
  /// Returns the number of bytes to allocate on a device that has separate memory.
  int64_t device_bytes() const { return device_bytes_; }
  /// Returns the ranges that must be copied between host image and device.
  std::vector<DevicePiece> device_pieces() const;
  int64_t frozen_bytes() const { return bytes_of(ir::Role::frozen); }
  int64_t carried_bytes() const { return bytes_of(ir::Role::carried); }
  int64_t bytes_of(ir::Role role) const { return device_bytes_of(role) + host_bytes_of(role); }
  int64_t device_bytes_of(ir::Role role) const { return sum_of(role, false); }
  int64_t host_bytes_of(ir::Role role) const { return sum_of(role, true); }

 private:
  void add(const ir::Value& value, bool on_host);
  int64_t sum_of(ir::Role role, bool on_host) const;

  std::vector<PersistentBuffer> buffers_;
  std::map<std::string, size_t> index_;
  int64_t num_bytes_ = 0;
  int64_t device_bytes_ = 0;
};

}  // namespace hearth::exec
