#pragma once

namespace hearth::doctor {

/// What known_bad.yaml holds; the build makes it of the file.
extern const char* const kKnownBad;

}  // namespace hearth::doctor
