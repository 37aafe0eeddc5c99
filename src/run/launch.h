#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "distributed/heartbeat.h"
#include "recipe/recipe.h"
#include "run/ending.h"
#include "run/reporter.h"
#include "supervise/governor.h"
#include "system/sampler.h"

namespace hearth::run {

/// A run, as every process that has a part in it knows it.
struct Job {
  recipe::Recipe recipe;
  std::vector<std::string> notes = {};  ///< sentences on values filled into the recipe, printed first
  std::string out;
  bool resume = false;
  std::string command;                  ///< shell line that started the run, for its report
  bool accepts_changed_inputs = false;  ///< see Start
  std::string dump_gradients;
  /// Everything that could keep the run from its first step is made and looked at, and its plan is printed;
  /// nothing is trained or written.
  bool only_checks = false;
  system::SamplerOptions sensors;       ///< where GPUs are read
  supervise::GovernorOptions governor;  ///< but for the limits, which are the recipe's
  /// Makes what each worker, and the supervisor, reports to; `heartbeat` shows when a report waits for a
  /// reader.
  std::function<std::unique_ptr<Reporter>(distributed::Heartbeat heartbeat)> open_reporter;
  /// Says how a worker ended, and returns the status to exit with.
  std::function<int(const Ending&)> tell;
};

/// runs/NAME, or runs/NAME-2 and so on where that is taken.
std::string default_folder(const std::string& recipe);

/// Trains, or checks, in this process or in workers that it supervises. Returns the status to exit with;
/// UserError where the recipe, its files or this machine cannot be trained with.
int launch(const Job& job);

}  // namespace hearth::run
