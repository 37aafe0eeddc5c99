#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace hearth::models {

/// Throws a UserError if the weights of this config.json are quantized by a method that hub::show_dequantized
/// does not read. `where`: name of the file.
void check_quantization(const nlohmann::ordered_json& config, std::string_view where);

}  // namespace hearth::models
