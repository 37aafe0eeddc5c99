#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>

#include "base/asan.h"

namespace hearth {

/// Lets this process take `bytes` more of address space, and a minute of processor time: ten times what a
/// linear reader takes of either. AddressSanitizer and ThreadSanitizer reserve terabytes, so under them only
/// the time is limited.
inline void limit_memory([[maybe_unused]] int64_t bytes) {
  const rlimit seconds{60, 60};
  setrlimit(RLIMIT_CPU, &seconds);
#if !defined(HEARTH_ASAN) && !defined(__SANITIZE_THREAD__)
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const auto most = static_cast<rlim_t>(pages * 4096 + bytes);
  const rlimit memory{most, most};
  setrlimit(RLIMIT_AS, &memory);
#endif
}

}  // namespace hearth

/// Runs `statement` in a child that may take `bytes` more; it has to come to its end without a failure.
#define EXPECT_WITHIN(bytes, statement)                    \
  EXPECT_EXIT(                                             \
      {                                                    \
        ::hearth::limit_memory(bytes);                     \
        statement;                                         \
        std::_Exit(::testing::Test::HasFailure() ? 1 : 0); \
      },                                                   \
      ::testing::ExitedWithCode(0), "")
