#pragma once

#include <string>

#include "arena/problem.h"

namespace hearth::arena {

/// The arena as a drawing: time to the right, offset upwards, one rectangle per buffer colored by kind, with
/// its id and size as tooltip. SVG.
std::string draw_svg(const Problem& problem, const Solution& solution);

}  // namespace hearth::arena
