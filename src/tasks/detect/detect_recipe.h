#pragma once

#include <span>

#include "data/boxes/boxes.h"
#include "recipe/recipe.h"

namespace hearth::tasks {

/// Values of data.kind that have boxes, in the order of data::BoxFormat.
std::span<const std::string_view> box_kinds();
/// Reads the images of a recipe for detection with their boxes, its split "train" or "test". Images are
/// decoded only to leave out bad ones, with data.bad_records=skip.
data::BoxedPictures boxed_pictures(const recipe::Recipe& recipe, const std::string& split);

}  // namespace hearth::tasks
