#pragma once

namespace hearth {

/// Version of the program and its library.
inline constexpr const char* kVersion = "0.1.0";

}  // namespace hearth
