#pragma once

#include "engine/objective.h"
#include "models/decoder/config.h"

namespace hearth::tasks {

/// Options of causal language modeling: next-token prediction with cross entropy.
struct LanguageModelOptions {
  models::DecoderConfig config;
  int64_t context = 0;  ///< length in tokens of rows with row_length 0
  /// True if rows are packed with several documents, which must not attend to each other.
  bool documents = false;
  int64_t head_rows = 256;  ///< number of tokens whose logits are in memory at the same time
};

/// Builds the graph of the model and of the loss of each token, which is 0 if its label is -1. Inputs:
/// {tokens, labels, positions and, with documents, starts}.
engine::Objective::Graph token_losses(nn::Builder& builder, const LanguageModelOptions& options,
                                      engine::BatchShape shape);

/// Returns the objective. A micro-batch is {tokens, labels (-1: excluded from the loss), positions and, with
/// documents, starts}, each i32 [rows * context]; a sample is a token with a label.
std::shared_ptr<const engine::Objective> language_model(LanguageModelOptions options);

}  // namespace hearth::tasks
