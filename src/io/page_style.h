#pragma once

#include <string_view>

namespace hearth::io {

/// Returns the CSS that Hearth's HTML pages share: colors for light and dark, fonts, and the look of facts,
/// panels, charts, tables, legends and figures. Colors are variables: --bg, --panel, --ink, --soft, --line,
/// --accent, --good, --bad, and --c0 to --c9 for curves. Fonts are --sans and --mono. Pages append their
/// rules.
std::string_view page_style();

/// Number of curve colors (--c0, --c1 ...).
inline constexpr int kNumCurveColors = 10;

}  // namespace hearth::io
