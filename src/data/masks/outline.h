#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace hearth::data {

/// Shape of an object from its labels, in pixels from the image's upper left corner; it may extend beyond the
/// image. Either the union of filled polygons, or a run-length encoded bitmap.
struct Outline {
  std::vector<std::vector<double>> polygons;  ///< corners of each polygon as x, y, x, y, ...; at least three
  /// Run lengths of the bitmap: numbers of consecutive pixels, alternately outside and inside of the object,
  /// starting with outside. Their sum is width * height.
  std::vector<uint32_t> runs;
  bool by_columns = true;  ///< true: column-major runs (COCO); false: row-major (CVAT)
  int64_t left = 0, top = 0, width = 0, height = 0;  ///< position and size of the bitmap in pixels

  bool empty() const { return polygons.empty() && runs.empty(); }
};

/// Half-open bounding box of an outline in pixels, and its area in square pixels (of polygons: the sum of
/// their areas). extent_of() returns nullopt if no pixel is inside.
struct OutlineExtent {
  double x0 = 0, y0 = 0, x1 = 0, y1 = 0;
  double area = 0;
};
std::optional<OutlineExtent> extent_of(const Outline& outline);

/// Return the corners (x, y, x, y, ...) of a rectangle rotated clockwise about a point, and of a polygon that
/// approximates an ellipse rotated about its center.
std::vector<double> rotated_rectangle(double x0, double y0, double x1, double y1, double degrees,
                                      double about_x, double about_y);
std::vector<double> rotated_ellipse(double x, double y, double radius_x, double radius_y, double degrees);

/// Decodes COCO's compressed RLE string (rleFrString of pycocotools). Returns nullopt if the string is
/// damaged or the run lengths do not add up to `num_pixels`.
std::optional<std::vector<uint32_t>> decode_coco_runs(std::string_view text, int64_t num_pixels);

/// True if the run lengths add up to width * height of the bitmap.
bool fills_bitmap(const Outline& outline);

}  // namespace hearth::data
