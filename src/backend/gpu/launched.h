#pragma once

namespace hearth::gpu {

/// What a vendor's runtime said of a launch, 0 for well; the next Stream::synchronize() throws it. Some
/// runtimes forget it at their next call.
void launched(int result);

}  // namespace hearth::gpu
