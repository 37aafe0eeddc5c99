#pragma once

#include "base/file.h"
#include "train/engine.h"

namespace hearth::train {

/// Writes weights and statistics under torch's names and layouts; `average` writes their moving average
/// instead.
void save_weights(const Engine& engine, const fs::path& path, bool average);

/// Reads them back: every tensor of the model must be there with its shape (in f32, bf16, f16 or f64).
/// UserError names what is missing or differs.
void load_weights(const Engine& engine, const fs::path& path);

}  // namespace hearth::train
