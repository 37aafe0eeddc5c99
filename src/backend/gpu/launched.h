#pragma once

namespace hearth::gpu {

/// Stores the runtime's result code of a launch (0: success); the next Stream::synchronize() throws it. Some
/// runtimes clear the code at their next call.
void launched(int result);

}  // namespace hearth::gpu
