#include "ir/attrs.h"

#include "base/error.h"

namespace hearth::ir {
namespace {

template <typename T>
const T& as(const Attr* attr, std::string_view name) {
  if (attr == nullptr) internal_error("attribute '{}' is missing", name);
  const T* value = std::get_if<T>(attr);
  if (value == nullptr) internal_error("attribute '{}' has another type than requested", name);
  return *value;
}

}  // namespace

const Attr* Attrs::find(std::string_view name) const {
  for (const auto& [key, value] : entries_) {
    if (key == name) return &value;
  }
  return nullptr;
}

int64_t Attrs::integer(std::string_view name) const { return as<int64_t>(find(name), name); }
double Attrs::real(std::string_view name) const { return as<double>(find(name), name); }
const std::string& Attrs::text(std::string_view name) const { return as<std::string>(find(name), name); }
const std::vector<int64_t>& Attrs::list(std::string_view name) const {
  return as<std::vector<int64_t>>(find(name), name);
}
const std::vector<double>& Attrs::reals(std::string_view name) const {
  return as<std::vector<double>>(find(name), name);
}

int64_t Attrs::integer_or(std::string_view name, int64_t fallback) const {
  return contains(name) ? integer(name) : fallback;
}
double Attrs::real_or(std::string_view name, double fallback) const {
  return contains(name) ? real(name) : fallback;
}
std::string Attrs::text_or(std::string_view name, std::string_view fallback) const {
  return contains(name) ? text(name) : std::string(fallback);
}

void Attrs::set(std::string_view name, Attr value) {
  for (auto& [key, old] : entries_) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  entries_.emplace_back(name, std::move(value));
}

}  // namespace hearth::ir
