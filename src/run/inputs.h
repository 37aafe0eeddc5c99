#pragma once

#include <string>
#include <vector>

#include "recipe/recipe.h"
#include "run/state.h"

namespace hearth::run {

/// Returns fingerprints of the files that a run reads again when it resumes: training data, tokenizer, and
/// weights that are not in its checkpoints, such as an adapter's base model. Excludes run folders inside
/// them. Inputs up to 256 MiB (text: 4 GiB) are hashed in full; larger ones by names, sizes, first bytes and
/// samples.
std::vector<InputState> inputs_of(const recipe::Recipe& recipe);

/// Returns a digest of the weights in a file or model folder.
uint64_t weights_digest(const fs::path& model);

/// Returns a phrase for each key whose files differ. Keys that only one side has are ignored.
std::vector<std::string> changes_between(const std::vector<InputState>& before,
                                         const std::vector<InputState>& after);

}  // namespace hearth::run
