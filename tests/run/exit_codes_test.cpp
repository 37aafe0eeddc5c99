// The table of exit codes in docs/json.md, and the constants and exceptions that give them.
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <stdexcept>

#include "backend/gpu/device.h"
#include "base/error.h"
#include "base/file.h"
#include "distributed/process_group.h"
#include "paths.h"
#include "run/ending.h"
#include "supervise/supervisor.h"

namespace hearth {
namespace {

std::set<int> documented_codes() {
  const std::string text = read_file(kSourceDir + "/docs/json.md");
  const std::regex row("\n\\| ([0-9]+) \\|");
  std::set<int> codes;
  for (std::sregex_iterator found(text.begin(), text.end(), row), end; found != end; ++found)
    codes.insert(std::stoi((*found)[1]));
  return codes;
}

template <typename Error>
int status_of(const Error& error) {
  return run::exit_status_of([&]() -> int { throw error; }).status;
}

const gpu::DeviceError kGpuFault(gpu::DeviceError::Kind::fault, "reason");
const distributed::CommError kMissingRank(1, "reason");

TEST(ExitCodes, AreThoseOfTheDocument) {
  const int warnings = 1;  // doctor::exit_status
  const std::set<int> codes = {supervise::kDone,
                               warnings,
                               supervise::kMistake,
                               supervise::kInterrupted,
                               supervise::kGaveUp,
                               status_of(UserError("reason")),
                               status_of(kGpuFault),
                               status_of(kMissingRank),
                               status_of(std::runtime_error("reason"))};
  EXPECT_EQ(codes, documented_codes());
}

TEST(ExitCodes, DependOnTheError) {
  EXPECT_EQ(status_of(UserError("reason")), 2);
  EXPECT_EQ(status_of(std::bad_alloc()), 2);
  EXPECT_EQ(status_of(kMissingRank), 69);
  EXPECT_EQ(status_of(std::runtime_error("reason")), 70);
  EXPECT_EQ(status_of(InternalError("reason")), 70);
  EXPECT_EQ(status_of(kGpuFault), 71);
}

}  // namespace
}  // namespace hearth
