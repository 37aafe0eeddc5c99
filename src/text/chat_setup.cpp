#include "text/chat.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <ctime>

#include "base/json.h"

namespace hearth::text {
namespace {

constexpr int64_t kMaxTemplateBytes = int64_t{64} << 20;

constexpr std::string_view kChatml =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] }}{% for "
    "call in "
    "message['tool_calls'] %}{{ ('\\n' if message['content'] or not loop.first else '') + '<tool_call>\\n' + "
    "(call['function'] if call['function'] is defined else call)|tojson + '\\n</tool_call>' }}{% endfor %}{{ "
    "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

constexpr std::string_view kAlpaca =
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}{{ message['content'] + "
    "'\\n\\n' "
    "}}{% elif message['role'] == 'user' %}{% if loop.first %}{{ 'Below is an instruction that describes a "
    "task. Write a "
    "response that appropriately completes the request.\\n\\n' }}{% endif %}{{ '### Instruction:\\n' + "
    "message['content'] + '\\n\\n' }}{% else %}{{ '### Response:\\n' + message['content'] + eos_token + "
    "'\\n\\n' }}{% "
    "endif %}{% endfor %}{% if add_generation_prompt %}{{ '### Response:\\n' }}{% endif %}";

constexpr std::string_view kPlain =
    "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% if message['role'] == "
    "'assistant' %}{{ "
    "eos_token }}{% endif %}{% endfor %}";

constexpr std::pair<std::string_view, std::string_view> kTemplates[] = {
    {"chatml", kChatml}, {"alpaca", kAlpaca}, {"plain", kPlain}};

/// Returns the text of a token: a string, or the "content" of an object; empty for null.
std::string token_text(const Json& config, const char* name) {
  const auto found = config.find(name);
  if (found == config.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_object() || !found->contains("content") || !(*found)["content"].is_string()) return "";
  return (*found)["content"].get<std::string>();
}

/// Returns the chat template: a string, or the entry called "default" in a list of {name, template}.
std::optional<std::string> template_in(const Json& config) {
  const auto found = config.find("chat_template");
  if (found == config.end()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return std::nullopt;
  for (const Json& entry : *found) {
    const bool named = entry.is_object() && entry.contains("name") && entry.contains("template");
    if (named && entry["name"] == "default" && entry["template"].is_string())
      return entry["template"].get<std::string>();
  }
  return std::nullopt;
}

}  // namespace

ChatSetup read_chat_setup(const fs::path& folder) {
  ChatSetup setup;
  const fs::path config_path = folder / "tokenizer_config.json";
  if (fs::exists(config_path)) {
    const auto config = hearth::parse_json<Json>(read_file(config_path, kMaxTemplateBytes));
    if (!config || !config->is_object())
      user_error("{}: this is not a JSON object; download it again", config_path.string());
    setup.chat_template = template_in(*config);
    setup.template_name = config_path.string() + " (chat_template)";
    setup.bos_token = token_text(*config, "bos_token");
    setup.eos_token = token_text(*config, "eos_token");
  }
  if (const fs::path path = folder / "chat_template.jinja"; fs::exists(path)) {
    setup.chat_template = read_file(path, kMaxTemplateBytes);
    setup.template_name = path.string();
  }
  return setup;
}

ChatSetup read_chat_setup(const fs::path& folder, const Tokenizer& tokenizer) {
  ChatSetup setup = read_chat_setup(folder);
  if (setup.bos_token.empty() && tokenizer.bos()) setup.bos_token = tokenizer.token(*tokenizer.bos());
  if (setup.eos_token.empty() && tokenizer.eos()) setup.eos_token = tokenizer.token(*tokenizer.eos());
  return setup;
}

std::optional<int64_t> second_of_day(const std::string& day) {
  int year = 0;
  unsigned month = 0, number = 0;
  char after = 0;
  if (day.size() != 10 || std::sscanf(day.c_str(), "%4d-%2u-%2u%c", &year, &month, &number, &after) != 3)
    return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month),
                                         std::chrono::day(number)};
  if (!date.ok() || year < 1) return std::nullopt;
  return std::chrono::sys_seconds(std::chrono::sys_days(date)).time_since_epoch().count();
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

void add_variable(ChatOptions& options, const std::string& text) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const auto is_plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  const bool named = equals != text.npos && !name.empty() &&
                     std::all_of(name.begin(), name.end(), is_plain) &&
                     std::isdigit(static_cast<unsigned char>(name[0])) == 0;
  if (!named)
    user_error("expected a variable of the chat template like enable_thinking=false, got '{}'", text);
  for (const char* taken :
       {"messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"}) {
    if (name == taken)
      user_error("data.variables sets '{}', which the data or the tokenizer sets; remove it", name);
  }
  const std::string value = text.substr(equals + 1);
  const std::optional<Json> json = hearth::parse_json<Json>(value, nullptr, Unreadable::discarded);
  options.variables[name] = json && is_readable(*json) ? *json : Json(value);
}

std::optional<std::string> built_in_template(std::string_view name) {
  for (const auto& [known, source] : kTemplates) {
    if (name == known) return std::string(source);
  }
  return std::nullopt;
}

std::vector<std::string> built_in_templates() {
  std::vector<std::string> names;
  for (const auto& [name, source] : kTemplates) names.emplace_back(name);
  return names;
}

}  // namespace hearth::text
