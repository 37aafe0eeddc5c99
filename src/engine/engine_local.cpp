#include <algorithm>
#include <cmath>

#include "engine/engine.h"
#include "ir/state_name.h"

namespace hearth::engine {

using ir::StateKind;

void Engine::add_own_places(ir::Graph& graph) const {
  if (options_.num_workers == 1) return;
  if (works_alone()) add_outer_states(graph);
  const auto is_own = [&](const ir::Value& value) {
    const StateKind kind = ir::parse_state_name(value.name).kind;
    return works_alone() ? kind != StateKind::anchor && kind != StateKind::outer_momentum
                         : kind == StateKind::error;
  };
  add_places_of_workers(graph, static_cast<int>(options_.num_workers), is_own);
}

void Engine::copy_first(const std::string& weight) {
  for (const StateKind kind : {StateKind::average, StateKind::anchor}) {
    const std::string copy = ir::spell(kind, weight);
    if (layout_.find(copy) != nullptr) std::ranges::copy(values(weight), values(copy).begin());
  }
}

Engine::Part Engine::part_of(int64_t num_micro, int64_t num_samples) const {
  const auto samples = static_cast<double>(num_samples);
  if (!works_alone()) return {.num_micro = num_micro, .num_samples = samples};
  const data::LoaderShare own = share();
  const int64_t present = std::clamp<int64_t>(num_micro - own.first, 0, own.count);
  return {.num_micro = present,
          .num_samples = samples * static_cast<double>(present) / static_cast<double>(num_micro)};
}

double Engine::gather_norms(double norm) {
  std::vector<double> norms(static_cast<size_t>(options_.num_workers));
  team_->all_gather(std::as_bytes(std::span(&norm, 1)), std::as_writable_bytes(std::span(norms)));
  double sum = 0;
  for (const double one : norms) sum += one;
  return sum / static_cast<double>(norms.size());
}

void Engine::move_together() {
  if (outer_ == nullptr) return;
  outer_->set_scalar(kInverseWorkers, 1.0F / static_cast<float>(options_.num_workers));
  outer_->set_scalar(kOuterRate, static_cast<float>(options_.local.outer_lr));
  run(*outer_);
  team_->check();
}

void Engine::take_own_states() {
  if (team_ == nullptr) return;
  if (!away_) find_away();
  for (const Away& away : *away_) {
    if (away.owner != options_.rank || away.source == away.buffer) continue;
    std::copy_n(data(*away.buffer), away.buffer->type.num_bytes(), data(*away.source));
  }
}

}  // namespace hearth::engine
