#include "serve/completion_writer.h"

#include <fmt/format.h>

#include <ctime>

#include "base/utf8.h"
#include "net/http_server.h"

namespace hearth::serve {
namespace {

using text::Json;

/// Returns the text with bytes that are not UTF-8 replaced. Applied to keys before they are added to an
/// object, so that dumped(), which replaces such bytes too, writes no key twice.
std::string valid_utf8(std::string_view text) {
  std::string valid;
  for_each_run(
      text, [&](std::string_view run) { valid += run; },
      [&](std::string_view) { append_utf8(valid, 0xFFFD); });
  return valid;
}

const char* name_of(infer::FinishReason reason) {
  return reason == infer::FinishReason::stop ? "stop" : "length";
}

}  // namespace

CompletionWriter::CompletionWriter(net::Exchange exchange, const TextService& service,
                                   const CompletionRequest& request, std::string model,
                                   size_t num_prompt_tokens)
    : exchange_(std::move(exchange)),
      service_(service),
      is_chat_(request.is_chat),
      streams_(request.streams),
      includes_usage_(request.includes_usage),
      has_logprobs_(request.top_logprobs >= 0),
      model_(std::move(model)),
      id_((is_chat_ ? "chatcmpl-" : "cmpl-") + net::random_token()),
      created_(std::time(nullptr)),
      num_prompt_tokens_(num_prompt_tokens) {
  if (!streams_) return;
  exchange_->begin_stream();
  const Json role = {
      {"index", 0}, {"delta", {{"role", "assistant"}, {"content", ""}}}, {"finish_reason", nullptr}};
  if (is_chat_) send(chunk(Json::array({role})));
}

void CompletionWriter::send(const Json& event) { exchange_->write("data: " + dumped(event) + "\n\n"); }

Json CompletionWriter::token_json(int32_t id, double logprob) const {
  const std::string text = service_.token_text(id);
  Json bytes = Json::array();
  for (const char byte : text) bytes.push_back(static_cast<unsigned char>(byte));
  return {{"token", text}, {"logprob", logprob}, {"bytes", bytes}};
}

void CompletionWriter::add_logprobs(const infer::GeneratedPiece& piece) {
  Json token = token_json(*piece.id, piece.logprob);
  Json top = Json::array();
  for (const infer::TokenLogprob& other : piece.top) top.push_back(token_json(other.id, other.logprob));
  token["top_logprobs"] = top;
  offsets_.push_back(num_text_bytes_);
  num_text_bytes_ += token["bytes"].size();
  tokens_.push_back(std::move(token));
}

/// Returns the field "logprobs" of a choice for the tokens that are not sent yet, and clears them.
Json CompletionWriter::take_logprobs() {
  if (tokens_.empty()) return nullptr;
  const std::vector<Json> tokens = std::exchange(tokens_, {});
  const std::vector<size_t> offsets = std::exchange(offsets_, {});
  if (is_chat_) return {{"content", tokens}, {"refusal", nullptr}};
  Json texts = Json::array(), logprobs = Json::array(), tops = Json::array();
  for (const Json& token : tokens) {
    texts.push_back(token["token"]);
    logprobs.push_back(token["logprob"]);
    Json top = Json::object();
    for (const Json& other : token["top_logprobs"])
      top[valid_utf8(other["token"].get<std::string>())] = other["logprob"];
    tops.push_back(std::move(top));
  }
  return {{"tokens", texts}, {"token_logprobs", logprobs}, {"top_logprobs", tops}, {"text_offset", offsets}};
}

/// Returns an object of the answer: a chunk of a stream, or the full answer.
Json CompletionWriter::chunk(Json choices) const {
  const char* object = !is_chat_ ? "text_completion" : streams_ ? "chat.completion.chunk" : "chat.completion";
  return {{"id", id_},
          {"object", object},
          {"created", created_},
          {"model", model_},
          {"system_fingerprint", "hearth"},
          {"choices", std::move(choices)}};
}

Json CompletionWriter::choice(std::string_view text, const char* finish_reason) {
  Json choice_json = {{"index", 0}};
  if (!is_chat_) {
    choice_json["text"] = text;
  } else if (!streams_) {
    choice_json["message"] = {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}};
  } else {
    choice_json["delta"] = text.empty() ? Json::object() : Json{{"content", text}};
  }
  choice_json["logprobs"] = take_logprobs();
  choice_json["finish_reason"] = finish_reason == nullptr ? Json() : Json(finish_reason);
  return choice_json;
}

Json CompletionWriter::usage() const {
  return {{"prompt_tokens", num_prompt_tokens_},
          {"completion_tokens", num_tokens_},
          {"total_tokens", num_prompt_tokens_ + num_tokens_}};
}

bool CompletionWriter::add(const infer::GeneratedPiece& piece) {
  text_ += piece.text;
  if (piece.id) {
    ++num_tokens_;
    if (has_logprobs_) add_logprobs(piece);
  }
  if (streams_ && (!text_.empty() || !tokens_.empty())) {
    send(chunk(Json::array({choice(text_, nullptr)})));
    text_.clear();
  }
  if (!piece.finish) return exchange_->is_open();
  const Json last = choice(text_, name_of(*piece.finish));
  Json answer = chunk(Json::array({last}));
  if (!streams_) {
    answer["usage"] = usage();
    exchange_->reply({.body = dumped(answer)});
    return true;
  }
  send(answer);
  if (includes_usage_) {
    Json counts = chunk(Json::array());
    counts["usage"] = usage();
    send(counts);
  }
  exchange_->write("data: [DONE]\n\n");
  exchange_->end_stream();
  return true;
}

void CompletionWriter::fail(const std::string& message) {
  net::HttpReply reply = net::error_reply(500, message);
  if (!streams_) return exchange_->reply(std::move(reply));
  exchange_->write("data: " + reply.body + "\n\n");
  exchange_->end_stream();
}

}  // namespace hearth::serve
