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
  std::string model;  ///< empty: the base model
  bool is_chat = false;
  text::Json messages;  ///< if is_chat is true: list of {role, content}
  TextPrompt prompt;    ///< if is_chat is false
  /// Sampling, stop texts and penalties. max_tokens is 0 if the request has no limit.
  infer::AnswerOptions options;
  int64_t top_logprobs = -1;    ///< number of alternatives per token; -1: no log-probabilities
  bool streams = false;         ///< true: the answer is sent as server-sent events
  bool includes_usage = false;  ///< true: a stream ends with a chunk that contains the token counts
};

/// Parses a request in the format of OpenAI's API. Unknown fields are ignored. Throws a UserError for a field
/// with an invalid value, and for a field of OpenAI's API that Hearth does not support. `random_seed`: seed
/// if the request has none.
CompletionRequest parse_completion(std::string_view body, bool is_chat, uint64_t random_seed);

/// Parses a list of messages. Joins the text parts of each message, because chat templates expect a string as
/// `content`. Throws a UserError for other content, such as images.
text::Json parse_messages(const text::Json& messages);

}  // namespace hearth::serve
