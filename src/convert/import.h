#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/path.h"
#include "convert/options.h"

namespace hearth::convert {

/// Key of a config, or default of the tool that differs from Hearth's, and how it was converted.
struct ImportedKey {
  std::string key;    ///< name in the config, with indices
  std::string value;  ///< value as text, on one line
  Fate fate = Fate::refused;
  std::string detail;  ///< KEY=VALUE of the recipe, and a note or the reason
  std::string where;   ///< FILE:LINE; empty for a default of the tool
};

/// Result of an import.
struct Imported {
  std::string tool;               ///< title of the recognized tool: "axolotl YAML"
  std::vector<ImportedKey> keys;  ///< one per value of the config, then the defaults of the tool
  std::string recipe;             ///< YAML text of the recipe; its comments list the refused keys
  std::string fault;              ///< message of the recipe checks; empty: the recipe is valid
  bool needs_updates = false;     ///< true if a key was refused because the number of updates is unknown

  /// Returns the number of keys with this outcome.
  size_t count(Fate fate) const;
};

/// Converts the text of another tool's config to a recipe. `file`: path of the config, for messages and for
/// the format (by extension). Throws a UserError if the text is invalid or the tool is not recognized.
Imported import_config(const std::string& text, const fs::path& file, const ImportOptions& options);

/// Returns the titles of all tools.
std::vector<std::string> tool_titles();
/// Returns the keys of all tools and their conversions as Markdown tables.
std::string describe_tools_in_markdown();

}  // namespace hearth::convert
