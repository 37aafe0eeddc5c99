#pragma once

#include "hub/model_folder.h"
#include "recipe/recipe.h"
#include "run/evaluate_run.h"

namespace hearth::run {

/// A captured teacher file.
struct CapturedTeacher {
  fs::path file;
  int64_t num_entries = 0;  ///< number of tokens with an entry
  int64_t num_kept = 0;     ///< number of entries that the file had before this capture
  int64_t top_k = 0;
};

/// Returns the recipe with another model: its data keys stay, its adapter and teacher are removed.
recipe::Recipe with_model(recipe::Recipe recipe, const hub::ModelFolder& model);

/// Evaluates a teacher on the recipe's training data and writes its `top_k` most likely next tokens for each
/// trained token to a teacher file (text/teacher_file.h). Continues an interrupted capture; the result has
/// the same bytes as without interruption. `out`: file; empty: a file in the folder of the token cache.
CapturedTeacher capture_teacher(recipe::Recipe recipe, const hub::ModelFolder& teacher, int64_t top_k,
                                fs::path out, const PrintNote& print_note);

}  // namespace hearth::run
