#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace hearth::exec {

/// Zeroed, 2 MiB aligned memory straight from the kernel (huge pages where it grants them), freed by the
/// destructor.
class Region {
 public:
  Region() = default;
  /// UserError when the machine refuses that many bytes.
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
  int64_t offset = 0;
  bool on_host = false;
  int64_t device_offset = 0;  ///< among those that are on the device
  bool is_on_device() const { return !on_host && role != ir::Role::remote; }
};

/// Bytes of the region that lie in one piece on a device too.
struct DevicePiece {
  int64_t offset = 0;
  int64_t device_offset = 0;
  int64_t num_bytes = 0;
};

/// Where weights and state live: an offset per name, shared by every program of a run. Frozen weights come
/// first and what is carried within an update last, so that what a run keeps is one piece between them.
class PersistentLayout {
 public:
  /// Adds the parameters and states of a graph; a name seen before must have the same type. The first graph
  /// has all frozen weights, and what comes after one with carried values has no new weights or states.
  void add(const ir::Graph& graph);
  const PersistentBuffer& at(const std::string& name) const;
  const PersistentBuffer* find(const std::string& name) const;
  const std::vector<PersistentBuffer>& buffers() const { return buffers_; }
  int64_t num_bytes() const { return num_bytes_; }
  /// What a device with memory of its own has to hold.
  int64_t device_bytes() const { return device_bytes_; }
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
