#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace hearth::models {

/// Throws a UserError if "quantization_config" names a quantization method whose checkpoints
/// hub::show_dequantized does not support. `where`: name of the file, for the message.
void check_quantization(const nlohmann::ordered_json& config, std::string_view where);

}  // namespace hearth::models
