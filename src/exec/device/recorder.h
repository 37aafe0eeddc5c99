#pragma once

#include <cstdint>
#include <string>

#include "base/choices.h"

namespace hearth::exec {

/// What the programs of an engine share of it.
struct Recorder {
  RecordMode when = RecordMode::automatic;
  std::string fault;  ///< why recordings are left off; empty: they are not
};

}  // namespace hearth::exec
