#pragma once

#include "engine/objective.h"
#include "models/decoder/config.h"

namespace hearth::tasks {

/// The next token of every token, by cross entropy.
struct LanguageModelOptions {
  models::DecoderConfig config;
  int64_t context = 0;  ///< tokens of a row, unless the engine has lengths of its own
  /// Rows hold several documents, which do not see each other.
  bool documents = false;
  int64_t head_rows = 256;  ///< tokens whose logits exist at once
};

/// Grows the model to a loss per token, 0 where the label is -1: inputs {tokens, labels, positions and, with
/// documents, starts}.
engine::Objective::Graph token_losses(nn::Builder& builder, const LanguageModelOptions& options,
                                      engine::BatchShape shape);

/// A micro-batch is {tokens, labels (-1: not trained on), positions and, with documents, starts}, each i32
/// [rows * context]; a sample is a token that is trained on.
std::shared_ptr<const engine::Objective> language_model(LanguageModelOptions options);

}  // namespace hearth::tasks
