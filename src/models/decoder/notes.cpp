#include <fmt/format.h>

#include "base/error.h"
#include "models/decoder/config.h"

namespace hearth::models {

std::string context_note(const DecoderConfig& config, int64_t context) {
  if (context <= config.max_positions) return "";
  return fmt::format(
      "a context of {} tokens is above max_position_embeddings {} in the model's config.json: it has not "
      "been trained on later positions",
      context, config.max_positions);
}

std::string dropout_note(const DecoderConfig& config) {
  std::string rates;
  for (const auto& [key, rate] : config.dropouts)
    rates += fmt::format("{}{}={}", rates.empty() ? "" : ", ", key, rate);
  if (rates.empty()) return "";
  return fmt::format(
      "the model's config.json has {}, which transformers trains with; Hearth trains without dropout", rates);
}

void check_context(const DecoderConfig& config, int64_t context) {
  if (!config.learned_positions || context <= config.max_positions) return;
  user_error(
      "expected a context of at most {} tokens, the n_positions of this {} model, got {}; try a "
      "smaller data.context or --context",
      config.max_positions, config.family, context);
}

}  // namespace hearth::models
