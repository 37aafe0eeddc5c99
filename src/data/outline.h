#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace hearth::data {

/// Shape of an object as its labels give it, in pixels of the image from its upper left corner; it may reach
/// out of the image. Either polygons, which are filled and united, or the runs of a bitmap.
struct Outline {
  std::vector<std::vector<double>> polygons;  ///< corners x, y, x, y, ... of each, at least three
  /// Run lengths of a bitmap: pixels outside and inside of the object in turn, starting outside. They fill
  /// the bitmap exactly.
  std::vector<uint32_t> runs;
  bool by_columns = true;                            ///< runs go down columns (COCO), or along rows (CVAT)
  int64_t left = 0, top = 0, width = 0, height = 0;  ///< of the bitmap

  bool empty() const { return polygons.empty() && runs.empty(); }
};

/// Corners of the smallest box around an outline, half-open, and the number of pixels inside (polygons: the
/// sum of their areas); nothing where no pixel is inside.
struct OutlineExtent {
  double x0 = 0, y0 = 0, x1 = 0, y1 = 0;
  double area = 0;
};
std::optional<OutlineExtent> extent_of(const Outline& outline);

/// Corners of a rectangle that is turned clockwise about a point, and of a polygon for an ellipse that is
/// turned about its center.
std::vector<double> turned_rectangle(double x0, double y0, double x1, double y1, double degrees,
                                     double about_x, double about_y);
std::vector<double> turned_ellipse(double x, double y, double radius_x, double radius_y, double degrees);

/// Run lengths from COCO's compressed string (pycocotools' rleFrString); nothing where it is damaged or its
/// runs do not add up to `num_pixels`.
std::optional<std::vector<uint32_t>> decode_coco_runs(std::string_view text, int64_t num_pixels);

/// True if the runs add up to the pixels of the bitmap.
bool fills_bitmap(const Outline& outline);

}  // namespace hearth::data
