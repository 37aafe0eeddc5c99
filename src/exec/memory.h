#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace hearth::exec {

/// Zeroed, 2 MiB aligned memory from mmap (huge pages if available), freed by the destructor.
class Region {
 public:
  Region() = default;
  /// Throws UserError if the machine refuses that many bytes.
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
  /// Offset in the persistent region (the host's image), in bytes.
  ir::Role role = ir::Role::parameter;
  int64_t offset = 0;
  bool on_host = false;
  int64_t device_offset = 0;  ///< offset among the buffers on the device
  bool is_on_device() const { return !on_host && role != ir::Role::remote; }
};

/// A range of the region that is contiguous on the device too.
struct DevicePiece {
  int64_t offset = 0;
  int64_t device_offset = 0;
  int64_t num_bytes = 0;
};

/// Layout of the persistent region: an offset per weight and state, shared by every program of a run. Frozen
/// weights come first and values carried within an update last, so that checkpoints are one contiguous range
/// between them.
class PersistentLayout {
 public:
  /// Adds the parameters and states of a graph; a name added before must have the same type. The first graph
  /// must have all frozen weights, and no weights or states may be added after carried values.
  void add(const ir::Graph& graph);
  /// Returns the buffer with that name; throws InternalError if there is none.
  const PersistentBuffer& at(const std::string& name) const;
  /// Returns the buffer with that name, or null.
  const PersistentBuffer* find(const std::string& name) const;
  const std::vector<PersistentBuffer>& buffers() const { return buffers_; }
  int64_t num_bytes() const { return num_bytes_; }
  /// Returns the bytes to allocate on a device with separate memory.
  int64_t device_bytes() const { return device_bytes_; }
  /// Returns the contiguous ranges to copy between host image and device.
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
