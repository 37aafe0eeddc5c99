#pragma once

#include <fmt/format.h>

#include <fstream>
#include <string>

#include "io/run_log.h"
#include "recipe/recipe_file.h"
#include "temporary_folder.h"

namespace hearth {

/// The folder of a run of `total` steps, whose log a test writes.
class WrittenRun {
 public:
  explicit WrittenRun(const std::string& recipe = "train: {steps: 100, log_every: 1}") {
    std::ofstream(path() / "config.yaml")
        << recipe::write_recipe(recipe::parse_recipe(recipe, "test", recipe::Choices{}));
  }
  const std::filesystem::path& path() const { return folder_.path(); }
  /// Opens the log as a run does that resumes after `last_step`; -1: a new run.
  io::RunLog open_log(int64_t last_step = -1) const { return {path() / "trainer_log.jsonl", last_step}; }

 private:
  TemporaryFolder folder_;
};

/// Writes the lines of steps from `first` to `last`; the loss of a step is its number.
inline void write_steps(io::RunLog& log, int64_t first, int64_t last) {
  for (int64_t step = first; step <= last; ++step)
    log.step(step, 100, static_cast<double>(step), 0.01, 1, 0.5 * static_cast<double>(step));
}

}  // namespace hearth
