#include "train/run_state.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>

namespace hearth::train {
namespace {

constexpr int64_t kMemory = 100;
/// Losses that have to be known before one can lie too high.
constexpr int64_t kLeast = 20;

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
                 "\"num_bad_in_row\":{},\"workers\":{}}}",
                 state.losses.mean, state.losses.variance, state.losses.count, state.num_bad,
                 state.num_bad_in_row, state.num_workers);
  return text;
}

RunState parse_run_state(const std::string& json) {
  const auto text = nlohmann::json::parse(json);
  RunState state{.step = text.at("step").get<int64_t>(),
                 .best_score = text.at("best_score").get<double>(),
                 .evaluations_without_gain = text.at("evaluations_without_gain").get<int64_t>(),
                 .position = {.seed = text.at("seed").get<uint64_t>(),
                              .epoch = text.at("epoch").get<int64_t>(),
                              .sample = text.at("sample").get<int64_t>(),
                              .total = text.at("total").get<int64_t>(),
                              .num_changes = text.value("num_order_changes", int64_t{0})},
                 .num_workers = text.value("workers", 1),
                 .losses = {.mean = text.value("loss_mean", 0.0),
                            .variance = text.value("loss_variance", 0.0),
                            .count = text.value("num_losses", int64_t{0})},
                 .num_bad = text.value("num_bad", int64_t{0}),
                 .num_bad_in_row = text.value("num_bad_in_row", int64_t{0})};
  for (const nlohmann::json& sample : text.value("order_changed_at", nlohmann::json::array()))
    state.position.changed_at.at(static_cast<size_t>(state.position.num_changes_here++)) = sample;
  return state;
}

}  // namespace hearth::train
