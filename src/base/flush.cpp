#include "base/flush.h"

#include <unistd.h>

#include <cerrno>

namespace hearth {

int flush_to_disk(int descriptor) {
  int result = -1;
  // At most 1000 tries, because some file systems always return EINTR.
  for (int tries = 0; tries < 1000 && result != 0; ++tries) {
    result = fsync(descriptor);
    if (result != 0 && errno != EINTR) break;
  }
  return result;
}

}  // namespace hearth
