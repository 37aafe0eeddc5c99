#pragma once

#include <memory>
#include <span>

#include "engine/engine.h"

namespace hearth::run {

/// Creates an engine. `train_sizes`, `eval_sizes`: numbers of rows of its micro-batches. If the GPU has too
/// little free memory, throws a UserReport that shows the memory plan and suggests settings that fit, fastest
/// first.
std::unique_ptr<engine::Engine> make_engine(const engine::EngineOptions& options,
                                            std::span<const int64_t> train_sizes,
                                            std::span<const int64_t> eval_sizes);

}  // namespace hearth::run
