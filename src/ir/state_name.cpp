#include "ir/state_name.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <utility>

namespace hearth::ir {
namespace {

constexpr std::string_view kWorker = "worker";

/// Name prefixes of the kinds of state. To add a kind, add a value to StateKind and a row here.
constexpr std::pair<StateKind, std::string_view> kSpellings[] = {
    {StateKind::momentum, "momentum"},
    {StateKind::adam_m, "adam_m"},
    {StateKind::adam_m_scale, "adam_m_scale"},
    {StateKind::adam_v, "adam_v"},
    {StateKind::adam_v_scale, "adam_v_scale"},
    {StateKind::rows, "rows"},
    {StateKind::columns, "columns"},
    {StateKind::average, "ema"},
    {StateKind::anchor, "anchor"},
    {StateKind::outer_momentum, "outer_momentum"},
    {StateKind::error, "error"},
    {StateKind::factor, "factor"},
    {StateKind::batch_statistic, "batch"},
    {StateKind::mask, "mask"},
    {StateKind::prune_score, "prune_score"},
    {StateKind::gradient_sum, "grad"},
};

/// If `text` is `word` followed by a positive number, as std::to_string formats it, returns the number;
/// otherwise nullopt.
std::optional<int> number_behind(std::string_view word, std::string_view text) {
  if (!text.starts_with(word)) return std::nullopt;
  text.remove_prefix(word.size());
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number > 0 && std::to_string(number) == text ? std::optional(number) : std::nullopt;
}

/// If `text` starts with "KIND/", removes it and stores the kind in `name`.
void take_kind(std::string_view& text, StateName& name) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return;
  const std::string_view word = text.substr(0, slash);
  for (const auto& [kind, spelling] : kSpellings) {
    const auto level = kind == StateKind::gradient_sum ? number_behind(spelling, word) : std::nullopt;
    if (word != spelling && !level) continue;
    name.kind = kind;
    name.level = level.value_or(0);
    text.remove_prefix(slash + 1);
    return;
  }
}

}  // namespace

std::string spell(const StateName& name) {
  std::string text = name.worker > 0 ? fmt::format("{}{}/", kWorker, name.worker) : "";
  for (const auto& [kind, spelling] : kSpellings) {
    if (kind != name.kind) continue;
    text += spelling;
    if (name.level > 0) text += std::to_string(name.level);
    text += '/';
  }
  return text + name.weight;
}

StateName parse_state_name(std::string_view text) {
  StateName name;
  const size_t slash = text.find('/');
  if (slash != std::string_view::npos) {
    if (const auto worker = number_behind(kWorker, text.substr(0, slash))) {
      name.worker = *worker;
      text.remove_prefix(slash + 1);
    }
  }
  take_kind(text, name);
  name.weight = text;
  return name;
}

}  // namespace hearth::ir
