#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "nn/module.h"
#include "text/regex.h"

namespace hearth::hub {

/// Throws a UserError that says that the value of `key` in adapter_config.json is not supported. `expected`:
/// description of a valid value.
[[noreturn]] void refuse_value(const fs::path& file, std::string_view key,
                               const nlohmann::ordered_json& config, std::string_view expected);
/// Value of PEFT's target_modules that means all linear layers except the head.
inline constexpr const char* kAllLinear = "all-linear";
/// True if an entry of target_modules is kAllLinear, ignoring case.
bool is_all_linear(std::string_view target);
/// True if a module's name is `name` or ends with "." + name.
inline bool ends_as(std::string_view module, const std::string& name) {
  return module == name || module.ends_with("." + name);
}

/// A pattern in PEFT's adapter_config.json. Matches ASCII module names as Python's `re` does.
class ModulePattern {
 public:
  /// Part of a module's name that the pattern must match: the full name, or an end of it that starts after a
  /// dot.
  enum class Of : uint8_t { name, end };
  /// Throws a UserError, starting with `where`, for an invalid regular expression and for one that Python
  /// interprets differently.
  ModulePattern(const std::string& pattern, Of part, const std::string& where);
  bool matches(std::string_view module, text::RegexScratch& scratch, text::MatchTime& time) const;

 private:
  text::Regex regex_;
};

/// Determines the rank and scale of each module from PEFT's adapter_config.json: target_modules,
/// exclude_modules, layers_to_transform, layers_pattern, rank_pattern, alpha_pattern, modules_to_save, r,
/// lora_alpha and use_rslora. Not thread-safe.
class ModuleRule {
 public:
  /// Throws a UserError with `file` and the key for a value that PEFT rejects or that is not supported.
  ModuleRule(const nlohmann::ordered_json& config, std::string file);

  /// Returns rank and scale for a module by its full name in the model; rank 0: it has no adapter. Throws a
  /// UserError if the regular expressions take too long.
  nn::Adapter::Change change_of(std::string_view module) const;
  /// True if target_modules is all-linear. Then call change_of() for linear layers only, and not for the
  /// head.
  bool all_linear() const { return all_linear_; }
  const std::string& file() const { return file_; }

 private:
  struct Names {
    std::vector<std::string> list;
    std::unique_ptr<ModulePattern> pattern;  ///< regular expression; null if `list` is used
  };
  struct Override {
    ModulePattern pattern;
    double value;
  };
  Names names(const nlohmann::ordered_json& config, const char* key) const;
  std::vector<Override> overrides(const nlohmann::ordered_json& config, const char* key) const;
  void read_layers(const nlohmann::ordered_json& config);
  bool is_named(const Names& names, std::string_view module) const;
  bool is_saved(std::string_view module) const;
  bool is_in_saved(std::string_view module) const;
  bool is_in_layers(std::string_view module) const;
  double value_of(const std::vector<Override>& overrides, double other, std::string_view module) const;
  nn::Adapter::Change find_change(std::string_view module) const;

  std::string file_;
  bool all_linear_ = false;
  Names targets_, excluded_;
  std::vector<std::string> saved_;
  std::vector<int64_t> layers_;
  std::vector<std::string> layer_lists_;
  std::vector<Override> ranks_, alphas_;
  int64_t rank_ = 0;
  double alpha_ = 0;
  bool rslora_ = false;
  mutable text::RegexScratch scratch_;
  mutable text::MatchTime time_;
  mutable std::map<std::string, nn::Adapter::Change, std::less<>> known_;
};

}  // namespace hearth::hub
