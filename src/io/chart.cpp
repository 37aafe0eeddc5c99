#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "io/report.h"

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

}  // namespace

std::string line_chart(const std::string& title, const std::vector<Series>& series, std::string_view along,
                       Scale scale) {
  const Frame frame = make_frame(series, scale);
  std::string svg = fmt::format(
      "<svg class='chart' viewBox='0 0 {} {}' role='img'><text class='title' x='{}' y='20'>{}</text>", kWidth,
      kHeight, kLeft, escape_html(title));
  svg += grid(frame, along);
  double legend = kWidth - kRight;
  for (const Series& one : series) {
    std::string path;
    std::string dots;
    for (const CurvePoint& point : thinned(one.points)) {
      if (!can_draw(point.value, scale)) continue;
      const double x = frame.px(static_cast<double>(point.step));
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x, frame.py(point.value));
      if (one.points.size() <= 40)
        dots += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='3' fill='{}'/>", x, frame.py(point.value),
                            one.color);
    }
    svg += fmt::format("<path d='{}' fill='none' stroke='{}' stroke-width='2' stroke-linejoin='round'/>{}",
                       path, one.color, dots);
    svg += peak(frame, one);
    svg += fmt::format(
        "<text class='tick' x='{}' y='20' text-anchor='end' style='fill:{};font-weight:600'>{}</text>",
        legend, one.color, escape_html(one.name));
    legend -= 9.0 * static_cast<double>(one.name.size()) + 14;
  }
  return svg + "</svg>";
}

std::string bar_chart(const std::string& title, const std::string& color, const std::vector<Bar>& bars) {
  constexpr double kRow = 24, kNames = 190, kTexts = 130;
  double max_value = 0;
  for (const Bar& bar : bars) max_value = std::max(max_value, bar.value);
  const double height = kTop + kRow * static_cast<double>(bars.size()) + 10;
  std::string svg = fmt::format(
      "<svg class='chart' viewBox='0 0 {} {}' role='img'><text class='title' x='14' y='20'>{}</text>", kWidth,
      height, escape_html(title));
  double y = kTop;
  for (const Bar& bar : bars) {
    const double width = max_value > 0 ? (kWidth - kNames - kTexts) * bar.value / max_value : 0;
    svg += fmt::format(
        "<text class='tick' x='{}' y='{:.1f}' text-anchor='end'>{}</text><rect x='{}' y='{:.1f}' "
        "width='{:.1f}' "
        "height='{}' rx='3' fill='{}'/><text class='tick' x='{:.1f}' y='{:.1f}'>{}</text>",
        kNames - 8, y + 14, escape_html(bar.name), kNames, y + 2, width, kRow - 8, color, kNames + width + 6,
        y + 14, escape_html(bar.text));
    y += kRow;
  }
  return svg + "</svg>";
}

}  // namespace hearth::io
