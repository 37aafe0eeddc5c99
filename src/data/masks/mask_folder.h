#pragma once

#include <memory>

#include "data/masks/masks.h"

namespace hearth::data {

/// Opens masks in image files, in one of the layouts of open_masks. Throws a UserError if the folder has no
/// such layout.
std::unique_ptr<MaskedImages> open_mask_folder(const MaskOptions& options);
/// Implements decide_masks for masks in image files.
MaskDecision decide_mask_folder(const MaskOptions& train, const MaskOptions& held_out);

}  // namespace hearth::data
