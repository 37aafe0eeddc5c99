#pragma once

namespace hearth {

/// fsync, repeated while signals interrupt it: 0, or -1 with errno.
int flush_to_disk(int descriptor);

}  // namespace hearth
