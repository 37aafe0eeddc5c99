#pragma once

#include "train/language_model.h"

namespace hearth::train {

/// Direct preference optimisation (Rafailov et al. 2023, arXiv 2305.18290).
struct DpoOptions {
  double beta = 0.1;           ///< how dear it is to leave the reference
  double label_smoothing = 0;  ///< the share of pairs that are taken to be the wrong way round
};

/// A row of a micro-batch is a pair: the tokens of the chosen answer, then those of the rejected one. Inputs
/// are {tokens, labels (-1: no part of the answer), positions}, each i32 [2 * rows * context], and
/// {reference} f32 [2 * rows], the answers' log-probabilities under the starting model. A sample is a pair;
/// output 0 of an evaluation is the log-probabilities.
std::shared_ptr<const Objective> dpo(LanguageModelOptions model, DpoOptions options);

}  // namespace hearth::train
