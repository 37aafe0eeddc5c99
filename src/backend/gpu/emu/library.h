#pragma once

/// Entry point for libraries that use emulated GPUs: queues a call of `function` on `queue`, a
/// gpu::Stream::handle(). Programs export it by this name.
extern "C" void hearth_emulated_call(void* queue, void (*function)(void*), void* argument);
