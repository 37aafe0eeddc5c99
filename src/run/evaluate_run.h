#pragma once

#include <functional>
#include <string>

#include "hub/model_folder.h"
#include "recipe/recipe.h"

namespace hearth::run {

/// Result of evaluating weights on the data that a recipe holds out.
struct WeightsEvaluation {
  fs::path weights;
  double loss = 0;
  std::string text;      ///< scores for people: "accuracy 98.51%"
  int64_t num_rows = 0;  ///< held out
};

/// Gets notes for people, one sentence at a time.
using SayNote = std::function<void(const std::string&)>;

/// Evaluates a run's best weights (else its last). Compiles evaluation programs alone and writes nothing into
/// the run. UserError if the data does not fit the run, or the loss is not finite.
WeightsEvaluation evaluate_run(recipe::Recipe recipe, const fs::path& run, const SayNote& say);
/// Evaluates a language model, which the recipe names too, with its adapter.
WeightsEvaluation evaluate_model(const recipe::Recipe& recipe, const hub::ModelFolder& model,
                                 const SayNote& say);

}  // namespace hearth::run
