#pragma once

#include <string>
#include <vector>

#include "net/http_exchange.h"
#include "serve/completion_request.h"
#include "serve/text_service.h"

namespace hearth::serve {

/// Sends the answer to a request in the format of OpenAI's API: as server-sent events if the request streams,
/// otherwise as one JSON object at the end. Not thread-safe.
class CompletionWriter {
 public:
  /// `model`: name of the model in the answer. Starts the response if the request streams.
  CompletionWriter(net::Exchange exchange, const TextService& service, const CompletionRequest& request,
                   std::string model, size_t num_prompt_tokens);

  /// Adds a piece of the answer; the last one ends the response. Returns false if the client has left.
  bool add(const infer::GeneratedPiece& piece);
  /// Ends the response with an error.
  void fail(const std::string& message);

 private:
  text::Json token_json(int32_t id, double logprob) const;
  void add_logprobs(const infer::GeneratedPiece& piece);
  text::Json take_logprobs();
  text::Json chunk(text::Json choices) const;
  text::Json choice(std::string_view text, const char* finish_reason);
  text::Json usage() const;
  void send(const text::Json& event);

  net::Exchange exchange_;
  const TextService& service_;
  bool is_chat_, streams_, includes_usage_, has_logprobs_;
  std::string model_, id_;
  int64_t created_;
  size_t num_prompt_tokens_, num_tokens_ = 0;
  std::string text_;           ///< text that is not sent yet
  size_t num_text_bytes_ = 0;  ///< bytes of the text of all tokens so far
  /// Log-probabilities that are not sent yet: token_json() and top_logprobs of each token.
  std::vector<text::Json> tokens_;
  std::vector<size_t> offsets_;  ///< offsets of these tokens in the text
};

}  // namespace hearth::serve
