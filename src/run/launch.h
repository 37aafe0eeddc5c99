#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "distributed/heartbeat.h"
#include "run/ending.h"
#include "run/reporter.h"
#include "run/resolve.h"
#include "supervise/governor.h"
#include "system/sampler.h"

namespace hearth::run {

/// Options of a run or a check, from the command line.
struct LaunchOptions {
  tasks::Job job;                       ///< result of prepare_run()
  std::vector<std::string> notes = {};  ///< notes of prepare_run(), which are printed first
  std::string out;                      ///< run folder
  bool resume = false;
  std::string command;                  ///< shell command that started the run, for its report
  bool accepts_changed_inputs = false;  ///< true: resumes even if data or base weights have changed
  std::string dump_gradients;
  /// True to prepare everything up to the first step and print the plan, without training or writing.
  bool only_checks = false;
  system::SamplerOptions sensors;  ///< options of the GPU sensor reader
  /// Settings for thermal and power limiting; launch() sets the limits from the recipe.
  supervise::GovernorOptions governor;
  /// Opens the reporter of a worker or of the supervisor. While its output is blocked (a pager, Ctrl-S), the
  /// reporter sends `heartbeat`.
  std::function<std::unique_ptr<Reporter>(distributed::Heartbeat heartbeat)> open_reporter;
  /// Prints the error message of a worker, if any, and returns the exit status.
  std::function<int(const ExitStatus&)> print_error;
};

/// Returns the default run folder for a recipe: runs/NAME, or runs/NAME-2 and so on if that folder exists.
std::string default_folder(const std::string& recipe);

/// Throws a UserError if files cannot be written to the folder `out`, or if a new run (`resume` is false)
/// would overwrite a run or a model in it.
void check_run_folder(const fs::path& out, bool resume);
/// Prepares a run: calls check_run_folder(), opens the files of the model and completes the recipe
/// (resolve()).
Resolved prepare_run(recipe::Recipe recipe, const fs::path& out, bool resume);

/// Trains or checks a resolved job, in this process or in supervised worker processes. Returns the exit
/// status. Throws a UserError if the recipe, its files or this machine do not allow it.
int launch(const LaunchOptions& options);

}  // namespace hearth::run
