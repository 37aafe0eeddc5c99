#include "run/state.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>

#include "base/error.h"
#include "base/json.h"
#include "recipe/recipe_file.h"

namespace hearth::run {
namespace {

/// Number of losses in a plain average; later losses are averaged exponentially with weight 1 / kWindow.
constexpr int64_t kWindow = 100;
/// Min number of losses for a z-score.
constexpr int64_t kMinLosses = 20;

/// Reads non-negative integers from a JSON object.
class Counts {
 public:
  Counts(const nlohmann::json& text, std::string_view where) : text_(text), where_(where) {}

  int64_t at(const char* key) const { return count(text_.at(key), key); }
  int64_t value(const char* key, int64_t default_value) const {
    return text_.contains(key) ? at(key) : default_value;
  }
  int64_t count(const nlohmann::json& value, const char* key) const {
    const bool is_count = value.is_number_unsigned() && value.get<uint64_t>() <= INT64_MAX;
    if (!is_count) user_error("{}: expected a whole number from 0 to 2^63 for '{}'", where_, key);
    return value.get<int64_t>();
  }

 private:
  const nlohmann::json& text_;
  std::string_view where_;
};

/// Throws a UserError unless `changes`, the sample indices at which the order of the epoch was changed, are
/// sorted and not after the current sample.
void check_changes(const std::vector<int64_t>& changes, const data::LoaderPosition& position,
                   std::string_view where) {
  const bool ascend = std::ranges::is_sorted(changes);
  if (!ascend || (!changes.empty() && changes.back() > position.sample) ||
      std::ssize(changes) > position.num_changes) {
    user_error("{}: invalid changes of the sample order before sample {}", where, position.sample);
  }
}

std::vector<InputState> inputs_in(const nlohmann::json& text, std::string_view where) {
  std::vector<InputState> inputs;
  const nlohmann::json entries = text.value("inputs", nlohmann::json::object());
  for (const auto& [key, entry] : entries.items()) {
    const Counts counts(entry, where);
    inputs.push_back({.key = key,
                      .num_files = counts.at("files"),
                      .num_bytes = counts.at("bytes"),
                      .digest = entry.at("xxh3").get<uint64_t>()});
  }
  return inputs;
}

RunState state_of(const nlohmann::json& text, std::string_view where) {
  const Counts counts(text, where);
  RunState state{.step = counts.at("step"),
                 .best_score = text.at("best_score").get<double>(),
                 .evaluations_without_gain = counts.at("evaluations_without_gain"),
                 .position = {.seed = text.at("seed").get<uint64_t>(),
                              .epoch = counts.at("epoch"),
                              .sample = counts.at("sample"),
                              .total = counts.at("total"),
                              .num_changes = counts.value("num_order_changes", 0)},
                 .num_workers = static_cast<int>(counts.value("workers", 1)),
                 .optimizer = text.value("optimizer", std::string()),
                 .num_rows = counts.value("num_rows", 0),
                 .losses = {.mean = text.value("loss_mean", 0.0),
                            .variance = text.value("loss_variance", 0.0),
                            .count = counts.value("num_losses", 0)},
                 .num_bad = counts.value("num_bad", 0),
                 .num_bad_in_row = counts.value("num_bad_in_row", 0),
                 .inputs = inputs_in(text, where)};
  std::vector<int64_t> changes;
  for (const auto& change : text.value("order_changed_at", std::vector<nlohmann::json>()))
    changes.push_back(counts.count(change, "order_changed_at"));
  if (changes.size() > state.position.changed_at.size())
    user_error("{}: expected at most {} changes of the sample order, got {}", where,
               state.position.changed_at.size(), changes.size());
  check_changes(changes, state.position, where);
  std::ranges::copy(changes, state.position.changed_at.begin());
  state.position.num_changes_here = std::ssize(changes);
  return state;
}

}  // namespace

void LossStatistics::add(double loss) {
  const double weight = 1.0 / static_cast<double>(std::min(++count, kWindow)), difference = loss - mean;
  mean += weight * difference;
  variance = (1 - weight) * (variance + weight * difference * difference);
}

double LossStatistics::z_score(double loss) const {
  if (count < kMinLosses || loss <= mean) return 0;
  return (loss - mean) / std::sqrt(variance);
}

StateText write_run_state(const RunState& state) {
  const data::LoaderPosition& position = state.position;
  StateText text;
  fmt::format_to(
      std::back_inserter(text),
      "{{\"step\":{},\"best_score\":{},\"evaluations_without_gain\":{},\"seed\":{},\"epoch\":{},"
      "\"sample\":{},\"total\":{},\"num_order_changes\":{},\"order_changed_at\":[{}],",
      state.step, state.best_score, state.evaluations_without_gain, position.seed, position.epoch,
      position.sample, position.total, position.num_changes,
      fmt::join(std::span(position.changed_at).first(static_cast<size_t>(position.num_changes_here)), ","));
  fmt::format_to(std::back_inserter(text),
                 "\"loss_mean\":{},\"loss_variance\":{},\"num_losses\":{},\"num_bad\":{},"
                 "\"num_bad_in_row\":{},\"workers\":{},\"optimizer\":\"{}\",\"num_rows\":{},\"inputs\":{{",
                 state.losses.mean, state.losses.variance, state.losses.count, state.num_bad,
                 state.num_bad_in_row, state.num_workers, state.optimizer, state.num_rows);
  const char* separator = "";
  for (const InputState& input : state.inputs) {
    fmt::format_to(std::back_inserter(text), "{}\"{}\":{{\"files\":{},\"bytes\":{},\"xxh3\":{}}}", separator,
                   input.key, input.num_files, input.num_bytes, input.digest);
    separator = ",";
  }
  fmt::format_to(std::back_inserter(text), "}}}}");
  return text;
}

RunState parse_run_state(std::string_view json, std::string_view where) {
  const auto text = parse_json_object<nlohmann::json>(json, where);
  try {
    return state_of(text, where);
  } catch (const nlohmann::json::exception&) {
    user_error("{}: expected the state of a run, but a field of it is missing or has another type", where);
  }
}

std::string identity_of(recipe::Recipe recipe) {
  recipe.model.class_names.clear();
  return recipe::write_recipe(recipe);
}

}  // namespace hearth::run
