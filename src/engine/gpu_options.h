#pragma once

#include <string_view>

#include "engine/options.h"

namespace hearth::engine {

/// True if `device` is the name of an emulated GPU.
bool is_emulated(std::string_view device);

/// Sets the options to run on a GPU. Results of self-tests, autotuning and recordings are stored in the
/// user's cache folder. For an emulated GPU: no memory is reserved for other programs, SelfTestMode::once is
/// replaced by SelfTestMode::never, matmuls are not autotuned unless a matmul library is requested, and
/// results of recordings are not stored.
void use_gpu(EngineOptions& options, exec::GpuRequest gpu, SelfTestMode self_test);

}  // namespace hearth::engine
