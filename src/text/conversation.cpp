#include "text/conversation.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "text/jsonl.h"

namespace hearth::text {
namespace {

using Aliases = std::vector<std::string>;
const std::map<std::string, Aliases>& known_fields() {
  static const std::map<std::string, Aliases> kFields = {
      {"text", {"text"}},
      {"prompt", {"prompt", "question", "query", "input"}},
      {"completion", {"completion", "answer", "response", "output"}},
      {"instruction", {"instruction"}},
      {"input", {"input"}},
      {"output", {"output", "response", "answer"}},
      {"system", {"system"}},
      {"history", {"history"}},
      {"messages", {"messages", "conversations", "conversation"}},
      {"role", {"role", "from"}},
      {"content", {"content", "value"}},
      {"tools", {"tools"}},
      {"chosen", {"chosen", "chosen_messages"}},
      {"rejected", {"rejected", "rejected_messages"}},
  };
  return kFields;
}

struct RoleName {
  const char* name;
  const char* role;
};
constexpr std::array<RoleName, 14> kRoles = {{{"system", "system"},
                                              {"developer", "system"},
                                              {"user", "user"},
                                              {"human", "user"},
                                              {"assistant", "assistant"},
                                              {"gpt", "assistant"},
                                              {"model", "assistant"},
                                              {"bot", "assistant"},
                                              {"chatgpt", "assistant"},
                                              {"function_call", "assistant"},
                                              {"tool", "tool"},
                                              {"function", "tool"},
                                              {"observation", "tool"},
                                              {"ipython", "tool"}}};

[[noreturn]] void refuse(const char* kind, const std::string& sentence) { throw RecordError(kind, sentence); }

std::string type_of(const Json& value) {
  return value.is_discarded() ? "a number too large or a value nested too deep" : value.type_name();
}

/// Lists the first field names of an object, for messages.
std::string names_of(const Json& object) {
  constexpr size_t kMaxBytes = 150;
  std::string names;
  for (const auto& [key, value] : object.items()) {
    if (names.size() + key.size() > kMaxBytes)
      return names + (names.empty() ? "one with a long name" : ", ...");
    names += (names.empty() ? "" : ", ") + key;
  }
  return names.empty() ? "none" : names;
}

/// True if a field is present and not empty.
bool is_given(const Json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end() || found->is_null()) return false;
  if (found->is_string()) return !found->get_ref<const std::string&>().empty();
  return !found->is_structured() || !found->empty();
}

/// Throws a RecordError if a record or message has media fields, such as images: language models read text
/// only.
void refuse_media(const Json& object, const std::string& where) {
  for (const char* field : {"image", "images", "video", "videos", "audio", "audios"}) {
    if (is_given(object, field))
      refuse("not text", fmt::format("expected text, got '{}' in {}", field, where));
  }
}

bool is_blank(const std::string& text) { return trimmed(text).empty(); }

/// Converts one record to the common form. Unless the options set the format, detect() derives it from the
/// fields, in this order: preference (chosen, rejected), conversation (messages; ShareGPT if the first
/// message has "from", otherwise OpenAI), alpaca (instruction), prompt and completion, text. All formats
/// except text become messages with OpenAI's roles.
class Reader {
 public:
  Reader(const Json& object, const FormatOptions& options) : object_(object), options_(options) {}

  Record read() {
    record_.format = options_.format == RecordFormat::detect ? detect() : options_.format;
    switch (record_.format) {
      case RecordFormat::text:
        record_.text = string_field(object_, "text");
        break;
      case RecordFormat::prompt_completion:
        read_prompt_and_completion();
        break;
      case RecordFormat::alpaca:
        read_alpaca();
        break;
      case RecordFormat::preference:
        read_preference();
        break;
      default:
        read_conversation();
    }
    if (record_.format != RecordFormat::text) {
      refuse_media(object_, "the record");
      refuse_bad_answer();
    }
    read_tools();
    return std::move(record_);
  }

 private:
  /// Returns the value of a field under the first of the field's names that the object has; null if it has
  /// none.
  const Json* find(const Json& object, const std::string& field) const {
    const auto set = std::find_if(options_.fields.begin(), options_.fields.end(),
                                  [&](const auto& renamed) { return renamed.first == field; });
    const Aliases aliases = set != options_.fields.end() ? Aliases{set->second} : known_fields().at(field);
    for (const std::string& alias : aliases) {
      const auto found = object.find(alias);
      if (found != object.end() && !found->is_null()) return &*found;
    }
    return nullptr;
  }

  /// Throws a RecordError if the answer is labeled as bad ("label": false, as in KTO's data).
  void refuse_bad_answer() const {
    for (const char* field : {"label", "kto_tag"}) {
      const auto found = object_.find(field);
      if (found == object_.end() || !found->is_boolean() || found->get<bool>()) continue;
      refuse("bad answer",
             fmt::format("the answer is labeled as bad by '{}': false; remove such records", field));
    }
  }

  bool has(const char* field) const { return find(object_, field) != nullptr; }

  std::string string_field(const Json& object, const std::string& field) const {
    const Json* found = find(object, field);
    if (found == nullptr)
      refuse("missing field",
             fmt::format("expected a field '{}', got the fields {}", field, names_of(object)));
    if (!found->is_string())
      refuse("wrong type", fmt::format("expected a string as '{}', got {}", field, type_of(*found)));
    return found->get<std::string>();
  }
  std::string optional_string(const std::string& field) const {
    return find(object_, field) != nullptr ? string_field(object_, field) : "";
  }

  RecordFormat detect() const {
    if (has("chosen") && has("rejected")) return RecordFormat::preference;
    if (const Json* messages = find(object_, "messages")) {
      const bool from = messages->is_array() && !messages->empty() && messages->front().is_object() &&
                        messages->front().contains("from");
      return from ? RecordFormat::sharegpt : RecordFormat::openai;
    }
    if (has("instruction")) return RecordFormat::alpaca;
    if (has("prompt") && has("completion")) return RecordFormat::prompt_completion;
    if (has("text")) return RecordFormat::text;
    refuse("unknown format",
           fmt::format("the fields ({}) match no known format (text, prompt and completion, instruction and "
                       "output, messages, conversations, chosen and rejected); name yours in data.fields",
                       names_of(object_)));
  }

  void add_message(const char* role, std::string content) {
    record_.messages.push_back(Json{{"role", role}, {"content", std::move(content)}});
  }

  void add_system() {
    if (const std::string system = optional_string("system"); !is_blank(system))
      add_message("system", system);
  }

  void read_prompt_and_completion() {
    const Json* prompt = find(object_, "prompt");
    const Json* completion = find(object_, "completion");
    if (prompt != nullptr && completion != nullptr && (prompt->is_array() || completion->is_array())) {
      record_.messages = turns_of(*prompt, "user");
      append(record_.messages, turns_of(*completion, "assistant"));
    } else {
      add_system();
      add_message("user", string_field(object_, "prompt"));
      add_message("assistant", string_field(object_, "completion"));
    }
    check_turns(record_.messages, 0);
  }

  void read_alpaca() {
    add_system();
    if (const Json* history = find(object_, "history")) {
      for (const Json& pair : *history) read_history(pair);
    }
    const std::string input = optional_string("input");
    std::string instruction = string_field(object_, "instruction");
    if (!is_blank(input)) instruction += "\n" + input;
    add_message("user", std::move(instruction));
    add_message("assistant", string_field(object_, "output"));
    check_turns(record_.messages, 0);
  }

  void read_history(const Json& pair) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
      refuse("wrong type", "expected pairs of strings as 'history'");
    }
    add_message("user", pair[0].get<std::string>());
    add_message("assistant", pair[1].get<std::string>());
  }

  void read_conversation() {
    const Json* messages = find(object_, "messages");
    if (messages == nullptr)
      refuse("missing field",
             fmt::format("expected a list of messages, got the fields {}", names_of(object_)));
    if (!messages->is_array())
      refuse("wrong type", fmt::format("expected a list of messages, got {}", type_of(*messages)));
    add_system();
    append(record_.messages, turns_of(*messages, "user"));
    check_turns(record_.messages, 0);
  }

  static void append(Json& messages, const Json& more) {
    messages.insert(messages.end(), more.begin(), more.end());
  }

  /// Converts a list of messages, one message, or a string (a message with role `role`) to a list of
  /// messages.
  Json turns_of(const Json& value, const char* role) const {
    Json turns = Json::array();
    if (value.is_string()) {
      turns.push_back(Json{{"role", role}, {"content", value}});
    } else if (value.is_object()) {
      turns.push_back(read_message(value, 1));
    } else if (value.is_array()) {
      for (const Json& message : value) turns.push_back(read_message(message, turns.size() + 1));
    } else {
      refuse("wrong type", fmt::format("expected a string or messages, got {}", type_of(value)));
    }
    return turns;
  }

  Json read_message(const Json& from, size_t turn) const {
    if (!from.is_object())
      refuse("wrong type", fmt::format("expected an object as turn {}, got {}", turn, type_of(from)));
    const std::string name = string_field(from, "role");
    const auto* role =
        std::find_if(kRoles.begin(), kRoles.end(), [&](const RoleName& known) { return name == known.name; });
    if (role == kRoles.end()) {
      refuse("unknown role",
             fmt::format("expected a known role in turn {} (system, user, assistant, tool), got '{}'", turn,
                         name));
    }
    Json message{{"role", role->role}, {"content", ""}};
    refuse_media(from, fmt::format("turn {}", turn));
    copy_others(from, message);
    if (is_given(from, "function_call")) add_tool_calls(from["function_call"], message, turn);
    set_content(from, message, turn);
    if (name == "function_call") {
      const Json call = std::exchange(message["content"], "");
      add_tool_calls(call, message, turn);
    }
    fill_reasoning(message);
    return message;
  }

  /// Copies a message's reasoning to each field name that templates read, as transformers 5 does.
  static void fill_reasoning(Json& message) {
    for (const char* field : {"reasoning_content", "thinking", "reasoning"}) {
      if (!message.contains(field)) continue;
      for (const char* name : {"reasoning_content", "thinking"}) message.emplace(name, Json(message[field]));
    }
  }

  /// True for message fields that Hearth uses: if one cannot be parsed, the record is rejected; other fields
  /// are dropped.
  static bool is_read(std::string_view field) {
    constexpr std::array kKnownKeys = {"tool_calls", "tool_call_id", "name",   "reasoning_content",
                                       "thinking",   "reasoning",    "weight", "loss_weight"};
    return std::ranges::find(kKnownKeys, field) != kKnownKeys.end();
  }

  /// Copies the fields of a message other than role and content, which templates or the loss mask may use,
  /// such as weight.
  void copy_others(const Json& from, Json& message) const {
    const Json* content = find(from, "content");
    const Json* role = find(from, "role");
    // Appends to the container directly: the keys are unique, and searching for each would take quadratic
    // time.
    Json::object_t::Container& fields = message.get_ref<Json::object_t&>();
    for (const auto& [key, value] : from.items()) {
      const bool known = &value == content || &value == role || key == "role" || key == "content";
      if (known || key == "function_call" || value.is_null()) continue;
      if (is_readable(value)) {
        fields.emplace_back(key, value);
      } else if (is_read(key)) {
        refuse("wrong type",
               fmt::format("expected '{}' without numbers beyond 64 bits and nested at most 64 deep", key));
      }
    }
    const auto calls = message.find("tool_calls");
    const auto is_call = [](const Json& call) {
      return call.is_object() && (!call.contains("function") || call["function"].is_object());
    };
    if (calls != message.end() && !(calls->is_array() && std::all_of(calls->begin(), calls->end(), is_call)))
      refuse("wrong type", "expected a list of objects as 'tool_calls'");
  }

  void set_content(const Json& from, Json& message, size_t turn) const {
    const Json* content = find(from, "content");
    if (content == nullptr) {
      if (!has_tool_calls(message))
        refuse("missing field",
               fmt::format("expected a content in turn {}, got the fields {}", turn, names_of(from)));
    } else if (content->is_string()) {
      message["content"] = *content;
    } else if (content->is_array()) {
      for (const Json& part : *content) add_part(part, message, turn);
    } else {
      refuse("wrong type",
             fmt::format("expected a string as content of turn {}, got {}", turn, type_of(*content)));
    }
  }

  /// Returns the string in a field; nothing if it is missing or has another type.
  static std::optional<std::string> string_in(const Json& object, const char* field) {
    const auto found = object.is_object() ? object.find(field) : object.end();
    if (found == object.end() || !found->is_string()) return std::nullopt;
    return found->get<std::string>();
  }

  static void add_part(const Json& part, Json& message, size_t turn) {
    const std::string type = string_in(part, "type").value_or("");
    const auto value = string_in(part, "text") ? string_in(part, "text") : string_in(part, "value");
    if (!value || !(type == "text" || type == "reasoning" || type == "tool_call")) {
      refuse("not text", fmt::format("expected text in turn {}, got a part of type '{}'", turn, type));
    }
    if (type == "tool_call") return add_tool_calls(*value, message, turn);
    const char* field = type == "text" ? "content" : "reasoning_content";
    message[field] = string_in(message, field).value_or("") + *value;
  }

  /// Adds function calls in the form that templates expect. `from`: {"name": ..., "arguments": ...}, a list
  /// of such objects, or either as JSON text.
  static void add_tool_calls(const Json& from, Json& message, size_t turn) {
    const auto is_call = [](const Json& call) { return call.is_object() && string_in(call, "name"); };
    Json calls = from.is_string() ? parse_json(from.get_ref<const std::string&>()) : from;
    if (!calls.is_array()) calls = Json::array({std::move(calls)});
    if (calls.empty() || !is_readable(calls) || !std::all_of(calls.begin(), calls.end(), is_call)) {
      refuse(
          "no function call",
          fmt::format("turn {} has a malformed function call; it must be an object with name and arguments",
                      turn));
    }
    if (!message.contains("tool_calls")) message["tool_calls"] = Json::array();
    for (Json& call : calls)
      message["tool_calls"].push_back(Json{{"type", "function"}, {"function", std::move(call)}});
  }

  /// Throws a RecordError if an assistant turn is empty, or if none from index `first` on counts in the loss.
  static void check_turns(const Json& messages, size_t first) {
    bool trained = false;
    for (size_t i = 0; i < messages.size(); ++i) {
      if (messages[i]["role"] != "assistant") continue;
      if (is_blank(messages[i]["content"].get<std::string>()) && !has_tool_calls(messages[i])) {
        refuse("empty turn", fmt::format("turn {} (assistant) is empty", i + 1));
      }
      trained = trained || (i >= first && is_trained(messages[i]));
    }
    if (!trained) refuse("nothing to train", "there is no turn of the assistant to train on");
  }

  void read_preference() {
    add_system();
    for (const char* field : {"prompt", "messages"}) {
      const Json* shared = find(object_, field);
      if (shared == nullptr) continue;
      append(record_.messages, turns_of(*shared, "user"));
      break;
    }
    const Json* chosen = find(object_, "chosen");
    const Json* rejected = find(object_, "rejected");
    if (chosen == nullptr || rejected == nullptr) {
      refuse("missing field",
             fmt::format("expected the fields chosen and rejected, got {}", names_of(object_)));
    }
    const Json with_chosen = continued(record_.messages, turns_of(*chosen, "assistant"));
    const Json with_rejected = continued(record_.messages, turns_of(*rejected, "assistant"));
    split(with_chosen, with_rejected);
    check_turns(with_chosen, record_.messages.size());
    check_turns(with_rejected, record_.messages.size());
  }

  /// Returns the messages of prompt and answer as one list. If the answer repeats the prompt, returns the
  /// answer.
  static Json continued(const Json& prompt, const Json& answer) {
    const bool repeats =
        answer.size() > prompt.size() && std::equal(prompt.begin(), prompt.end(), answer.begin());
    if (repeats) return answer;
    Json all = prompt;
    append(all, answer);
    return all;
  }

  /// Splits two conversations, with the chosen and the rejected answer, into the common prompt and the two
  /// answers. Each answer keeps at least its last turn, even if both conversations are equal.
  void split(const Json& a, const Json& b) {
    size_t shared = 0;
    while (shared + 1 < a.size() && shared + 1 < b.size() && a[shared] == b[shared]) ++shared;
    record_.messages = Json::array();
    const auto at = static_cast<std::ptrdiff_t>(shared);
    record_.messages.insert(record_.messages.end(), a.begin(), a.begin() + at);
    record_.chosen.insert(record_.chosen.end(), a.begin() + at, a.end());
    record_.rejected.insert(record_.rejected.end(), b.begin() + at, b.end());
  }

  void read_tools() {
    const Json* tools = find(object_, "tools");
    if (tools == nullptr) return;
    if (!tools->is_string()) {
      record_.tools = *tools;
    } else if (const std::string text = tools->get<std::string>(); !is_blank(text)) {
      record_.tools = parse_json(text);
    }
    if (!is_readable(record_.tools))
      refuse("wrong type", "expected 'tools' without numbers beyond 64 bits and nested at most 64 deep");
    if (record_.tools.is_array() && record_.tools.empty()) record_.tools = nullptr;
  }

  const Json& object_;
  const FormatOptions& options_;
  Record record_;
};

}  // namespace

void check_format_options(const FormatOptions& options) {
  std::vector<std::string> names;
  for (const auto& [name, aliases] : known_fields()) names.push_back(name);
  for (const auto& [field, name] : options.fields) {
    if (!known_fields().contains(field)) {
      user_error("data.fields: expected one of {}, got '{}'{}", fmt::join(names, ", "), field,
                 did_you_mean(field, names));
    }
  }
}

Record read_record(const Json& object, const FormatOptions& options) {
  return Reader(object, options).read();
}

bool has_tool_calls(const Json& message) {
  const auto found = message.find("tool_calls");
  return found != message.end() && found->is_array() && !found->empty();
}

bool is_trained(const Json& message) {
  if (message["role"] != "assistant") return false;
  for (const char* field : {"weight", "loss_weight"}) {
    const auto found = message.find(field);
    if (found != message.end() && found->is_number() && found->get<double>() == 0) return false;
  }
  return true;
}

}  // namespace hearth::text
