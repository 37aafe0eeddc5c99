#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/run_log.h"

namespace hearth::io {

/// A line of a chart: values over steps, with a name and a CSS color.
struct Series {
  std::string name;
  std::string color;
  std::vector<CurvePoint> points;
};
struct Chart {
  std::string title;
  std::vector<Series> series;
};

/// Returns the CSS color of a chart's line `index`. The colors repeat after kNumCurveColors lines.
std::string curve_color(size_t index);

enum class Scale : uint8_t { linear, log };
/// Returns a line chart as SVG. `along`: label of the horizontal axis. On a linear scale, a few spikes far
/// above the other points are cut off at the upper edge. A log scale omits values that are not above 0.
std::string line_chart(const std::string& title, const std::vector<Series>& series,
                       std::string_view along = "step", Scale scale = Scale::linear);

/// A line of a chart whose axes are both from 0 to 1, such as a precision-recall curve.
struct UnitCurve {
  std::string name;
  std::string color;                              ///< CSS
  std::vector<std::pair<double, double>> points;  ///< {x, y}
  /// plain: a thin line; strong: a thick line; dots: points are marked; guide: a dashed line.
  enum class Style : uint8_t { plain, strong, dots, guide } style = Style::plain;
};
/// Returns a chart of curves as HTML: SVG, then a legend. `along` and `up`: labels of the axes. `summary`:
/// result as text for screen readers.
std::string unit_chart(const std::string& title, std::string_view along, std::string_view up,
                       const std::vector<UnitCurve>& curves, std::string_view summary);

/// A bar of a bar chart: its label (`name`), its length (`value`) and the text after it.
struct Bar {
  std::string name;
  double value = 0;
  std::string text;
};
/// Returns a chart of horizontal bars as SVG.
std::string bar_chart(const std::string& title, const std::string& color, const std::vector<Bar>& bars);

}  // namespace hearth::io
