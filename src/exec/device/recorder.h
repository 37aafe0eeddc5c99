#pragma once

#include <cstdint>
#include <string>

namespace hearth::exec {

/// Whether work that a GPU is given again is recorded, and then queued by one call.
enum class Record : uint8_t {
  automatic,  ///< where the first replay comes to the same bits as the work queued anew
  always,
  never,
};

/// What the programs of an engine share of it.
struct Recorder {
  Record when = Record::automatic;
  std::string fault;  ///< why recordings are left off; empty: they are not
};

}  // namespace hearth::exec
