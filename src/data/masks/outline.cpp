#include "data/masks/outline.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace hearth::data {
namespace {

/// Returns the area of a polygon that does not cross itself, by the shoelace formula.
double area_of(const std::vector<double>& polygon) {
  double twice = 0;
  for (size_t i = 0; i < polygon.size(); i += 2) {
    const size_t next = i + 2 < polygon.size() ? i + 2 : 0;
    twice += polygon[i] * polygon[next + 1] - polygon[next] * polygon[i + 1];
  }
  return std::fabs(twice) / 2;
}

std::optional<OutlineExtent> extent_of_polygons(const std::vector<std::vector<double>>& polygons) {
  const std::vector<double>& first = polygons.front();
  OutlineExtent extent{.x0 = first[0], .y0 = first[1], .x1 = first[0], .y1 = first[1]};
  for (const std::vector<double>& polygon : polygons) {
    for (size_t i = 0; i < polygon.size(); i += 2) {
      extent.x0 = std::min(extent.x0, polygon[i]);
      extent.x1 = std::max(extent.x1, polygon[i]);
      extent.y0 = std::min(extent.y0, polygon[i + 1]);
      extent.y1 = std::max(extent.y1, polygon[i + 1]);
    }
    extent.area += area_of(polygon);
  }
  return extent;
}

/// Computes bounding box and area of a run-length encoded bitmap. A line is a column or a row, by
/// outline.by_columns.
std::optional<OutlineExtent> extent_of_runs(const Outline& outline) {
  const int64_t length = outline.by_columns ? outline.height : outline.width;
  int64_t at = 0, first_line = INT64_MAX, last_line = -1, first = INT64_MAX, last = -1, area = 0;
  for (size_t i = 0; i < outline.runs.size(); ++i) {
    const int64_t begin = at, end = at + outline.runs[i];
    at = end;
    if (i % 2 == 0 || begin == end) continue;
    area += end - begin;
    first_line = std::min(first_line, begin / length);
    last_line = std::max(last_line, (end - 1) / length);
    const bool wraps = begin / length != (end - 1) / length;
    first = std::min(first, wraps ? 0 : begin % length);
    last = std::max(last, wraps ? length - 1 : (end - 1) % length);
  }
  if (area == 0) return std::nullopt;
  const auto x0 = static_cast<double>(outline.left + (outline.by_columns ? first_line : first));
  const auto y0 = static_cast<double>(outline.top + (outline.by_columns ? first : first_line));
  const auto x1 = static_cast<double>(outline.left + (outline.by_columns ? last_line : last) + 1);
  const auto y1 = static_cast<double>(outline.top + (outline.by_columns ? last : last_line) + 1);
  return OutlineExtent{.x0 = x0, .y0 = y0, .x1 = x1, .y1 = y1, .area = static_cast<double>(area)};
}

/// Rotates points clockwise about a center.
void turn(std::vector<double>& points, double degrees, double about_x, double about_y) {
  if (degrees == 0) return;
  const double angle = degrees * std::numbers::pi / 180, cosine = std::cos(angle), sine = std::sin(angle);
  for (size_t i = 0; i < points.size(); i += 2) {
    const double x = points[i] - about_x, y = points[i + 1] - about_y;
    points[i] = about_x + x * cosine - y * sine;
    points[i + 1] = about_y + x * sine + y * cosine;
  }
}

}  // namespace

std::vector<double> rotated_rectangle(double x0, double y0, double x1, double y1, double degrees,
                                      double about_x, double about_y) {
  std::vector<double> corners = {x0, y0, x1, y0, x1, y1, x0, y1};
  turn(corners, degrees, about_x, about_y);
  return corners;
}

std::vector<double> rotated_ellipse(double x, double y, double radius_x, double radius_y, double degrees) {
  constexpr int kNumCorners = 64;
  std::vector<double> corners;
  for (int i = 0; i < kNumCorners; ++i) {
    const double angle = 2 * std::numbers::pi * i / kNumCorners;
    corners.push_back(x + radius_x * std::cos(angle));
    corners.push_back(y + radius_y * std::sin(angle));
  }
  turn(corners, degrees, x, y);
  return corners;
}

std::optional<OutlineExtent> extent_of(const Outline& outline) {
  if (!outline.polygons.empty()) return extent_of_polygons(outline.polygons);
  return extent_of_runs(outline);
}

bool fills_bitmap(const Outline& outline) {
  int64_t total = 0;
  for (const uint32_t run : outline.runs) total += run;
  return total == outline.width * outline.height;
}

std::optional<std::vector<uint32_t>> decode_coco_runs(std::string_view text, int64_t num_pixels) {
  // A number is stored in digits of five bits with a continuation flag each; more digits would overflow.
  constexpr int kMaxDigits = 8;
  std::vector<uint32_t> runs;
  int64_t total = 0;
  for (size_t at = 0; at < text.size();) {
    int64_t value = 0;
    int digit = 0;
    for (bool more = true; more; ++digit) {
      if (at == text.size() || digit == kMaxDigits) return std::nullopt;
      const int code = text[at++] - '0';
      if (code < 0 || code > 63) return std::nullopt;
      value |= static_cast<int64_t>(code & 31) << (5 * digit);
      more = (code & 32) != 0;
      if (!more && (code & 16) != 0) value -= int64_t{1} << (5 * (digit + 1));
    }
    // The string stores the first three runs directly; from the fourth run on, the difference from the run
    // two positions before.
    if (runs.size() > 2) value += runs[runs.size() - 2];
    total += value;
    if (value < 0 || total > num_pixels) return std::nullopt;
    runs.push_back(static_cast<uint32_t>(value));
  }
  if (total != num_pixels) return std::nullopt;
  return runs;
}

}  // namespace hearth::data
