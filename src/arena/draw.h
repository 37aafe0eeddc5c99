#pragma once

#include <string>

#include "arena/problem.h"

namespace hearth::arena {

/// Returns an SVG drawing of the arena: x axis time, y axis offset, one rectangle per buffer, colored by
/// kind, with id and size as tooltip.
std::string draw_svg(const Problem& problem, const Solution& solution);

}  // namespace hearth::arena
