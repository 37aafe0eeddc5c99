#pragma once

#include "text/added_tokens.h"
#include "text/json_node.h"
#include "text/model.h"

namespace hearth::text {

/// Parses the model of tokenizer.json. `byte_level` is true if its vocabulary is written in GPT-2's alphabet.
/// Throws a UserError naming file and field for an unsupported type or option.
Model parse_model(const JsonNode& model, bool byte_level, const std::vector<AddedToken>& added);

}  // namespace hearth::text
