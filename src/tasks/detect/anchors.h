#pragma once

#include <span>
#include <vector>

#include "data/boxes/box.h"
#include "models/retinanet/retinanet.h"
#include "tasks/detect/pyramid.h"

namespace hearth::tasks {

/// Corners in pixels.
struct AnchorBox {
  double x0 = 0, y0 = 0, x1 = 0, y1 = 0;
};

/// RetinaNet's anchor boxes for pictures of one size (Lin et al. 2017, arXiv 1708.02002), in the order of
/// models::RetinanetOutputs: sizes 32 to 512 by level times 1, 2^(1/3) and 2^(2/3), heights by widths of 1/2,
/// 1 and 2, corners rounded, as torchvision's.
class Anchors {
 public:
  explicit Anchors(Extent size);

  int64_t count() const { return models::kRetinanetAnchors * num_cells(levels_); }
  AnchorBox at(int64_t index) const;
  const PyramidLevels& levels() const { return levels_; }

  /// What an anchor learns if no box is its own.
  enum Match : int32_t { kBackground = -1, kUndecided = -2 };
  /// For each anchor the box, or a Match: of the boxes the one that overlaps it most, if by an IoU of 0.5 or
  /// if no anchor overlaps some box more than this one; from 0.4 on it is undecided, below it background.
  std::vector<int32_t> match(std::span<const data::Box> boxes) const;

 private:
  using Kinds = std::array<AnchorBox, models::kRetinanetAnchors>;

  /// Calls use(anchor, IoU) for each that the box overlaps.
  template <typename Use>
  void for_each_overlap(const data::Box& box, const Use& use) const;

  PyramidLevels levels_;
  std::array<Kinds, models::kNumPyramidLevels> kinds_;  ///< anchors of each level's cell (0, 0)
};

}  // namespace hearth::tasks
