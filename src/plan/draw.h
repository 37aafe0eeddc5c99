#pragma once

#include <string>

#include "plan/problem.h"

namespace hearth::plan {

/// The arena as a picture: time to the right, offset upwards, one rectangle per buffer coloured by kind, with
/// its id and size as tooltip. SVG.
std::string draw_svg(const Problem& problem, const Solution& solution);

}  // namespace hearth::plan
