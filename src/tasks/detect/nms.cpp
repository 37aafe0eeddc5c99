#include "tasks/detect/nms.h"

#include <algorithm>

#include "tasks/detect/overlap.h"

namespace hearth::tasks {

std::vector<Detection> suppress(std::vector<Detection> detections, const NmsOptions& options) {
  std::erase_if(detections, [&](const Detection& found) { return !(found.score >= options.score); });
  std::ranges::stable_sort(detections, std::ranges::greater(), &Detection::score);
  detections.resize(std::min(detections.size(), static_cast<size_t>(options.candidates)));
  std::vector<Detection> kept;
  for (const Detection& found : detections) {
    if (std::ssize(kept) >= options.max_detections) break;
    const auto covers = [&](const Detection& better) {
      return better.label == found.label && overlap(better, found) > options.overlap;
    };
    if (std::ranges::none_of(kept, covers)) kept.push_back(found);
  }
  return kept;
}

}  // namespace hearth::tasks
