#pragma once

#include <string>
#include <string_view>

#include "hub/model_folder.h"
#include "tasks/language/text_source.h"

namespace hearth::infer {

struct MatchOptions {
  int64_t limit = 0;  ///< max number of questions; 0: all
  int64_t max_tokens = 256;
  int num_threads = 1;
};
struct MatchResult {
  int64_t num_questions = 0;
  int64_t num_right = 0;
};

/// Generates an answer to each question of a file of conversations or prompt-completion pairs by greedy
/// decoding. Counts the generated answers that agree with the last answer of their record (same_answer()).
/// Throws a UserError for records without a question.
MatchResult match_answers(tasks::TextOptions text, const hub::ModelFolder& model, const fs::path& file,
                          const MatchOptions& options);

/// True if two answers agree. If the expected one contains "####", as in GSM8K, compares the numbers after
/// it, without commas, dollar signs and a final dot (strict match of lm-evaluation-harness); otherwise
/// compares the full texts without surrounding white space.
bool same_answer(std::string_view found, std::string_view wanted);

}  // namespace hearth::infer
