#include "train/run_state.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>

#include "base/error.h"
#include "base/json.h"

namespace hearth::train {
namespace {

constexpr int64_t kMemory = 100;
/// Losses that have to be known before one can lie too high.
constexpr int64_t kLeast = 20;

RunState state_of(const nlohmann::json& text, std::string_view where) {
  RunState state{.step = text.at("step").get<int64_t>(),
                 .best_score = text.at("best_score").get<double>(),
                 .evaluations_without_gain = text.at("evaluations_without_gain").get<int64_t>(),
                 .position = {.seed = text.at("seed").get<uint64_t>(),
                              .epoch = text.at("epoch").get<int64_t>(),
                              .sample = text.at("sample").get<int64_t>(),
                              .total = text.at("total").get<int64_t>(),
                              .num_changes = text.value("num_order_changes", int64_t{0})},
                 .num_workers = text.value("workers", 1),
                 .optimizer = text.value("optimizer", std::string()),
                 .num_rows = text.value("num_rows", int64_t{0}),
                 .losses = {.mean = text.value("loss_mean", 0.0),
                            .variance = text.value("loss_variance", 0.0),
                            .count = text.value("num_losses", int64_t{0})},
                 .num_bad = text.value("num_bad", int64_t{0}),
                 .num_bad_in_row = text.value("num_bad_in_row", int64_t{0})};
  const auto changes = text.value("order_changed_at", std::vector<int64_t>());
  if (changes.size() > state.position.changed_at.size())
    user_error("{}: expected at most {} changes of the order, got {}", where,
               state.position.changed_at.size(), changes.size());
  std::ranges::copy(changes, state.position.changed_at.begin());
  state.position.num_changes_here = std::ssize(changes);
  return state;
}

}  // namespace

void LossSpread::add(double loss) {
  const double weight = 1.0 / static_cast<double>(std::min(++count, kMemory)), difference = loss - mean;
  mean += weight * difference;
  variance = (1 - weight) * (variance + weight * difference * difference);
}

double LossSpread::z_score(double loss) const {
  if (count < kLeast || loss <= mean) return 0;
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
                 "\"num_bad_in_row\":{},\"workers\":{},\"optimizer\":\"{}\",\"num_rows\":{}}}",
                 state.losses.mean, state.losses.variance, state.losses.count, state.num_bad,
                 state.num_bad_in_row, state.num_workers, state.optimizer, state.num_rows);
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

}  // namespace hearth::train
