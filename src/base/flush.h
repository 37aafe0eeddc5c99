#pragma once

namespace hearth {

/// Calls fsync, and repeats it while signals interrupt it. Returns 0, or -1 with errno set.
int flush_to_disk(int descriptor);

}  // namespace hearth
