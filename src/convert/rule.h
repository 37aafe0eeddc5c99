#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/config.h"
#include "convert/options.h"

namespace hearth::convert {

class Importer;

/// Result of the conversion of a key.
struct Result {
  Fate fate = Fate::no_effect;
  std::string detail;  ///< text for users: the keys that were set, or the reason
  /// Key of the recipe that was set or, for a refused key, that the user can set instead; empty: none.
  std::string ours = {};
};
using Convert = Result(Importer& importer, const Entry& entry);

enum class RuleKind : uint8_t {
  take,            ///< the recipe key `ours` is set to the value, mapped by `values` if there are any
  accept,          ///< only `values` have the same meaning in Hearth; others are refused
  without_effect,  ///< the key does not change the trained weights
  part,            ///< the conversion of another key, which `note` names, reads the key
  convert          ///< the function `convert` converts the key
};

/// Row of a tool's table: keys of the tool and their conversion.
struct Rule {
  std::string_view keys;  ///< names without indices, separated by blanks; a final * matches any ending
  RuleKind kind = RuleKind::without_effect;
  std::string_view ours = "";  ///< key of the recipe
  /// take: pairs "theirs=ours" separated by blanks; empty: the value itself. accept: values separated by |.
  std::string_view values = "";
  std::string_view note = "";  ///< reason or meaning, for users and docs/import-keys.md
  /// Default of the tool, which is converted if the key is absent; empty: none.
  std::string_view fallback = "";
  Convert* convert = nullptr;
};

/// A tool whose configs can be imported. To add a tool, write a file with its table and add a row to
/// tool_list.cpp.
struct Tool {
  std::string_view name;   ///< "axolotl"
  std::string_view title;  ///< "axolotl YAML"
  /// Keys by which the tool is recognized, separated by blanks; each config has at least one of them.
  std::string_view marks;
  std::vector<std::span<const Rule>> tables;  ///< the first rule that matches a key applies
  /// Changes the entries before the import: reads further files, replaces variables. May be null.
  void (*prepare)(Config& config, const ImportOptions& options) = nullptr;
};

std::span<const Tool> tools();

/// State of an import: the config, and the keys of the recipe that were set until now.
class Importer {
 public:
  Importer(const Config& config, const Tool& tool, const ImportOptions& options)
      : config(config), tool(tool), options(options) {}

  const Config& config;
  const Tool& tool;
  const ImportOptions& options;
  /// True if a conversion needed options.updates, which was not set.
  bool needs_updates = false;

  /// Sets a key of the recipe to a value: a scalar as text, or a list as "[a, b]". Returns Fate::equal if the
  /// value is the default, and Fate::refused if the recipe does not allow it.
  Result set(std::string_view ours, std::string_view value, std::string_view note = "");
  /// Sets a key to text that is not parsed, such as a path.
  Result set_text(std::string_view ours, std::string_view text, std::string_view note = "");
  /// Sets a key to a list of texts.
  Result set_list(std::string_view ours, std::span<const std::string> texts, std::string_view note = "");
  /// Refuses a key. `ours`: key of the recipe that the user can set instead. `nearest`: the nearest supported
  /// value, to which the key is set.
  Result refuse(std::string_view reason, std::string_view ours = "", std::string_view nearest = "");
  /// Returns the value of a recipe key as YAML; empty if it is not set.
  std::string value_of(std::string_view ours) const;
  /// Returns the number of updates of the run; nullopt if it is unknown.
  std::optional<double> updates();
  /// True if the config names an existing file or folder, and the import may read files.
  bool exists(const std::string& path) const;

  const std::map<std::string, std::string, std::less<>>& settings() const { return settings_; }

 private:
  Result set_yaml(std::string_view ours, const std::string& yaml, std::string_view note);

  std::map<std::string, std::string, std::less<>> settings_;
};

/// True for values that switch a feature off: null, false, 0, "", "none" and empty lists.
bool is_off(const Value& value);

/// Returns {Fate::no_effect, reason}.
inline Result no_effect(std::string reason) { return {Fate::no_effect, std::move(reason)}; }
/// Returns {Fate::equal, reason}.
inline Result equal(std::string reason) { return {Fate::equal, std::move(reason)}; }

}  // namespace hearth::convert
