#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja/unicode.h"
#include "text/jinja/value.h"

namespace hearth::text::jinja {
namespace {

std::string integer_text(const Json& json) {
  return json.is_number_unsigned() ? std::to_string(json.get<uint64_t>())
                                   : std::to_string(json.get<int64_t>());
}

/// Formats a float like Python: the shortest digits that parse to the same value.
std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

/// Appends character `c` as in Python's repr() of a string with quotes `quote`. `bytes`: UTF-8 encoding of
/// `c`.
void append_repr_of_character(std::string& text, char32_t c, std::string_view bytes, char quote) {
  if (c == U'\\' || c == static_cast<char32_t>(quote)) {
    text += {'\\', static_cast<char>(c)};
  } else if (c == U'\n' || c == U'\r' || c == U'\t') {
    text += c == U'\n' ? "\\n" : c == U'\r' ? "\\r" : "\\t";
  } else if (c < 32 || c == 127 || (c != U' ' && is_python_space(c))) {
    text += c < 256 ? fmt::format("\\x{:02x}", static_cast<uint32_t>(c))
                    : fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
  } else {
    text += bytes;
  }
}

void append_quoted_repr(std::string& text, std::string_view string) {
  const bool double_quotes = string.find('\'') != string.npos && string.find('"') == string.npos;
  const char quote = double_quotes ? '"' : '\'';
  text += quote;
  for (size_t i = 0; i < string.size();) {
    const Character next = first_character(string.substr(i));
    append_repr_of_character(text, next.value, string.substr(i, next.bytes), quote);
    i += next.bytes;
  }
  text += quote;
}

void append_utf16_escape(std::string& text, char32_t value) {
  const auto code = static_cast<uint32_t>(value);
  if (code < 0x10000) {
    text += fmt::format("\\u{:04x}", code);
  } else {
    text += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10),
                        0xDC00 + ((code - 0x10000) & 0x3FF));
  }
}

const char* short_escape(char c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    default:
      return nullptr;
  }
}

void append_json_string(std::string& text, std::string_view string, bool ensure_ascii) {
  text += '"';
  for (size_t i = 0; i < string.size();) {
    const Character next = first_character(string.substr(i));
    if (const char* escape = short_escape(string[i]); escape != nullptr && next.bytes == 1) {
      text += escape;
    } else if (next.value < 32 || (ensure_ascii && next.value > 126)) {
      append_utf16_escape(text, next.value);
    } else {
      text += string.substr(i, next.bytes);
    }
    i += next.bytes;
  }
  text += '"';
}

class Dumper {
 public:
  explicit Dumper(const DumpOptions& options) : options_(options) {}

  void append(const Json& json, int level) {
    if (json.is_structured()) {
      append_container(json, level);
    } else if (json.is_string()) {
      append_json_string(text_, json.get_ref<const std::string&>(), options_.ensure_ascii);
    } else {
      append_scalar(json);
    }
  }
  std::string take() { return std::move(text_); }

 private:
  void append_scalar(const Json& json) {
    if (json.is_null()) {
      text_ += "null";
    } else if (json.is_boolean()) {
      text_ += json.get<bool>() ? "true" : "false";
    } else if (json.is_number_integer()) {
      text_ += integer_text(json);
    } else {
      const double value = json.get<double>();
      text_ += std::isnan(value)   ? "NaN"
               : std::isinf(value) ? (value > 0 ? "Infinity" : "-Infinity")
                                   : float_text(value);
    }
  }

  /// Returns the text of a key. Integer keys become strings, as in Python's json.dumps.
  static std::string key_text(const std::string& key) {
    const Json found = key_of_mapping(key);
    return found.is_string() ? key : integer_text(found);
  }

  void append_container(const Json& json, int level) {
    const bool object = json.is_object();
    text_ += object ? '{' : '[';
    if (!json.empty()) {
      bool first = true;
      for (const auto& [key, value] : in_order(json)) {
        if (!first) text_ += options_.item_separator;
        first = false;
        break_line(level + 1);
        if (object) {
          append_json_string(text_, key_text(key), options_.ensure_ascii);
          text_ += options_.key_separator;
        }
        append(*value, level + 1);
      }
      break_line(level);
    }
    text_ += object ? '}' : ']';
  }

  std::vector<std::pair<std::string, const Json*>> in_order(const Json& json) const {
    std::vector<std::pair<std::string, const Json*>> entries;
    for (const auto& [key, value] : json.items())
      entries.emplace_back(json.is_object() ? key : std::string(), &value);
    if (options_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    return entries;
  }

  void break_line(int level) {
    if (options_.indent < 0) return;
    text_ += '\n';
    text_.append(static_cast<size_t>(options_.indent) * level, ' ');
  }

  const DumpOptions& options_;
  std::string text_;
};

}  // namespace

void append_repr(std::string& text, const Json& json) {
  if (json.is_string()) return append_quoted_repr(text, json.get_ref<const std::string&>());
  if (!json.is_structured()) return append_str(text, json);
  text += json.is_object() ? '{' : '[';
  bool first = true;
  for (const auto& [key, value] : json.items()) {
    if (!first) text += ", ";
    first = false;
    if (json.is_object()) {
      append_repr(text, key_of_mapping(key));
      text += ": ";
    }
    append_repr(text, value);
  }
  text += json.is_object() ? '}' : ']';
}

void append_str(std::string& text, const Json& json) {
  switch (json.type()) {
    case Json::value_t::string:
      text += json.get_ref<const std::string&>();
      return;
    case Json::value_t::null:
      text += "None";
      return;
    case Json::value_t::boolean:
      text += json.get<bool>() ? "True" : "False";
      return;
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      text += integer_text(json);
      return;
    case Json::value_t::number_float:
      text += float_text(json.get<double>());
      return;
    default:
      append_repr(text, json);
  }
}

void append_list(std::string& text, const Json& list, PrintType print_type) {
  if (print_type == PrintType::plain) return append_repr(text, list);
  const bool is_tuple = print_type == PrintType::tuple;
  text += is_tuple ? "(" : print_type == PrintType::items ? "dict_items([" : "[";
  for (size_t i = 0; i < list.size(); ++i) {
    if (i > 0) text += ", ";
    if (is_tuple) {
      append_repr(text, list[i]);
    } else {
      append_list(text, list[i], PrintType::tuple);
    }
  }
  if (is_tuple && list.size() == 1) text += ",";
  text += is_tuple ? ")" : print_type == PrintType::items ? "])" : "]";
}

std::string dump(const Json& json, const DumpOptions& options) {
  Dumper dumper(options);
  dumper.append(json, 0);
  return dumper.take();
}

}  // namespace hearth::text::jinja
