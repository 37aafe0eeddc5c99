#include "distributed/shared_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace hearth::distributed {

SharedMemory::SharedMemory(int64_t num_bytes) : num_bytes_(num_bytes) {
  void* const made = mmap(nullptr, static_cast<size_t>(num_bytes), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED)
    user_error("cannot allocate {} bytes of shared memory: {}; free memory or raise the process's limit",
               num_bytes, std::strerror(errno));
  data_ = static_cast<std::byte*>(made);
}

SharedMemory::~SharedMemory() { munmap(data_, static_cast<size_t>(num_bytes_)); }

}  // namespace hearth::distributed
