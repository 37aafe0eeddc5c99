#include "ui/recipe_keys.h"

#include <algorithm>

#include "base/error.h"
#include "base/yaml.h"

namespace hearth::ui {
namespace {

constexpr size_t kMaxKeys = 2000;

using Keys = std::vector<std::pair<std::string, std::string>>;

void add_keys(const YAML::Node& node, const std::string& prefix, Keys& keys) {
  if (keys.size() >= kMaxKeys) return;
  if (node.IsMap()) {
    for (const auto& member : node)
      if (member.first.IsScalar())
        add_keys(member.second, prefix.empty() ? member.first.Scalar() : prefix + "." + member.first.Scalar(),
                 keys);
  } else if (node.IsSequence()) {
    std::string text;
    for (const YAML::Node& item : node)
      text += (text.empty() ? "" : ", ") + (item.IsScalar() ? item.Scalar() : std::string("..."));
    keys.emplace_back(prefix, "[" + text + "]");
  } else {
    keys.emplace_back(prefix, node.IsScalar() ? node.Scalar() : "");
  }
}

}  // namespace

Keys read_recipe_keys(const fs::path& file) {
  Keys keys;
  try {
    std::error_code error;
    if (!fs::is_regular_file(fs::symlink_status(file, error))) return {};
    add_keys(parse_yaml(read_file(file, kMaxYamlBytes), file.string(), {"recipe", "try another file"}), "",
             keys);
  } catch (const UserError&) {
    return {};
  } catch (const YAML::Exception&) {
    return {};
  }
  return keys;
}

std::string model_name_in(const fs::path& file) {
  const Keys keys = read_recipe_keys(file);
  const auto value = [&](std::string_view name) {
    const auto found = std::ranges::find(keys, name, &Keys::value_type::first);
    return found == keys.end() ? std::string() : found->second;
  };
  std::string path = value("model.path");
  while (path.ends_with('/')) path.pop_back();
  return path.empty() ? value("model.name") : fs::path(path).filename().string();
}

}  // namespace hearth::ui
