#pragma once

#include <string>

#include "comm/transport.h"

namespace hearth::comm {

/// Lets the group add up and gather numbers that every rank can compute, small arrays and large ones, and
/// compares what came on every rank. Empty where all of it is right, else the same sentence on every rank
/// that can still be reached: what was wrong, and where. Every rank calls it; a deadline's CommError passes
/// through.
std::string find_fault(Transport& transport);

}  // namespace hearth::comm
