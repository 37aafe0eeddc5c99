#pragma once

#include <memory>

#include "data/masks.h"

namespace hearth::data {

/// Masks in image files, in one of the layouts of open_masks. UserError where the folder is in none.
std::unique_ptr<MaskedImages> open_mask_folder(const MaskOptions& options);
/// decide_masks for these.
MaskDecision decide_mask_folder(const MaskOptions& train, const MaskOptions& held_out);

}  // namespace hearth::data
