#include "arena/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"

namespace hearth::arena {
namespace {

constexpr double kWidth = 1100, kHeight = 460, kLeft = 78, kRight = 10, kTop = 34, kBottom = 34;

struct Kind {
  const char* name;
  const char* color;
};
constexpr std::array<Kind, 3> kKinds = {
    {{"activation", "#4299e1"}, {"gradient", "#ed8936"}, {"workspace", "#a0aec0"}}};

const char* color_of(const std::string& kind) {
  for (const Kind& known : kKinds) {
    if (kind == known.name) return known.color;
  }
  return "#9f7aea";
}

std::string safe(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '<' || c == '>' || c == '&' ? '.' : c;
  return out;
}

std::string legend(const Solution& solution) {
  std::string svg =
      fmt::format("<text x='{}' y='20' font-size='13' fill='currentColor'>peak {} of a bound of {}</text>",
                  kLeft, human_bytes(solution.height), human_bytes(solution.lower_bound));
  double x = kWidth - kRight - 330;
  for (const Kind& kind : kKinds) {
    svg += fmt::format(
        "<rect x='{}' y='10' width='12' height='12' fill='{}'/><text x='{}' y='20' font-size='13' "
        "fill='currentColor'>{}</text>",
        x, kind.color, x + 18, kind.name);
    x += 112;
  }
  return svg;
}

}  // namespace

std::string draw_svg(const Problem& problem, const Solution& solution) {
  int64_t last = 1;
  for (const Buffer& buffer : problem.buffers) last = std::max(last, buffer.upper);
  const auto height = static_cast<double>(std::max<int64_t>(1, solution.height));
  const double x_scale = (kWidth - kLeft - kRight) / static_cast<double>(last);
  const double y_scale = (kHeight - kTop - kBottom) / height;
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {} {}' font-family='system-ui,sans-serif'>",
      kWidth, kHeight);
  svg += legend(solution);
  for (int i = 0; i <= 4; ++i) {
    const double y = kHeight - kBottom - i * (kHeight - kTop - kBottom) / 4;
    svg += fmt::format(
        "<line x1='{}' x2='{}' y1='{:.1f}' y2='{:.1f}' stroke='currentColor' stroke-opacity='.15'/><text "
        "x='{}' y='{:.1f}' font-size='12' text-anchor='end' fill='currentColor'>{}</text>",
        kLeft, kWidth - kRight, y, y, kLeft - 6, y + 4, human_bytes(solution.height * i / 4));
  }
  // With thousands of buffers, outlines of full width would hide the fill colors.
  const double outline = std::min(0.3, 100.0 / static_cast<double>(problem.buffers.size() + 1));
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    const Buffer& buffer = problem.buffers[i];
    const double top = static_cast<double>(solution.offsets[i] + buffer.size);
    svg += fmt::format(
        "<rect x='{:.2f}' y='{:.2f}' width='{:.2f}' height='{:.2f}' fill='{}' fill-opacity='.8' "
        "stroke='#1a202c' stroke-width='{:.2f}'><title>{}, {}</title></rect>",
        kLeft + static_cast<double>(buffer.lower) * x_scale, kHeight - kBottom - top * y_scale,
        std::max(0.4, static_cast<double>(buffer.upper - buffer.lower) * x_scale),
        std::max(0.2, static_cast<double>(buffer.size) * y_scale), color_of(buffer.kind), outline,
        safe(buffer.id), human_bytes(buffer.size));
  }
  svg += fmt::format(
      "<text x='{}' y='{}' font-size='12' text-anchor='middle' fill='currentColor'>steps of the program, 0 "
      "to {}</text></svg>",
      (kLeft + kWidth) / 2, kHeight - 10, last);
  return svg;
}

}  // namespace hearth::arena
