#pragma once

#include "data/dataset.h"

namespace hearth::tasks {

/// Returns the allowed values of data.kind for classification: the kinds of data/ and "tensors".
std::vector<std::string> image_kinds();
/// Opens a dataset of one of image_kinds(). "tensors" is a safetensors file with "images" f32 [N, C, H, W],
/// used without normalization, and "labels" i32 or i64 [N]; its number of classes is `num_classes`, or, if 0,
/// the largest label + 1.
std::unique_ptr<data::Dataset> open_any_dataset(const data::DatasetOptions& options, int64_t num_classes);

}  // namespace hearth::tasks
