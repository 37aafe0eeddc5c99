#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"

namespace hearth {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

template <typename Value>
using Members = std::vector<std::pair<std::string, Value>>;

Json object_of(Members<Json> members) {
  Json object = Json::object();
  auto& sorted = object.get_ref<Json::object_t&>();
  for (auto& [key, value] : members) sorted.insert_or_assign(std::move(key), std::move(value));
  return object;
}

/// Merges members with equal keys. The merged member has the position of the first and the value of the last.
void merge_equal_keys(Members<OrderedJson>& members) {
  std::vector<size_t> order(members.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto key = [&](size_t i) -> const std::string& { return members[i].first; };
  std::ranges::sort(order, [&](size_t a, size_t b) { return std::tie(key(a), a) < std::tie(key(b), b); });
  std::vector<bool> is_gone(members.size());
  bool is_any_gone = false;
  for (size_t i = 1, first = 0; i < order.size(); ++i) {
    if (key(order[i]) != key(order[first])) {
      first = i;
      continue;
    }
    members[order[first]].second = std::move(members[order[i]].second);
    is_gone[order[i]] = is_any_gone = true;
  }
  if (!is_any_gone) return;
  size_t num_kept = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    if (is_gone[i]) continue;
    if (num_kept != i) members[num_kept] = std::move(members[i]);
    ++num_kept;
  }
  members.resize(num_kept);
}

OrderedJson object_of(Members<OrderedJson> members) {
  merge_equal_keys(members);
  OrderedJson object = OrderedJson::object();
  // Members are appended directly: insertion would search for an equal key each time, in quadratic time.
  OrderedJson::object_t::Container& container = object.get_ref<OrderedJson::object_t&>();
  container.reserve(members.size());
  for (auto& [key, value] : members) container.emplace_back(std::move(key), std::move(value));
  return object;
}

/// Builds values from a JsonReader.
template <typename Value>
class Builder {
 public:
  Builder(std::string_view text, Unreadable unreadable) : reader_(text), unreadable_(unreadable) {}

  Value build() {
    Value value = read();
    reader_.expect_end();
    return value;
  }

 private:
  Value read() {
    const char first = reader_.peek();
    if (first == '{' || first == '[') {
      if (unreadable_ == Unreadable::discarded && reader_.depth() >= kMaxJsonDepth) {
        reader_.skip();
        return Value(Value::value_t::discarded);
      }
      return first == '{' ? read_object() : read_array();
    }
    if (first == '"') return reader_.read_string();
    if (first == '-' || (first >= '0' && first <= '9')) return number(std::string(reader_.read_number()));
    const std::string_view word = reader_.read_word();
    return word == "null" ? Value() : Value(word == "true");
  }

  Value read_object() {
    Members<Value> members;
    reader_.read_object([&](std::string key) { members.emplace_back(std::move(key), read()); });
    return object_of(std::move(members));
  }

  Value read_array() {
    Value array = Value::array();
    auto& elements = array.template get_ref<typename Value::array_t&>();
    reader_.read_array([&] { elements.push_back(read()); });
    return array;
  }

  Value number(const std::string& digits) {
    if (digits.find_first_of(".eE") != digits.npos) return real(digits);
    const char* end = digits.data() + digits.size();
    int64_t whole = 0;
    if (std::from_chars(digits.data(), end, whole).ec == std::errc())
      return digits[0] == '-' ? Value(whole) : Value(static_cast<uint64_t>(whole));
    uint64_t large = 0;
    if (std::from_chars(digits.data(), end, large).ec == std::errc()) return large;
    return unreadable_ == Unreadable::discarded ? Value(Value::value_t::discarded) : real(digits);
  }

  Value real(const std::string& digits) {
    const double value = std::strtod(digits.c_str(), nullptr);
    if (std::isfinite(value)) return value;
    if (unreadable_ == Unreadable::discarded) return Value(Value::value_t::discarded);
    throw JsonFault{"expected JSON, but a number in it is out of range"};
  }

  JsonReader reader_;
  Unreadable unreadable_;
};

}  // namespace

template <typename Value>
std::optional<Value> parse_json(std::string_view text, std::string* fault, Unreadable unreadable) {
  try {
    return Builder<Value>(text, unreadable).build();
  } catch (const JsonFault& found) {
    if (fault != nullptr) *fault = found.sentence;
    return std::nullopt;
  }
}

template <typename Value>
Value parse_json_object(std::string_view text, std::string_view where) {
  std::string fault;
  std::optional<Value> value = parse_json<Value>(text, &fault);
  if (!value) user_error("{}: {}", where, fault);
  if (!value->is_object()) user_error("{}: expected a JSON object, got {}", where, value->type_name());
  return *std::move(value);
}

bool is_readable(const OrderedJson& value) {
  if (value.is_discarded()) return false;
  return !value.is_structured() || std::all_of(value.begin(), value.end(), is_readable);
}

template std::optional<Json> parse_json(std::string_view, std::string*, Unreadable);
template std::optional<OrderedJson> parse_json(std::string_view, std::string*, Unreadable);
template Json parse_json_object(std::string_view, std::string_view);
template OrderedJson parse_json_object(std::string_view, std::string_view);

}  // namespace hearth
