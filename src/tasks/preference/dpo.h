#pragma once

#include "recipe/recipe.h"
#include "tasks/language/language_model.h"

namespace hearth::tasks {

/// Returns the objective of direct preference optimization (DPO; Rafailov et al. 2023, arXiv 2305.18290). A
/// row is a pair: the tokens of the chosen answer, then those of the rejected one. Inputs are {tokens, labels
/// (-1: not part of the answer), positions}, each i32 [2 * rows * context], and {reference} f32 [2 * rows],
/// the answers' log-probabilities under the reference model. A sample is a pair. Output 0 of an evaluation is
/// the log-probabilities of the answers, f32 [2 * rows].
std::shared_ptr<const engine::Objective> dpo(LanguageModelOptions model, recipe::Dpo options);

}  // namespace hearth::tasks
