#include "text/json_node.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace hearth::text {
namespace {

constexpr int64_t kMaxJsonBytes = int64_t{256} << 20;

std::string shown(const nlohmann::json& json) {
  constexpr size_t kMaxShown = 40;
  if (json.is_structured()) return json.type_name();
  const std::string text = json.dump(-1, ' ', true);
  return text.size() <= kMaxShown ? text : text.substr(0, kMaxShown) + "...";
}

}  // namespace

nlohmann::json parse_json(std::string_view text, std::string_view file) {
  std::string fault;
  std::optional<nlohmann::json> value = hearth::parse_json<nlohmann::json>(text, &fault);
  if (!value) user_error("{}: {}", file, fault);
  return *std::move(value);
}

nlohmann::json read_json(const fs::path& path) {
  return parse_json(read_file(path, kMaxJsonBytes), path.string());
}

JsonNode::JsonNode(const nlohmann::json& json, std::string_view file, std::string field)
    : json_(&json), file_(file), field_(std::move(field)) {}

std::string JsonNode::where() const {
  return field_.empty() ? file_ : fmt::format("{}: field '{}'", file_, field_);
}

void JsonNode::refuse(std::string_view expected) const {
  user_error("{}: expected {}, got {}", where(), expected, shown(*json_));
}

std::optional<JsonNode> JsonNode::find(const std::string& key) const {
  if (!json_->is_object()) refuse("an object");
  const auto found = json_->find(key);
  if (found == json_->end() || found->is_null()) return std::nullopt;
  return JsonNode(*found, file_, field_.empty() ? key : field_ + "." + key);
}

JsonNode JsonNode::at(const std::string& key) const {
  std::optional<JsonNode> found = find(key);
  if (!found) user_error("{}: expected a member '{}'", where(), key);
  return *std::move(found);
}

std::vector<JsonNode> JsonNode::elements() const {
  if (!json_->is_array()) refuse("an array");
  std::vector<JsonNode> all;
  for (const nlohmann::json& element : *json_)
    all.emplace_back(element, file_, fmt::format("{}[{}]", field_, all.size()));
  return all;
}

std::vector<std::pair<std::string, JsonNode>> JsonNode::members() const {
  if (!json_->is_object()) refuse("an object");
  std::vector<std::pair<std::string, JsonNode>> all;
  for (const auto& [key, value] : json_->items()) {
    all.emplace_back(key, JsonNode(value, file_, field_.empty() ? key : field_ + "." + key));
  }
  return all;
}

std::string JsonNode::string() const {
  if (!json_->is_string()) refuse("a string");
  return json_->get<std::string>();
}

bool JsonNode::boolean() const {
  if (!json_->is_boolean()) refuse("true or false");
  return json_->get<bool>();
}

int64_t JsonNode::integer(int64_t low, int64_t high) const {
  const bool fits =
      json_->is_number_integer() &&
      !(json_->is_number_unsigned() && json_->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
  if (!fits || json_->get<int64_t>() < low || json_->get<int64_t>() > high) {
    refuse(fmt::format("a whole number from {} to {}", low, high));
  }
  return json_->get<int64_t>();
}

std::string JsonNode::string_or(const std::string& key, const std::string& default_value) const {
  const std::optional<JsonNode> found = find(key);
  return found ? found->string() : default_value;
}

bool JsonNode::boolean_or(const std::string& key, bool default_value) const {
  const std::optional<JsonNode> found = find(key);
  return found ? found->boolean() : default_value;
}

}  // namespace hearth::text
