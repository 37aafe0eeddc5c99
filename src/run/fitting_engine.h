#pragma once

#include <memory>
#include <span>

#include "engine/engine.h"

namespace hearth::run {

/// An engine of these options. Where the GPU has too little free for it, the UserError has the table of the
/// plan and the settings that would fit, each planned.
std::unique_ptr<engine::Engine> make_engine(const engine::EngineOptions& options,
                                            std::span<const int64_t> train_sizes,
                                            std::span<const int64_t> eval_sizes);

}  // namespace hearth::run
