#pragma once

#include "data/dataset.h"

namespace hearth::tasks {

/// What DatasetOptions::kind may be here.
std::vector<std::string> image_kinds();
/// Opens any dataset of a recipe: a kind of data/, or "tensors", a safetensors file with "images" f32 [N, C,
/// H, W] and "labels" i32 or i64 [N], used without conversion. `num_classes`: for "tensors"; 0: the largest
/// label + 1.
std::unique_ptr<data::Dataset> open_any_dataset(const data::DatasetOptions& options, int64_t num_classes);

}  // namespace hearth::tasks
