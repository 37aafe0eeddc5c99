#pragma once

#include <string>
#include <string_view>

#include "base/file.h"

namespace hearth::models {

/// People's name of a family of language models that is not supported, by its model_type of transformers:
/// "Qwen3.5"; empty for others.
std::string_view unsupported_family(std::string_view model_type);

/// UserError that names the image model, where a _class_name of diffusers, a pipeline's or a network's, is
/// that of one that is known and not supported. `where`: the file, for the message.
void refuse_unsupported_image_model(const std::string& class_name, const std::string& where);

/// UserError where a folder holds such a pipeline, by its model_index.json.
void refuse_unsupported_pipeline(const fs::path& folder);

}  // namespace hearth::models
