#pragma once

#include <string>

#include "recipe/recipe.h"

namespace hearth::cli {

/// A run, as every process that has a part in it knows it.
struct Job {
  recipe::Recipe recipe;
  std::string out;
  bool resume = false;
  std::string dump_gradients;
  /// Everything that could keep the run from its first step is made and looked at, and its plan is printed;
  /// nothing is trained or written.
  bool only_checks = false;
};

/// runs/NAME, or runs/NAME-2 and so on where that is taken.
std::string default_folder(const std::string& recipe);

/// Trains, or checks, in this process or in workers that it supervises. Returns the status to exit with;
/// UserError where the recipe, its files or this machine cannot be trained with.
int run_job(const Job& job);

}  // namespace hearth::cli
