#pragma once

#include "hub/model_folder.h"
#include "recipe/recipe.h"
#include "run/evaluate_run.h"

namespace hearth::run {

/// A captured teacher file.
struct CapturedTeacher {
  fs::path file;
  int64_t num_entries = 0;  ///< number of tokens with an entry
  int64_t num_kept = 0;     ///< number of entries that an interrupted capture had written
  int64_t top_k = 0;
};

/// Writes the `top_k` most likely successors of each trained token of the recipe's training data under a
/// teacher to a teacher file (text/teacher_file.h). Continues an interrupted capture. `out`: file; empty: a
/// file next to the token cache. The result has the same bytes however often the capture was interrupted.
CapturedTeacher capture_teacher(recipe::Recipe recipe, const hub::ModelFolder& teacher, int64_t top_k,
                                fs::path out, const PrintNote& print_note);

}  // namespace hearth::run
