#pragma once

#include <span>
#include <vector>

#include "data/boxes/box.h"
#include "models/retinanet/retinanet.h"
#include "tasks/detect/pyramid.h"

namespace hearth::tasks {

/// An anchor box: upper left and lower right corner in pixels.
struct AnchorBox {
  double x0 = 0, y0 = 0, x1 = 0, y1 = 0;
};

/// RetinaNet's anchor boxes for images of one size (Lin et al. 2017, arXiv 1708.02002), in the order of
/// models::RetinanetOutputs. Each cell has nine anchors: the level's size (32 to 512 pixels) times 1, 2^(1/3)
/// and 2^(2/3), with aspect ratios (height / width) 1/2, 1 and 2. Corners are rounded as in torchvision.
class Anchors {
 public:
  explicit Anchors(Extent size);

  /// Returns the number of anchors of all levels.
  int64_t count() const { return models::kRetinanetAnchors * num_cells(levels_); }
  /// Returns an anchor by its index in the order of models::RetinanetOutputs.
  AnchorBox at(int64_t index) const;
  const PyramidLevels& levels() const { return levels_; }

  /// Results of match() for anchors without a box. kUndecided: excluded from the loss.
  enum Match : int32_t { kBackground = -1, kUndecided = -2 };
  /// Returns for each anchor the index of the box with the highest IoU if this IoU is at least 0.5, or if the
  /// anchor is the one with the highest IoU for some box. Otherwise returns kUndecided for an IoU of at least
  /// 0.4, and kBackground below.
  std::vector<int32_t> match(std::span<const data::Box> boxes) const;

 private:
  using Kinds = std::array<AnchorBox, models::kRetinanetAnchors>;

  /// Calls use(anchor index, IoU) for each anchor that overlaps the box.
  template <typename Use>
  void for_each_overlap(const data::Box& box, const Use& use) const;

  PyramidLevels levels_;
  /// Anchors of cell (0, 0) of each level; other cells have the same anchors, shifted.
  std::array<Kinds, models::kNumPyramidLevels> kinds_;
};

}  // namespace hearth::tasks
