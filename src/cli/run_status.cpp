#include "cli/run_status.h"

#include <nlohmann/json.hpp>

#include "base/run_files.h"
#include "io/log_tail.h"

namespace hearth::cli {

Json run_status(const fs::path& run) {
  const io::LogTail tail = io::read_log_tail(run / kLogFile);
  Json evaluation = Json::object();
  for (const auto& [name, value] : tail.metrics) evaluation[name] = value;
  return {{"run", run.string()},
          {"step", tail.step},
          {"total_steps", tail.total_steps},
          {"loss", tail.losses.empty() ? 0 : tail.losses.back()},
          {"seconds", tail.elapsed_seconds},
          {"seconds_per_step", tail.seconds_per_step},
          {"age_seconds", tail.age_seconds},
          {"evaluation", evaluation},
          {"event", tail.event}};
}

}  // namespace hearth::cli
