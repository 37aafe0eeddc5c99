#pragma once

#include "text/added_tokens.h"
#include "text/json_node.h"
#include "text/model.h"

namespace hearth::text {

/// The model of tokenizer.json. `byte_level` says that its vocabulary is spelled in GPT-2's alphabet.
/// UserError naming file and field for a type or an option that is not supported.
Model parse_model(const JsonNode& model, bool byte_level, const std::vector<AddedToken>& added);

}  // namespace hearth::text
