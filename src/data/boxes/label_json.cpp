#include "data/boxes/label_json.h"

#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "data/boxes/boxes_format.h"

namespace hearth::data {

LabelJson::LabelJson(std::string_view text, std::string_view name) : json_(without_bom(text)), name_(name) {}

std::string LabelJson::where(std::string_view what, int64_t number, size_t byte) const {
  return fmt::format("{}: {} {} (byte {})", name_, what, number, byte);
}

void LabelJson::refuse(std::string_view expected) const {
  user_error("{}: expected {} at {} {} (byte {})", name_, expected, what_, number_, byte());
}

void LabelJson::refuse_value(std::string_view expected, std::string_view key) const {
  refuse(fmt::format("{} for {}", expected, key));
}

void LabelJson::refuse_text(const JsonFault& fault) const { user_error("{}: {}", name_, fault.sentence); }

bool LabelJson::at_number() {
  const char c = json_.peek();
  return c == '-' || (c >= '0' && c <= '9');
}

double LabelJson::read_real(std::string_view key) {
  if (!at_number()) refuse_value("a number", key);
  const auto value = parse_number(json_.read_number());
  if (!value) refuse_value("a number that can be held", key);
  return *value;
}

int64_t LabelJson::read_integer(std::string_view key) {
  if (!at_number()) refuse_value("an integer", key);
  const std::string_view digits = json_.read_number();
  int64_t value = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ptr ==
      digits.data() + digits.size())
    return value;
  const auto real = parse_number(digits);
  if (!real || *real != std::floor(*real) || std::fabs(*real) > 9e15) refuse_value("an integer", key);
  return static_cast<int64_t>(*real);
}

bool LabelJson::read_flag(std::string_view key) {
  if (at_number()) return read_integer(key) != 0;
  if (const char c = json_.peek(); c != 't' && c != 'f') refuse_value("0 or 1", key);
  return json_.read_word() == "true";
}

std::string LabelJson::read_text(std::string_view key) {
  if (json_.peek() != '"') refuse_value("text", key);
  return json_.read_string();
}

}  // namespace hearth::data
