#pragma once

#include "data/dataset.h"

namespace hearth::tasks {

/// What DatasetOptions::kind may be here.
std::vector<std::string> image_kinds();
/// Opens any dataset of a recipe: those of data/, and "tensors": a safetensors file with "images" f32 [N, C,
/// H, W] and "labels" i32 or i64 [N], handed out as they are. `num_classes`:
/// of tensors; 0: one more than their largest label.
std::unique_ptr<data::Dataset> open_any_dataset(const data::DatasetOptions& options, int64_t num_classes);

}  // namespace hearth::tasks
