#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "hub/model_folder.h"
#include "infer/generator.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace hearth::infer {

struct TextSessionOptions {
  int64_t slots = 0;  ///< max tokens of prompt and answer together; 0: as many as the questions need
  int num_threads = 1;
  bool has_tokenizer = true;    ///< false: no tokenizer is opened; answers have token ids and no text
  text::ChatOptions chat = {};  ///< date and variables of the chat template; bos and eos are the model's
};

/// A language model that is opened once and asked many times, one question at a time. A question that begins
/// like the previous one reuses the cached keys and values of their common prefix; answers stay the same.
class TextSession {
 public:
  /// Opens the tokenizer. The model is compiled and loaded for the first question.
  TextSession(hub::ModelFolder model, TextSessionOptions options);

  /// Encodes a text that the model is to continue; empty if the text is empty and the model has no BOS token.
  std::vector<int32_t> text_prompt(std::string_view text) const;
  /// Encodes messages {role, content} with the model's chat template. UserError if the model has none.
  std::vector<int32_t> chat_prompt(const text::Json& messages);

  /// Compiles and loads the model for a prompt of `prompt_tokens` and its answer. Does nothing if it is
  /// loaded, unless options.slots is 0 and the cache has too few slots: then loads it again. UserError as
  /// Generator has it.
  const Generator& open(size_t prompt_tokens, int64_t max_tokens);
  /// Answers a prompt of at least one token; opens the model first. `emit` as infer::answer has it.
  Answer ask(std::span<const int32_t> prompt, const AnswerOptions& options,
             FunctionRef<void(std::string_view)> emit);

  const hub::ModelFolder& model() const { return model_; }

 private:
  const text::ChatRenderer& renderer();

  hub::ModelFolder model_;
  TextSessionOptions options_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::optional<text::ChatRenderer> renderer_;
  std::optional<Generator> generator_;
};

}  // namespace hearth::infer
