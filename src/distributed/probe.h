#pragma once

#include <cstdint>
#include <string>

#include "distributed/process_group.h"

namespace hearth::distributed {

/// Lets the group add up and gather numbers that every rank can compute, small arrays and large ones, and
/// compares what came on every rank. Empty where all of it is right, else the same sentence on every rank
/// that can still be reached: what was wrong, and where. Every rank calls it; a deadline's CommError passes
/// through.
std::string find_fault(ProcessGroup& group);

/// Number `i` of what a rank brings to such a trial, and of the sum over ranks: small whole numbers, whose
/// sums are exact in bf16 too, in whatever order they are made.
float known_number(int rank, int64_t i);
float sum_of_known_numbers(int num_ranks, int64_t i);

}  // namespace hearth::distributed
