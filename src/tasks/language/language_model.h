#pragma once

#include "engine/objective.h"
#include "models/decoder/config.h"

namespace hearth::tasks {

/// Causal language modeling: next-token prediction with cross entropy.
struct LanguageModelOptions {
  models::DecoderConfig config;
  int64_t context = 0;  ///< tokens of rows with row_length 0
  /// True if rows are packed with several documents, which must not attend to each other.
  bool documents = false;
  int64_t head_rows = 256;  ///< tokens whose logits are in memory at a time
};

/// Builds the model and the loss of each token, 0 where the label is -1. Inputs: {tokens, labels, positions
/// and, with documents, starts}.
engine::Objective::Graph token_losses(nn::Builder& builder, const LanguageModelOptions& options,
                                      engine::BatchShape shape);

/// Returns the objective. A micro-batch is {tokens, labels (-1: excluded from the loss), positions and, with
/// documents, starts}, each i32 [rows * context]; a sample is a token with a label.
std::shared_ptr<const engine::Objective> language_model(LanguageModelOptions options);

}  // namespace hearth::tasks
