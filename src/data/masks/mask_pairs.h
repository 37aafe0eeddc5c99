#pragma once

#include <string_view>
#include <vector>

#include "base/path.h"

namespace hearth::data {

/// An image file and its mask file.
struct MaskPair {
  fs::path image, mask;
};

/// Finds the images of the split "train" or "test" and their masks, in one of the layouts of open_masks.
/// Throws a UserError if no layout or several match, or if an image has no mask.
std::vector<MaskPair> find_mask_pairs(const fs::path& root, std::string_view split);

}  // namespace hearth::data
