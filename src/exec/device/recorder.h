#pragma once

#include <cstdint>
#include <string>

#include "base/choices.h"

namespace hearth::exec {

/// Recording mode and state shared by an engine's programs.
struct Recorder {
  RecordMode when = RecordMode::automatic;
  std::string fault;  ///< reason why recording is off; empty if it is on
};

}  // namespace hearth::exec
