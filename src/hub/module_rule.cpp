#include "hub/module_rule.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace hearth::hub {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxRank = 1 << 16;
constexpr size_t kMaxPatterns = 4096;
/// Time limit for matching all patterns and modules, given as the size in bytes of a text for which
/// text::MatchTime allows that time.
constexpr size_t kTimedBytes = 1 << 20;

bool is_printable_ascii(char c) { return c > ' ' && c <= '~'; }

/// Returns the first part of a regular expression that Python's `re` interprets differently or rejects; empty
/// if there is none.
std::string_view unlike_python(std::string_view pattern) {
  if (!std::ranges::all_of(pattern, is_printable_ascii)) return "a character that no module name contains";
  if (pattern.find("}?") != std::string_view::npos || pattern.find("}+") != std::string_view::npos)
    return "a quantifier after '}'";
  for (size_t i = 0; i + 1 < pattern.size(); ++i) {
    if (pattern[i] != '\\') continue;
    const char c = pattern[++i];
    if (std::string_view("pPehHz").find(c) != std::string_view::npos) return pattern.substr(i - 1, 2);
    if (c == 'x' && pattern.substr(i + 1).starts_with('{')) return "\\x{";
  }
  return "";
}

/// Returns the pattern changed to match only full names. A leading (?i) stays in front.
std::string whole_name(const std::string& pattern) {
  constexpr std::string_view kAnyCase = "(?i)";
  const size_t skip = pattern.starts_with(kAnyCase) ? kAnyCase.size() : 0;
  return fmt::format("{}\\A(?:{})\\z", pattern.substr(0, skip), pattern.substr(skip));
}

text::Regex compile(const std::string& pattern, ModulePattern::Of part, const std::string& where) {
  if (const std::string_view found = unlike_python(pattern); !found.empty())
    user_error("{}: expected a regular expression that Hearth and Python interpret alike, got {} in '{}'",
               where, found, shortened(pattern, 80));
  // Compiles the unchanged pattern first, because the added parentheses could turn an invalid pattern into a
  // valid one.
  const text::Regex alone(pattern, where);
  return {part == ModulePattern::Of::name ? whole_name(pattern) : fmt::format("\\A(.*\\.)?({})$", pattern),
          where};
}

std::string where_of(const std::string& file, const char* key) {
  return fmt::format("{}: \"{}\"", file, key);
}

bool is_name(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return std::isalnum(static_cast<uint8_t>(c)) != 0 || c == '_' || c == '.';
  });
}

bool is_integer(const Json& value) { return value.is_number_integer(); }

}  // namespace

void refuse_value(const fs::path& file, std::string_view key, const Json& config, std::string_view expected) {
  const std::string got =
      config.value(std::string(key), Json()).dump(-1, ' ', false, Json::error_handler_t::replace);
  user_error("{}: expected {} for \"{}\", got {}; if PEFT loads the adapter, merge it with merge_and_unload",
             file.string(), expected, key, shortened(got, 60));
}

bool is_all_linear(std::string_view target) {
  const auto same = [](char a, char b) { return std::tolower(static_cast<uint8_t>(a)) == b; };
  return std::ranges::equal(target, std::string_view(kAllLinear), same);
}

ModulePattern::ModulePattern(const std::string& pattern, Of part, const std::string& where)
    : regex_(compile(pattern, part, where)) {}

bool ModulePattern::matches(std::string_view module, text::RegexScratch& scratch,
                            text::MatchTime& time) const {
  regex_.check(time, module.size());
  return regex_.find(module, 0, scratch, time).has_value();
}

ModuleRule::ModuleRule(const Json& config, std::string file) : file_(std::move(file)), time_(kTimedBytes) {
  rank_ = config.at("r").get<int64_t>();
  alpha_ = config.at("lora_alpha").get<double>();
  rslora_ = config.value("use_rslora", Json()) == true;
  const Json targets = config.value("target_modules", Json());
  all_linear_ = targets.is_string() && is_all_linear(targets.get<std::string>());
  if (!all_linear_) targets_ = names(config, "target_modules");
  excluded_ = names(config, "exclude_modules");
  Names saved = names(config, "modules_to_save");
  if (saved.pattern) refuse_value(file_, "modules_to_save", config, "a list of names");
  saved_ = std::move(saved.list);
  if (!std::ranges::all_of(saved_, is_name)) refuse_value(file_, "modules_to_save", config, "plain names");
  if (targets_.list.empty() && !targets_.pattern && !all_linear_) {
    refuse_value(file_, "target_modules", config, "a list of names, a regular expression or \"all-linear\"");
  }
  read_layers(config);
  ranks_ = overrides(config, "rank_pattern");
  alphas_ = overrides(config, "alpha_pattern");
}

ModuleRule::Names ModuleRule::names(const Json& config, const char* key) const {
  const Json value = config.value(key, Json());
  Names found;
  const auto is_text = [](const Json& item) { return item.is_string(); };
  if (value.is_string() && value != "") {
    found.pattern = std::make_unique<ModulePattern>(value.get<std::string>(), ModulePattern::Of::name,
                                                    where_of(file_, key));
  } else if (value.is_array() && std::ranges::all_of(value, is_text)) {
    found.list = value.get<std::vector<std::string>>();
  } else if (!value.is_null() && value != "") {
    refuse_value(file_, key, config, "a list of names or a regular expression");
  }
  return found;
}

std::vector<ModuleRule::Override> ModuleRule::overrides(const Json& config, const char* key) const {
  const Json value = config.value(key, Json());
  const bool ranks = key == std::string_view("rank_pattern");
  std::vector<Override> found;
  if (value.is_null()) return found;
  if (!value.is_object() || value.size() > kMaxPatterns)
    refuse_value(file_, key, config, "an object of patterns and numbers");
  for (const auto& [pattern, number] : value.items()) {
    if (!number.is_number() || (ranks && (!is_integer(number) || number < 1 || number > kMaxRank))) {
      user_error("{}: expected {} for '{}' in \"{}\", got {}", file_,
                 ranks ? "a rank from 1 to 65536" : "a number", shortened(pattern, 80), key,
                 shortened(number.dump(), 60));
    }
    found.push_back(
        {ModulePattern(pattern, ModulePattern::Of::end, where_of(file_, key)), number.get<double>()});
  }
  return found;
}

/// Reads layers_to_transform, the indices of the layers with an adapter, and layers_pattern, the names of the
/// module lists to which these indices apply.
void ModuleRule::read_layers(const Json& config) {
  const Json layers = config.value("layers_to_transform", Json());
  const Json lists = config.value("layers_pattern", Json());
  if (is_integer(layers))
    layers_ = {layers.get<int64_t>()};
  else if (layers.is_array() && std::ranges::all_of(layers, is_integer))
    layers_ = layers.get<std::vector<int64_t>>();
  else if (!layers.is_null())
    refuse_value(file_, "layers_to_transform", config, "a list of layers' numbers");
  if (lists.is_string() && lists != "")
    layer_lists_ = {lists.get<std::string>()};
  else if (lists.is_array())
    layer_lists_ = names(config, "layers_pattern").list;
  else if (!lists.is_null() && lists != "")
    refuse_value(file_, "layers_pattern", config, "a list of names");
  const auto is_plain = [](const std::string& name) {
    return is_name(name) && name.find('.') == std::string::npos;
  };
  if (!std::ranges::all_of(layer_lists_, is_plain))
    refuse_value(file_, "layers_pattern", config, "plain names like \"layers\"");
  if (!layer_lists_.empty() && layers.is_null())
    refuse_value(file_, "layers_pattern", config, "nothing without layers_to_transform");
  if (config.value("target_modules", Json()).is_string() && !layers.is_null())
    refuse_value(file_, "layers_to_transform", config, "nothing where target_modules is a text");
}

bool ModuleRule::is_named(const Names& names, std::string_view module) const {
  if (names.pattern) return names.pattern->matches(module, scratch_, time_);
  return std::ranges::any_of(names.list, [&](const std::string& name) { return ends_as(module, name); });
}

/// True if PEFT would train a full copy of this module: its name, or that of an enclosing module, ends with
/// an entry of modules_to_save.
bool ModuleRule::is_saved(std::string_view module) const {
  for (size_t end = 0; end != std::string_view::npos;) {
    end = module.find('.', end + 1);
    const std::string_view outer = module.substr(0, end);
    if (std::ranges::any_of(saved_, [&](const std::string& name) { return outer.ends_with(name); }))
      return true;
  }
  return false;
}

/// True if the module, or an enclosing one, has a name in modules_to_save. Such a module gets no adapter.
bool ModuleRule::is_in_saved(std::string_view module) const {
  const std::string dotted = "." + std::string(module) + ".";
  return std::ranges::any_of(
      saved_, [&](const std::string& name) { return dotted.find("." + name + ".") != std::string::npos; });
}

/// True if the layer index of the module is in layers_to_transform. The index is the first number after the
/// name of a module list.
bool ModuleRule::is_in_layers(std::string_view module) const {
  if (layers_.empty()) return true;
  std::vector<std::string_view> parts;
  for (size_t at = 0; at <= module.size();) {
    const size_t dot = std::min(module.find('.', at), module.size());
    parts.push_back(module.substr(at, dot - at));
    at = dot + 1;
  }
  for (size_t i = 2; i + 1 < parts.size(); ++i) {
    const bool listed =
        layer_lists_.empty() || std::ranges::find(layer_lists_, parts[i - 1]) != layer_lists_.end();
    const bool is_number = !parts[i].empty() && parts[i].size() < 10 &&
                           parts[i].find_first_not_of("0123456789") == std::string_view::npos;
    if (listed && is_number)
      return std::ranges::find(layers_, std::stoll(std::string(parts[i]))) != layers_.end();
  }
  return false;
}

double ModuleRule::value_of(const std::vector<Override>& overrides, double other,
                            std::string_view module) const {
  for (const Override& one : overrides) {
    if (one.pattern.matches(module, scratch_, time_)) return one.value;
  }
  return other;
}

nn::Adapter::Change ModuleRule::find_change(std::string_view module) const {
  const bool whole = is_saved(module);
  const bool targeted = !is_in_saved(module) && !is_named(excluded_, module) &&
                        (all_linear_ || (is_named(targets_, module) && is_in_layers(module)));
  if (whole && targeted && !all_linear_) {
    user_error(
        "{}: expected modules in \"modules_to_save\" or \"target_modules\", got '{}' in both; try full names",
        file_, module);
  }
  if (whole || !targeted) return {.whole = whole};
  const double rank = value_of(ranks_, static_cast<double>(rank_), module);
  const double alpha = value_of(alphas_, alpha_, module);
  return {.rank = static_cast<int64_t>(rank), .scale = alpha / (rslora_ ? std::sqrt(rank) : rank)};
}

nn::Adapter::Change ModuleRule::change_of(std::string_view module) const {
  if (const auto found = known_.find(module); found != known_.end()) return found->second;
  time_.start();
  const nn::Adapter::Change change = find_change(module);
  time_.stop(1);
  return known_.emplace(module, change).first->second;
}

}  // namespace hearth::hub
