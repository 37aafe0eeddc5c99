#pragma once

#include <string>
#include <string_view>

#include "base/file.h"

namespace hearth::models {

/// Returns the display name of an unsupported family of language models, such as "Qwen3.5", by the model_type
/// of transformers; empty if the model_type is not in the list.
std::string_view unsupported_family(std::string_view model_type);

/// Throws a UserError that names the image model if `class_name`, diffusers' _class_name of a pipeline or
/// network, belongs to a known but unsupported model. `where`: name of the file in the message.
void refuse_unsupported_image_model(const std::string& class_name, const std::string& where);

/// Throws a UserError if a folder's model_index.json describes an unsupported pipeline
/// (refuse_unsupported_image_model).
void refuse_unsupported_pipeline(const fs::path& folder);

}  // namespace hearth::models
