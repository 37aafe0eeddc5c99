#pragma once

/// Entry point for libraries that use emulated GPUs: queues a call of `function` on the stream whose
/// gpu::Stream::handle() is `queue`. Programs export it under this name.
extern "C" void hearth_emulated_call(void* queue, void (*function)(void*), void* argument);
