#pragma once

#include "recipe/recipe.h"
#include "tasks/language/language_model.h"

namespace hearth::tasks {

/// A row of a micro-batch is a pair: the tokens of the chosen answer, then those of the rejected one. Inputs
/// are {tokens, labels (-1: no part of the answer), positions}, each i32 [2 * rows * context], and
/// {reference} f32 [2 * rows], the answers' log-probabilities under the starting model. A sample is a pair;
/// output 0 of an evaluation is the log-probabilities.
std::shared_ptr<const engine::Objective> dpo(LanguageModelOptions model, recipe::Dpo options);

}  // namespace hearth::tasks
