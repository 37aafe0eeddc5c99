#pragma once

#include <string>
#include <vector>

#include "recipe/recipe.h"
#include "run/state.h"

namespace hearth::run {

/// States of the files that a run reads again when it resumes: training data, tokenizer, and weights that are
/// not in its checkpoints, such as those under an adapter. Run folders inside them do not count. Hashes up to
/// 256 MiB of an input in full, up to 4 GiB of text; of more, names, sizes, heads and samples.
std::vector<InputState> inputs_of(const recipe::Recipe& recipe);

/// A phrase for each key whose files differ; keys that only one side has are left out.
std::vector<std::string> changes_between(const std::vector<InputState>& before,
                                         const std::vector<InputState>& after);

}  // namespace hearth::run
