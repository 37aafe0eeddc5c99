#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/choices.h"

namespace hearth::convert {

/// Outcome of an import for a key of another tool's config.
enum class Fate : uint8_t {
  taken,      ///< a key of the recipe has the value
  equal,      ///< Hearth does the same by default
  no_effect,  ///< the key does not change the trained weights
  refused     ///< Hearth cannot do it, and it may change the trained weights
};
/// Returns "taken", "equal by default", "no effect" or "refused".
std::string_view fate_name(Fate fate);

struct ImportOptions {
  /// Allowed names of the recipe (run::recipe_choices()).
  const recipe::Choices& choices;
  /// Name of the tool; empty: the tool is recognized by the keys.
  std::string tool = {};
  /// Overrides of the recipe as key=value. A refused key becomes a taken one if an override sets the
  /// corresponding key of the recipe.
  std::vector<std::string> overrides = {};
  /// Number of updates of the run, for a warmup that is a fraction of them; unset: unknown.
  std::optional<int64_t> updates = {};
  /// True if the import may read files that the config names: data, tokenizers, other configs.
  bool reads_files = true;
};

}  // namespace hearth::convert
