#pragma once

namespace hearth::gpu {

/// Stores the runtime's result code of a launch (0: success). If it is an error, the next
/// Stream::synchronize() throws it. Stored here because some runtimes clear the code at their next call.
void launched(int result);

}  // namespace hearth::gpu
