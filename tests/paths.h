#pragma once

#include <string>

namespace hearth {

/// Root of the source tree, and path of the built program `hearth`. CMake writes their definitions, so that
/// no compiler command of a test contains a path of the machine and ccache can share its result between build
/// folders.
extern const std::string kSourceDir;
extern const std::string kProgram;

}  // namespace hearth
