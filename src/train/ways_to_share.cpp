#include "train/ways_to_share.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "train/memory_fit.h"

namespace hearth::train {
namespace {

/// Of a budget that the packing went over.
constexpr int kTries = 3;

}  // namespace

WayToShare plan_way_to_share(std::string settings, EngineOptions options, int64_t card_bytes,
                             const passes::CardModel& card, const Links& links) {
  options.backend = exec::Backend::gpu;
  options.machine = passes::machine_of(card, options.precision);
  WayToShare way{.settings = std::move(settings), .fit = "", .model = std::nullopt};
  const std::optional<MemoryFit> fit = MemoryFits(options, card_bytes).cheapest();
  if (!fit) return way;
  way.fit = describe(*fit);
  options.offload = fit->offload;
  options.budget_bytes = fit->budget_bytes;
  TeamModel model = model_team(options, card, links);
  for (int i = 0; i < kTries && model.card_bytes > card_bytes; ++i) {
    const int64_t budget = options.budget_bytes > 0 ? options.budget_bytes : model.arena_bytes;
    options.budget_bytes = budget - (model.card_bytes - card_bytes);
    if (options.budget_bytes <= 0) return way;
    model = model_team(options, card, links);
  }
  if (model.card_bytes <= card_bytes) way.model = model;
  return way;
}

std::string to_table(const std::vector<WayToShare>& ways) {
  std::string text = fmt::format("  {:<24} {:>12} {:>12} {:>10} {:>10} {:>12}  {}\n", "", "on each card",
                                 "host memory", "ms", "exposed", "per second", "what it takes to fit");
  for (const WayToShare& way : ways) {
    if (!way.model) {
      text += fmt::format("  {:<24} does not fit by any means\n", way.settings);
      continue;
    }
    const TeamModel& model = *way.model;
    text += fmt::format("  {:<24} {:>12} {:>12} {:>10.1f} {:>9.1f}% {:>12.1f}  {}\n", way.settings,
                        human_bytes(model.card_bytes), human_bytes(model.host_bytes), 1e3 * model.seconds,
                        100 * model.exposed_seconds / model.seconds, model.samples_per_second(), way.fit);
  }
  return text;
}

std::string to_json(const std::vector<WayToShare>& ways) {
  std::vector<std::string> rows;
  for (const WayToShare& way : ways) {
    std::string row = fmt::format("{{\"settings\":\"{}\",\"fits\":{}", way.settings, way.model.has_value());
    if (way.model) {
      const TeamModel& model = *way.model;
      row += fmt::format(
          ",\"how\":\"{}\",\"card_bytes\":{},\"host_bytes\":{},\"modelled_seconds\":{:.9f},"
          "\"exposed_seconds\":{:.9f},\"samples_per_second\":{:.3f}",
          way.fit, model.card_bytes, model.host_bytes, model.seconds, model.exposed_seconds,
          model.samples_per_second());
    }
    rows.push_back(row + "}");
  }
  return fmt::format("[{}]", fmt::join(rows, ","));
}

}  // namespace hearth::train
