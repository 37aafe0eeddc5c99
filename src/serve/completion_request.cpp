#include "serve/completion_request.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace hearth::serve {
namespace {

using text::Json;

constexpr int64_t kMaxTokens = int64_t{1} << 24;
constexpr int64_t kMaxTopLogprobs = 20;
constexpr double kMaxBias = 100;
constexpr size_t kMaxStops = 16, kMaxStopBytes = 256, kMaxBiases = 1024;

/// Throws a UserError for an unsupported field that must not be ignored, because it would change the answer.
void refuse_unsupported(const Json& body) {
  for (const char* name : {"n", "best_of"}) {
    if (integer_field(body, name, 1, 1, kMaxTokens) != 1)
      user_error("{}: only the value 1 is supported; send several requests instead", name);
  }
  for (const char* name : {"tools", "functions", "suffix", "audio", "prediction", "grammar", "json_schema"}) {
    const Json* value = field_of(body, name);
    if (value != nullptr && !value->empty()) user_error("{}: not supported; remove it", name);
  }
  if (bool_field(body, "echo", false)) user_error("echo: not supported; remove it");
  if (const Json* format = field_of(body, "response_format"); format != nullptr) {
    const std::string type = format->is_object() ? string_field(*format, "type", "") : "";
    if (type != "text")
      user_error("response_format: only {{\"type\": \"text\"}} is supported, got '{}'", type);
  }
}

std::vector<std::string> parse_stops(const Json& body) {
  const Json* stop = field_of(body, "stop");
  if (stop == nullptr) return {};
  const Json list = stop->is_array() ? *stop : Json::array({*stop});
  if (list.size() > kMaxStops)
    user_error("stop: the request has {1} strings, but at most {0} are allowed; remove some", kMaxStops,
               list.size());
  std::vector<std::string> stops;
  for (const Json& text : list) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty() ||
        text.get_ref<const std::string&>().size() > kMaxStopBytes)
      user_error("stop: expected strings of 1 to {} bytes", kMaxStopBytes);
    stops.push_back(text.get<std::string>());
  }
  return stops;
}

std::vector<std::pair<int32_t, double>> parse_biases(const Json& body) {
  const Json* biases = field_of(body, "logit_bias");
  if (biases == nullptr) return {};
  if (!biases->is_object() || biases->size() > kMaxBiases)
    user_error("logit_bias: expected an object of at most {} token ids and numbers", kMaxBiases);
  std::vector<std::pair<int32_t, double>> parsed;
  for (const auto& [key, value] : biases->items()) {
    int32_t id = 0;
    const auto [end, fault] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (fault != std::errc() || end != key.data() + key.size() || id < 0)
      user_error("logit_bias: expected token ids as keys, got '{}'", key.substr(0, 40));
    if (!value.is_number() || !(std::abs(value.get<double>()) <= kMaxBias))
      user_error("logit_bias: expected numbers from -{0} to {0} as values", kMaxBias);
    parsed.emplace_back(id, value.get<double>());
  }
  return parsed;
}

infer::SamplerOptions parse_sampler(const Json& body, uint64_t random_seed) {
  infer::SamplerOptions sampler;
  sampler.temperature = number_field(body, "temperature", 1, 0, 100);
  sampler.top_p = number_field(body, "top_p", 1, 0, 1);
  sampler.min_p = number_field(body, "min_p", 0, 0, 1);
  sampler.top_k = std::max<int64_t>(0, integer_field(body, "top_k", 0, -1, kMaxTokens));
  sampler.presence_penalty = number_field(body, "presence_penalty", 0, -2, 2);
  sampler.frequency_penalty = number_field(body, "frequency_penalty", 0, -2, 2);
  sampler.repetition_penalty = number_field(body, "repetition_penalty", 1, 0.01, 100);
  sampler.logit_bias = parse_biases(body);
  constexpr auto kMaxSeed = std::numeric_limits<int64_t>::max();
  sampler.seed = field_of(body, "seed") == nullptr
                     ? random_seed
                     : static_cast<uint64_t>(integer_field(body, "seed", 0, -kMaxSeed, kMaxSeed));
  return sampler;
}

int64_t parse_top_logprobs(const Json& body, bool is_chat) {
  if (!is_chat) return integer_field(body, "logprobs", -1, 0, kMaxTopLogprobs);
  const int64_t count = integer_field(body, "top_logprobs", 0, 0, kMaxTopLogprobs);
  return bool_field(body, "logprobs", false) ? count : -1;
}

TextPrompt parse_prompt(const Json& body) {
  const Json* prompt = field_of(body, "prompt");
  if (prompt == nullptr) user_error("prompt: expected a string or a list of token ids");
  if (prompt->is_array() && prompt->size() == 1 && !prompt->front().is_number()) prompt = &prompt->front();
  if (prompt->is_string()) return prompt->get<std::string>();
  if (prompt->is_array() && !prompt->empty() && !prompt->front().is_number())
    user_error("prompt: the request has {} prompts, but only one is supported; send several requests instead",
               prompt->size());
  return parse_ids(*prompt, "prompt");
}

/// Returns the text of a message's content: a string, or a list of parts {type: "text", text}.
std::string content_text(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  if (content.is_null()) return "";
  if (!content.is_array()) user_error("messages: expected content to be a string or a list of text parts");
  std::string text;
  for (const Json& part : content) {
    const std::string type = part.is_object() ? string_field(part, "type", "") : "";
    if (type != "text")
      user_error("messages: the type '{}' of a content part is not supported; send only parts of type text",
                 type);
    text += string_field(part, "text", "");
  }
  return text;
}

}  // namespace

Json parse_messages(const Json& messages) {
  if (!messages.is_array() || messages.empty())
    user_error("messages: expected a list with at least one message");
  Json parsed = Json::array();
  for (const Json& message : messages) {
    if (!message.is_object()) user_error("messages: expected objects {{role, content}}");
    const std::string role = string_field(message, "role", "");
    if (role.empty()) user_error("messages: a message has no role; set it to system, user or assistant");
    if (const Json* calls = field_of(message, "tool_calls"); calls != nullptr && !calls->empty())
      user_error("messages: tool_calls are not supported; remove them");
    const Json* content = field_of(message, "content");
    parsed.push_back({{"role", role}, {"content", content == nullptr ? "" : content_text(*content)}});
  }
  return parsed;
}

CompletionRequest parse_completion(std::string_view body, bool is_chat, uint64_t random_seed) {
  const Json json = parse_body(body);
  refuse_unsupported(json);
  CompletionRequest request{.model = string_field(json, "model", ""), .is_chat = is_chat};
  if (is_chat) {
    const Json* messages = field_of(json, "messages");
    request.messages = parse_messages(messages == nullptr ? Json() : *messages);
  } else {
    request.prompt = parse_prompt(json);
  }
  request.options.sampler = parse_sampler(json, random_seed);
  request.options.stop = parse_stops(json);
  const int64_t max_tokens = integer_field(json, "max_tokens", 0, 1, kMaxTokens);
  request.options.max_tokens = integer_field(json, "max_completion_tokens", max_tokens, 1, kMaxTokens);
  request.top_logprobs = parse_top_logprobs(json, is_chat);
  request.streams = bool_field(json, "stream", false);
  if (const Json* options = field_of(json, "stream_options"); options != nullptr) {
    if (!options->is_object()) user_error("stream_options: expected an object");
    request.includes_usage = bool_field(*options, "include_usage", false);
  }
  return request;
}

}  // namespace hearth::serve
