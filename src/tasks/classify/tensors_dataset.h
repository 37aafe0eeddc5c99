#pragma once

#include "data/dataset.h"

namespace hearth::tasks {

/// Returns the allowed values of data.kind for classification: the dataset kinds of src/data, and "tensors".
std::vector<std::string> image_kinds();
/// Opens a dataset whose options.kind is one of image_kinds(). "tensors" is a safetensors file with "images"
/// f32 [N, C, H, W], which are not normalized, and "labels" i32 or i64 [N]; `num_classes` is its number of
/// classes; 0: the largest label + 1.
std::unique_ptr<data::Dataset> open_any_dataset(const data::DatasetOptions& options, int64_t num_classes);

}  // namespace hearth::tasks
