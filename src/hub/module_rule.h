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

/// The UserError for a key of an adapter_config.json; `expected` is what could stand there.
[[noreturn]] void refuse_value(const fs::path& file, std::string_view key,
                               const nlohmann::ordered_json& config, std::string_view expected);
/// What PEFT calls every linear layer but the head.
inline constexpr const char* kAllLinear = "all-linear";
/// Whether target_modules says it, in any case.
bool is_all_linear(std::string_view target);
/// Whether a module has that name, or one that ends with it after a dot.
inline bool ends_as(std::string_view module, const std::string& name) {
  return module == name || module.ends_with("." + name);
}

/// A pattern of PEFT's adapter_config.json, as Python's `re` matches it against the ASCII names of modules.
class ModulePattern {
 public:
  /// Of a whole name, or of its end after a dot. UserError naming `where` for a regular expression that does
  /// not compile or that Python reads differently.
  enum class Of : uint8_t { name, end };
  ModulePattern(const std::string& pattern, Of part, const std::string& where);
  bool matches(std::string_view module, text::RegexScratch& scratch, text::MatchTime& time) const;

 private:
  text::Regex regex_;
};

/// What PEFT's adapter_config.json says becomes of a module: target_modules, exclude_modules,
/// layers_to_transform, layers_pattern, rank_pattern, alpha_pattern, modules_to_save, r, lora_alpha and
/// use_rslora together. Not for several threads at once.
class ModuleRule {
 public:
  /// UserError naming `file` and the key for a value that PEFT would not take or that is not supported.
  ModuleRule(const nlohmann::ordered_json& config, std::string file);

  /// By a module's full name in the model. UserError for a regular expression that takes too long.
  nn::Adapter::Change change_of(std::string_view module) const;
  /// Every linear layer but the head; change_of then answers for linear layers alone.
  bool all_linear() const { return all_linear_; }
  const std::string& file() const { return file_; }

 private:
  struct Names {
    std::vector<std::string> list;
    std::unique_ptr<ModulePattern> pattern;  ///< in place of the list
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
