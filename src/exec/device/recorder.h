#pragma once

#include <cstdint>
#include <string>

#include "base/choices.h"

namespace hearth::exec {

/// Whether an engine's programs are recorded and replayed on the GPU.
struct Recorder {
  RecordMode when = RecordMode::automatic;
  std::string fault;  ///< reason why recording was turned off; empty if it was not
};

}  // namespace hearth::exec
