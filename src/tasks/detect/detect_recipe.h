#pragma once

#include <span>

#include "data/boxes/boxes.h"
#include "recipe/recipe.h"

namespace hearth::tasks {

/// Returns the values of data.kind for labels with boxes, in the order of data::BoxFormat.
std::span<const std::string_view> box_kinds();
/// Reads the images and boxes of a detection recipe. `split`: "train" or "test". Decodes images only if
/// data.bad_records=skip, to leave out unreadable ones.
data::BoxedImages boxed_images(const recipe::Recipe& recipe, const std::string& split);

}  // namespace hearth::tasks
