#pragma once

#include <cstdint>

namespace hearth::train {

/// Bytes that this process can still touch: what the kernel says is available (/proc/meminfo), or what is
/// left of the control group's limit if that is less. A very large number where neither can be read.
int64_t available_memory_bytes();

}  // namespace hearth::train
