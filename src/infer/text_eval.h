#pragma once

#include <string>
#include <string_view>

#include "hub/model_folder.h"
#include "tasks/language/text_source.h"

namespace hearth::infer {

struct MatchOptions {
  int64_t limit = 0;  ///< questions, 0: all
  int64_t max_tokens = 256;
  int num_threads = 1;
};
struct MatchResult {
  int64_t num_questions = 0;
  int64_t num_right = 0;
};

/// Lets the model answer each question of a file of conversations or of prompts with completions, always by
/// the likeliest token; right is what same_answer says of the record's last answer. UserError for records
/// without a question.
MatchResult match_answers(tasks::TextOptions text, const hub::ModelFolder& model, const fs::path& file,
                          const MatchOptions& options);

/// Whether two answers agree. Where the wanted one has "####", as in GSM8K, the numbers after it, without
/// commas, currency and a dot at the end (lm-evaluation-harness' strict match); else the whole texts without
/// blanks around.
bool same_answer(std::string_view found, std::string_view wanted);

}  // namespace hearth::infer
