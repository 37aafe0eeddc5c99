#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"

namespace hearth::hub {

/// Reads the first weights of a model of images from a file that may be another's: of another number of
/// classes, or the backbone alone. Every tensor of the backbone must be there with its shape, under its name
/// or the one it has without the prefix (`encoder.`, `backbone.`, `backbone.body.`); else UserError. The
/// backbone is what has such a prefix; of a model without one, all but the last layer. The rest is read
/// module by module where all of a module fits, and else stays as drawn. Returns sentences on what was drawn
/// and on what the file has beyond, a few names each.
std::vector<std::string> load_image_weights(engine::Engine& engine, const fs::path& path);

}  // namespace hearth::hub
