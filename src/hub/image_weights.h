#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"

namespace hearth::hub {

/// Reads initial weights of an image model from a file that may have another number of classes, or only the
/// backbone. The backbone is every tensor with the prefix `encoder.`, `backbone.` or `backbone.body.`;
/// without such a prefix, everything but the last layer. UserError unless the file has each backbone tensor
/// with its shape, with or without the prefix. Other modules are read if all their tensors match, and
/// otherwise stay randomly initialized. Returns sentences that name some of these, and tensors of the file
/// that are not used.
std::vector<std::string> load_image_weights(engine::Engine& engine, const fs::path& path);

}  // namespace hearth::hub
