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
  GeneratorOptions generator = {.slots = 0};  ///< slots = 0: the KV cache grows as needed
  bool has_tokenizer = true;                  ///< false: answers contain token ids and no text
  text::ChatOptions chat =
      /// Date and variables of the chat template; TextSession sets bos and eos from the model's tokenizer.
      {};
};

/// A language model that is loaded once and answers many prompts, one at a time. Reuses the KV cache of the
/// prefix that a prompt shares with the previous one, which does not change the answer.
class TextSession {
 public:
  /// Opens the tokenizer. The model is compiled and loaded by open() or by the first ask().
  TextSession(hub::ModelFolder model, TextSessionOptions options);

  /// Tokenizes a text that the model is to continue; returns no ids if the text is empty and the model has no
  /// BOS token.
  std::vector<int32_t> text_prompt(std::string_view text) const;
  /// Renders messages, a list of {role, content}, with the chat template of the model and returns the token
  /// ids. Throws a UserError if the model has no chat template.
  std::vector<int32_t> chat_prompt(const text::Json& messages);

  /// Compiles and loads the model for a prompt of `prompt_tokens` and an answer of at most `max_tokens`. Does
  /// nothing if the model is loaded, unless options.slots is 0 and the KV cache is too small: then loads it
  /// again. Throws the UserErrors of Generator's constructor.
  const Generator& open(size_t prompt_tokens, int64_t max_tokens);
  /// Generates the answer to a prompt of at least one token; calls open() first. `emit`: see infer::answer.
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
