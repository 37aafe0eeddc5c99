#pragma once

#include <chrono>
#include <string>
#include <vector>

/// Fake HIP runtime: runs or records queued work immediately, and stores how its functions were called.
struct FakeHip {
  /// Time until which streams report unfinished work.
  std::chrono::steady_clock::time_point busy_until;
  int num_queries = 0;
  unsigned host_flags = 0;
  std::vector<unsigned> event_flags;
  std::vector<int> priorities;
  int num_waits = 0;
  /// Where hipDeviceProp_t has gcnArchName.
  size_t architecture_offset = 0;
  std::string refused;  ///< function that fails
};
FakeHip& fake_hip();
