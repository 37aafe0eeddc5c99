#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "infer/generator.h"
#include "serve/json_fields.h"

namespace hearth::serve {

/// Prompt of /v1/completions: a text or token ids.
using TextPrompt = std::variant<std::string, std::vector<int32_t>>;

/// Body of a request for /v1/chat/completions or /v1/completions.
struct CompletionRequest {
  std::string model;  ///< empty: the default
  bool is_chat = false;
  text::Json messages;  ///< chat: list of {role, content}
  TextPrompt prompt;    ///< no chat
  /// Sampling, stop texts and penalties. max_tokens is 0 if the request has no limit.
  infer::AnswerOptions options;
  int64_t top_logprobs = -1;  ///< number of alternatives per token; -1: no log-probabilities
  bool streams = false;
  bool includes_usage = false;  ///< stream: a last chunk contains the token counts
};

/// Parses a request in the form of OpenAI's API. Unknown fields are ignored. Throws a UserError that names a
/// field with a wrong value, or one that asks for something that Hearth does not support. `random_seed`: seed
/// if the request has none.
CompletionRequest parse_completion(std::string_view body, bool is_chat, uint64_t random_seed);

/// Parses a list of messages: text contents are joined, so that `content` is a string as chat templates
/// expect. Throws a UserError for other content, such as images.
text::Json parse_messages(const text::Json& messages);

}  // namespace hearth::serve
