#include "tasks/detect/detector.h"

#include <algorithm>
#include <array>

namespace hearth::tasks {

// Functions that open the detectors, each defined in NAME_detector.cpp.
using Open = std::unique_ptr<Detector>(const DetectorOptions& options);
Open open_fcos, open_retinanet, open_yolox;

namespace {

constexpr auto kDetectors = std::to_array<DetectorDef>({
    {"yolox_pico", "detection: YOLOX (arXiv 2107.08430), 2.2 M weights, no depthwise convolutions",
     open_yolox},
    {"yolox_nano", "detection: YOLOX, 0.9 M weights", open_yolox},
    {"yolox_tiny", "detection: YOLOX, 5 M weights", open_yolox},
    {"yolox_s", "detection: YOLOX, 9 M weights", open_yolox},
    {"yolox_m", "detection: YOLOX, 25 M weights", open_yolox},
    {"yolox_l", "detection: YOLOX, 54 M weights", open_yolox},
    {"retinanet_resnet50_fpn", "detection: RetinaNet (arXiv 1708.02002), 34 M weights, torchvision's",
     open_retinanet},
    {"fcos_resnet50_fpn", "detection: FCOS (arXiv 1904.01355), 32 M weights, torchvision's", open_fcos},
});

}  // namespace

std::span<const DetectorDef> detectors() { return kDetectors; }

const DetectorDef* find_detector(std::string_view name) {
  const auto found = std::ranges::find(kDetectors, name, &DetectorDef::name);
  return found == kDetectors.end() ? nullptr : &*found;
}

}  // namespace hearth::tasks
