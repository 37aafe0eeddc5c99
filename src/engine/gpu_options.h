#pragma once

#include <string_view>

#include "engine/options.h"

namespace hearth::engine {

/// Whether a device of that name is an emulated GPU.
bool is_emulated(std::string_view device);

/// Lets the engine run on a GPU; what is found out about its kernels is kept in the user's cache folder. An
/// emulated GPU shows no desktop, is as right as the program that brings it, and has nothing to measure: of
/// `self_test` it knows only always and never.
void use_gpu(EngineOptions& options, exec::GpuWish gpu, SelfTestMode self_test);

}  // namespace hearth::engine
