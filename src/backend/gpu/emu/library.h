#pragma once

/// For a library that works on emulated GPUs: `function` is called when the queue, what
/// gpu::Stream::handle() gave, gets to it. Programs export it by this name.
extern "C" void hearth_emulated_call(void* queue, void (*function)(void*), void* argument);
