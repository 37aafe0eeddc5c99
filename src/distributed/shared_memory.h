#pragma once

#include <cstddef>
#include <cstdint>

namespace hearth::distributed {

/// Zeroed anonymous memory, shared with the processes that are forked after its construction. Freed when the
/// last of them ends.
class SharedMemory {
 public:
  /// Throws InternalError if the system refuses the allocation. Physical pages are allocated on first access.
  explicit SharedMemory(int64_t num_bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }
  int64_t num_bytes() const { return num_bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t num_bytes_ = 0;
};

}  // namespace hearth::distributed
