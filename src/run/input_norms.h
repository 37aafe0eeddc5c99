#pragma once

#include "hub/prune.h"
#include "recipe/recipe.h"
#include "run/evaluate_run.h"

namespace hearth::run {

/// Computes the norms of the inputs of a language model's linear layers, for Wanda (hub/prune.h), over the
/// first `num_rows` rows of the recipe's training data. As in the original, the inputs of a layer are
/// computed with all earlier layers pruned. Holds the weights of one layer in memory at a time, and the
/// hidden states of all rows. Throws a UserError if these do not fit, and for models with experts.
hub::InputNorms input_norms(recipe::Recipe recipe, const hub::ModelFolder& model,
                            const hub::PruneOptions& options, int64_t num_rows);

}  // namespace hearth::run
