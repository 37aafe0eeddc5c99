#pragma once

#include <cstddef>
#include <cstdint>

namespace hearth::distributed {

/// Zeroed memory that a process shares with those it forks. It has no name: when the last process that has
/// it ends, however it ends, nothing is left behind.
class SharedMemory {
 public:
  /// InternalError where the system has none to give. Pages are taken when they are first touched.
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
