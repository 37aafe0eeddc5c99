#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"

namespace hearth::hub {

/// Reads initial weights of an image model from a file that may have another number of classes, or only the
/// backbone. The backbone is every tensor with the prefix `encoder.`, `backbone.` or `backbone.body.`; if no
/// tensor has one, everything but the last layer. Throws a UserError unless the file has each backbone tensor
/// with its shape, with or without the prefix. Each other module is read if all its tensors match, and
/// otherwise stays randomly initialized. Returns sentences for the user that name modules that were not read,
/// and tensors of the file that are not used.
std::vector<std::string> load_image_weights(engine::Engine& engine, const fs::path& path);

}  // namespace hearth::hub
