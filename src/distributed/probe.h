#pragma once

#include <cstdint>
#include <string>

#include "distributed/process_group.h"

namespace hearth::distributed {

/// Tests the group: all-reduces and gathers numbers that every rank can compute, small arrays and large ones,
/// and compares the results on every rank. Returns an empty string if all are right, otherwise the first
/// failure, with the same text on every rank. Collective call. Throws CommError on timeout.
std::string find_fault(ProcessGroup& group);

/// Returns element `i` of a rank's test data, and of the sum over all ranks: small integers whose sums are
/// exact in bf16 in any order.
float test_number(int rank, int64_t i);
float sum_of_test_numbers(int num_ranks, int64_t i);

}  // namespace hearth::distributed
