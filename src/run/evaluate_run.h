#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "hub/model_folder.h"
#include "recipe/recipe.h"

namespace hearth::run {

/// Result of an evaluation of weights on the held-out data of a recipe.
struct WeightsEvaluation {
  fs::path weights;
  double loss = 0;
  std::vector<std::pair<std::string, double>> metrics;  ///< names and values: "accuracy", 0.9851
  std::string text;                                     ///< scores as text for users: "accuracy 98.51%"
  int64_t num_rows = 0;                                 ///< number of held-out rows
};

/// Callback that prints a note of one sentence.
using PrintNote = std::function<void(const std::string&)>;

/// Evaluates the best weights of a run, or its last weights if it has no best ones. Compiles only evaluation
/// programs and writes nothing to the run folder. `report`: path of an HTML report to write; empty: none.
/// Throws a UserError if the data does not match the run or the loss is not finite.
WeightsEvaluation evaluate_run(recipe::Recipe recipe, const fs::path& run, const PrintNote& print_note,
                               const fs::path& report = {});
/// Evaluates a language model with its adapter, if any. `recipe`: the data and settings; its model.path must
/// be the same model.
WeightsEvaluation evaluate_model(recipe::Recipe recipe, const hub::ModelFolder& model,
                                 const PrintNote& print_note);

}  // namespace hearth::run
