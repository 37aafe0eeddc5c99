#include "models/decoder/quantization.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace hearth::models {
namespace {

using Json = nlohmann::ordered_json;

/// Quantization methods (quant_method) whose checkpoints hub::show_dequantized reads.
constexpr std::array kQuantMethods = {"fp8",  "fbgemm_fp8", "compressed-tensors",
                                      "gptq", "awq",        "bitsandbytes"};

}  // namespace

void check_quantization(const Json& config, std::string_view where) {
  const auto found = config.find("quantization_config");
  if (found == config.end() || found->is_null()) return;
  const Json method = found->is_object() ? found->value("quant_method", Json("?")) : Json("?");
  if (std::ranges::find(kQuantMethods, method) != kQuantMethods.end()) return;
  user_error(
      "{}: the weights are quantized by {} (quant_method in quantization_config), which is not supported ({} "
      "are); use the original model, which adapter.quantize=nf4 stores in 4 bits (QLoRA)",
      where, method.dump().substr(0, 40), fmt::join(kQuantMethods, ", "));
}

}  // namespace hearth::models
