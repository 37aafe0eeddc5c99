#pragma once

#include <optional>

#include "engine/objective.h"
#include "models/decoder/config.h"
#include "recipe/recipe.h"

namespace hearth::tasks {

/// Options of causal language modeling: next-token prediction with cross entropy.
struct LanguageModelOptions {
  models::DecoderConfig config;
  int64_t context = 0;  ///< length in tokens of rows with row_length 0
  /// True if rows are packed with several documents, which must not attend to each other.
  bool documents = false;
  int64_t head_rows = 256;  ///< number of tokens whose logits are in memory at the same time
  recipe::Distill distill;  ///< loss with a teacher
  /// Config of a teacher that runs during training (instead of teacher_ids and teacher_logps), and the number
  /// of tokens of the tokenizer that it shares with the student.
  std::optional<models::DecoderConfig> teacher;
  int64_t teacher_vocab_size = 0;
  /// Tokens that the arrays teacher_ids and teacher_logps of a micro-batch list for each token; 0: none.
  int64_t teacher_top_k = 0;
};

/// Builds the graph of the model and of the loss of each token, which is 0 if its label is -1. Inputs:
/// {tokens, labels, positions and, with documents, starts}.
engine::Objective::Graph token_losses(nn::Builder& builder, const LanguageModelOptions& options,
                                      engine::BatchShape shape);

/// Returns the objective. A micro-batch is {tokens, labels (-1: excluded from the loss), positions and, with
/// documents, starts}, each i32 [rows * context]; a sample is a token with a label. With a teacher, training
/// also reads {teacher_ids i32, teacher_logps f32}, each [rows * context, teacher_top_k].
std::shared_ptr<const engine::Objective> language_model(LanguageModelOptions options);

/// Returns the objective that evaluates a teacher without a loss, on the same input arrays. Outputs:
/// ascending ids, i32 [rows * context, top_k], and log-probabilities, f32, of the most likely next tokens
/// among the first `vocab_size` tokens.
std::shared_ptr<const engine::Objective> teacher_model(LanguageModelOptions options, int64_t top_k,
                                                       int64_t vocab_size);

}  // namespace hearth::tasks
