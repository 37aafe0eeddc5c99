#include "io/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "io/html.h"
#include "io/page_style.h"

namespace hearth::io {
namespace {

constexpr double kWidth = 560, kHeight = 300, kLeft = 62, kRight = 14, kTop = 34, kBottom = 40;

struct Axis {
  double low = 0, high = 1, step = 0.25;
};

/// Returns an axis that covers [low, high], with round limits and a tick distance of 1, 2 or 5 times a power
/// of ten.
Axis make_axis(double low, double high) {
  if (!(high > low)) {
    if (low > 0) low = 0;
    if (!(high > low)) high = low + 1;
  }
  const double rough = (high - low) / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  Axis axis;
  axis.step = power * (rough / power < 1.5 ? 1 : rough / power < 3.5 ? 2 : rough / power < 7.5 ? 5 : 10);
  axis.low = std::floor(low / axis.step) * axis.step;
  axis.high = std::ceil(high / axis.step) * axis.step;
  return axis;
}

/// Reduces a curve to 400 points or fewer, each the mean of a range of points.
std::vector<CurvePoint> thinned(const std::vector<CurvePoint>& points) {
  constexpr size_t kMaxPoints = 400;
  if (points.size() <= kMaxPoints) return points;
  std::vector<CurvePoint> out;
  for (size_t i = 0; i < kMaxPoints; ++i) {
    const size_t begin = i * points.size() / kMaxPoints;
    const size_t end = (i + 1) * points.size() / kMaxPoints;
    double sum = 0;
    for (size_t k = begin; k < end; ++k) sum += points[k].value;
    out.push_back({points[end - 1].step, sum / static_cast<double>(end - begin)});
  }
  return out;
}

/// Returns the tick values of an axis, ascending.
std::vector<double> ticks(const Axis& axis) {
  std::vector<double> at(static_cast<size_t>((axis.high - axis.low) / axis.step + 1.5));
  for (size_t i = 0; i < at.size(); ++i) at[i] = axis.low + static_cast<double>(i) * axis.step;
  return at;
}

/// Maps a step to x and a value to y, in pixels of the SVG. On a log scale, Frame::y is an axis of base-10
/// logarithms.
struct Frame {
  Axis x, y;
  Scale scale = Scale::linear;
  double px(double step) const {
    return kLeft + (step - x.low) / (x.high - x.low) * (kWidth - kLeft - kRight);
  }
  double py(double value) const {
    const double at = scale == Scale::log ? std::log10(value) : value;
    const double share = std::clamp((at - y.low) / (y.high - y.low), 0.0, 1.0);
    return kHeight - kBottom - share * (kHeight - kTop - kBottom);
  }
};

bool can_draw(double value, Scale scale) {
  return std::isfinite(value) && (scale == Scale::linear || value > 0);
}

/// Returns the upper end of the value axis, without a few spikes: min + 1.5 * (98th percentile - min) if the
/// max is more than 4 times as far from the min as the 98th percentile, otherwise the max. `sorted`: all
/// values, ascending.
double robust_max(const std::vector<double>& sorted) {
  const double low = sorted.front(), high = sorted.back();
  const double bulk = sorted[(sorted.size() - 1) * 98 / 100];
  return high - low > 4 * (bulk - low) && bulk > low ? low + 1.5 * (bulk - low) : high;
}

Frame make_frame(const std::vector<Series>& series, Scale scale) {
  double last = 1;
  std::vector<double> values;
  for (const Series& one : series) {
    for (const CurvePoint& point : one.points) {
      if (!can_draw(point.value, scale)) continue;
      last = std::max(last, static_cast<double>(point.step));
      values.push_back(point.value);
    }
  }
  if (values.empty()) return {};
  std::ranges::sort(values);
  const double low = values.front();
  if (scale == Scale::log)
    return {make_axis(0, last), make_axis(std::log10(low), std::log10(values.back())), scale};
  const double high = robust_max(values);
  return {make_axis(0, last), make_axis(low > 0 && low < high / 3 ? 0.0 : low, high), scale};
}

std::string grid(const Frame& frame, std::string_view along) {
  std::string svg;
  for (const double v : ticks(frame.y)) {
    const double value = frame.scale == Scale::log ? std::pow(10, v) : v;
    const double y = frame.py(value);
    svg += fmt::format(
        "<line class='grid' x1='{}' x2='{}' y1='{:.1f}' y2='{:.1f}'/><text class='tick' x='{}' y='{:.1f}' "
        "text-anchor='end'>{:.4g}</text>",
        kLeft, kWidth - kRight, y, y, kLeft - 8, y + 4, std::fabs(value) < 1e-9 * frame.y.step ? 0.0 : value);
  }
  for (const double v : ticks(frame.x)) {
    svg += fmt::format("<text class='tick' x='{:.1f}' y='{}' text-anchor='middle'>{:.6g}</text>", frame.px(v),
                       kHeight - kBottom + 18, v);
  }
  return svg + fmt::format("<text class='tick' x='{}' y='{}' text-anchor='middle'>{}</text>",
                           (kLeft + kWidth) / 2, kHeight - 6, escape_html(along));
}

/// Returns SVG text at the upper edge with the highest value of a series, if that is above the axis;
/// otherwise an empty string.
std::string peak(const Frame& frame, const Series& one) {
  const auto finite = [](const CurvePoint& point) {
    return std::isfinite(point.value) ? point.value : -INFINITY;
  };
  const auto highest = std::ranges::max_element(one.points, {}, finite);
  if (frame.scale == Scale::log || highest == one.points.end() || !(finite(*highest) > frame.y.high))
    return "";
  const double x = std::min(frame.px(static_cast<double>(highest->step)), kWidth - kRight - 30);
  return fmt::format("<text class='tick' x='{:.1f}' y='{}' style='fill:{}'>\u25b2 {:.4g}</text>", x,
                     kTop + 12, one.color, highest->value);
}

/// Opens the SVG of a chart with its title, for which `left` is the offset, and a text for screen readers.
std::string open_svg(const std::string& title, std::string_view description, double left, double height) {
  return fmt::format(
      "<svg class='chart' viewBox='0 0 {} {}' role='img'><title>{}</title><desc>{}</desc>"
      "<text class='title' x='{}' y='20'>{}</text>",
      kWidth, height, escape_html(title), escape_html(description), left, escape_html(title));
}

std::string describe(const std::vector<Series>& series, std::string_view along) {
  std::string text;
  for (const Series& one : series) {
    if (one.points.empty()) continue;
    const auto& [first, last] = std::pair(one.points.front(), one.points.back());
    text += fmt::format("{}: {:.4g} at {} {}, {:.4g} at {} {}. ", one.name, first.value, along, first.step,
                        last.value, along, last.step);
  }
  return text;
}

/// Appends a point to the commands of an SVG path.
void add_point(std::string& path, double x, double y) {
  path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x, y);
}

std::string draw(const Frame& frame, const Series& one) {
  std::string path, dots;
  for (const CurvePoint& point : thinned(one.points)) {
    if (!can_draw(point.value, frame.scale)) continue;
    const double x = frame.px(static_cast<double>(point.step)), y = frame.py(point.value);
    add_point(path, x, y);
    if (one.points.size() <= 40)
      dots += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='3' fill='{}'/>", x, y, one.color);
  }
  return fmt::format("<path d='{}' fill='none' stroke='{}' stroke-width='2' stroke-linejoin='round'/>{}",
                     path, one.color, dots);
}

std::string draw(const Frame& frame, const UnitCurve& curve) {
  using Style = UnitCurve::Style;
  std::string path, dots;
  for (const auto& [x, y] : curve.points) {
    if (!std::isfinite(x) || !std::isfinite(y)) continue;
    add_point(path, frame.px(x), frame.py(y));
    if (curve.style == Style::dots)
      dots += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='4' fill='{}'/>", frame.px(x), frame.py(y),
                          curve.color);
  }
  return fmt::format("<path d='{}' fill='none' stroke='{}' stroke-width='{}'{} stroke-linejoin='round'/>{}",
                     path, curve.color, curve.style == Style::strong ? 3.5 : 1.5,
                     curve.style == Style::guide ? " stroke-dasharray='5 5'" : "", dots);
}

}  // namespace

std::string curve_color(size_t index) { return fmt::format("var(--c{})", index % kNumCurveColors); }

std::string line_chart(const std::string& title, const std::vector<Series>& series, std::string_view along,
                       Scale scale) {
  const Frame frame = make_frame(series, scale);
  std::string svg = open_svg(title, describe(series, along), kLeft, kHeight) + grid(frame, along);
  double legend = kWidth - kRight;
  for (const Series& one : series) {
    svg += draw(frame, one) + peak(frame, one);
    svg += fmt::format(
        "<text class='tick' x='{}' y='20' text-anchor='end' style='fill:{};font-weight:600'>{}</text>",
        legend, one.color, escape_html(one.name));
    legend -= 9.0 * static_cast<double>(one.name.size()) + 14;
  }
  return svg + "</svg>";
}

std::string unit_chart(const std::string& title, std::string_view along, std::string_view up,
                       const std::vector<UnitCurve>& curves, std::string_view summary) {
  constexpr Axis kUnit{0, 1, 0.2};
  const Frame frame{kUnit, kUnit};
  std::string svg = open_svg(title, summary, kLeft, kHeight) + grid(frame, along);
  svg += fmt::format(
      "<text class='tick' transform='translate(16 {}) rotate(-90)' text-anchor='middle'>{}</text>",
      (kTop + kHeight - kBottom) / 2, escape_html(up));
  std::string legend;
  for (const UnitCurve& curve : curves) {
    svg += draw(frame, curve);
    legend += fmt::format("<span><i style='background:{}'></i>{}</span>", escape_html(curve.color),
                          escape_html(curve.name));
  }
  return fmt::format("<div class='plot'>{}</svg><div class='legend'>{}</div></div>", svg, legend);
}

std::string bar_chart(const std::string& title, const std::string& color, const std::vector<Bar>& bars) {
  constexpr double kRow = 24, kNames = 190, kTexts = 130;
  constexpr size_t kMaxName = 24;
  double max_value = 0;
  std::string description;
  for (const Bar& bar : bars) {
    max_value = std::max(max_value, bar.value);
    description += fmt::format("{}: {}. ", bar.name, bar.text);
  }
  const double height = kTop + kRow * static_cast<double>(bars.size()) + 10;
  std::string svg = open_svg(title, description, 14, height);
  double y = kTop;
  for (const Bar& bar : bars) {
    const double width = max_value > 0 ? (kWidth - kNames - kTexts) * bar.value / max_value : 0;
    svg += fmt::format(
        "<text class='tick' x='{}' y='{:.1f}' text-anchor='end'>{}</text><rect x='{}' y='{:.1f}' "
        "width='{:.1f}' "
        "height='{}' rx='3' fill='{}'/><text class='tick' x='{:.1f}' y='{:.1f}'>{}</text>",
        kNames - 8, y + 14, escape_html(shortened(bar.name, kMaxName)), kNames, y + 2, width, kRow - 8, color,
        kNames + width + 6, y + 14, escape_html(bar.text));
    y += kRow;
  }
  return svg + "</svg>";
}

}  // namespace hearth::io
