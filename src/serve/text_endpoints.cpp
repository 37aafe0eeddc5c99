#include "serve/text_endpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <random>

#include "base/error.h"
#include "serve/completion_request.h"
#include "serve/completion_writer.h"

namespace hearth::serve {
namespace {

using text::Json;

void reply_json(const net::Exchange& exchange, const Json& json) { exchange->reply({.body = dumped(json)}); }

/// Returns the adapter of a model name; empty for the base model. An empty name selects the base model.
std::string adapter_of(const ModelNames& names, const std::string& model) {
  if (model.empty() || model == names.base) return "";
  if (std::ranges::find(names.adapters, model) == names.adapters.end())
    throw net::HttpFault{404, fmt::format("there is no model '{}'; GET /v1/models lists the names", model)};
  return model;
}

void complete(const net::Exchange& exchange, TextService& service, const ModelNames& names, bool is_chat) {
  const CompletionRequest request =
      parse_completion(exchange->request().body, is_chat, std::random_device()());
  TextJob job;
  job.request.adapter = adapter_of(names, request.model);
  job.request.options = request.options;
  job.request.top_logprobs = request.top_logprobs;
  if (is_chat) {
    job.request.prompt = service.chat_prompt(request.messages);
  } else if (const auto* text = std::get_if<std::string>(&request.prompt)) {
    job.request.prompt = service.text_prompt(*text);
  } else {
    job.request.prompt = std::get<std::vector<int32_t>>(request.prompt);
  }
  const std::string model = request.model.empty() ? names.base : request.model;
  // The response starts only with the first piece, so that submit() can still report a full queue by a status
  // code.
  const auto writer = std::make_shared<std::optional<CompletionWriter>>();
  const auto open = [=, &service, num_prompt_tokens = job.request.prompt.size()]() -> CompletionWriter& {
    if (!*writer) writer->emplace(exchange, service, request, model, num_prompt_tokens);
    return **writer;
  };
  job.emit = [open](const infer::GeneratedPiece& piece) { return open().add(piece); };
  job.on_fault = [open](const std::string& message) { open().fail(message); };
  job.is_wanted = [exchange] { return exchange->is_open(); };
  try {
    service.submit(std::move(job));
  } catch (const QueueIsFull&) {
    throw net::HttpFault{429, "the queue of requests is full; try again later"};
  }
}

void tokenize(const net::Exchange& exchange, const TextService& service) {
  const Json body = parse_body(exchange->request().body);
  const std::string content = string_field(body, "content", "");
  std::vector<int32_t> ids;
  if (bool_field(body, "add_special", false)) ids = service.tokenizer().special().prefix;
  const bool parses = bool_field(body, "parse_special", true);
  service.tokenizer().encode(content, parses ? text::SpecialTokens::parsed : text::SpecialTokens::as_text,
                             ids);
  reply_json(exchange, {{"tokens", ids}});
}

void detokenize(const net::Exchange& exchange, const TextService& service) {
  const Json body = parse_body(exchange->request().body);
  const Json* tokens = field_of(body, "tokens");
  if (tokens == nullptr) user_error("tokens: expected a list of token ids");
  reply_json(exchange, {{"content", service.tokenizer().decode(parse_ids(*tokens, "tokens"))}});
}

void apply_template(const net::Exchange& exchange, const TextService& service) {
  const Json body = parse_body(exchange->request().body);
  const Json* messages = field_of(body, "messages");
  reply_json(exchange,
             {{"prompt", service.render_chat(parse_messages(messages == nullptr ? Json() : *messages))}});
}

/// Formats the counters of the service as metrics for Prometheus.
std::string metrics_of(const TextService& service) {
  const infer::BatchCounters counters = service.counters();
  std::string text;
  const auto add = [&](const char* name, const char* type, const char* help, int64_t value) {
    text += fmt::format("# HELP hearth_serve_{0} {1}\n# TYPE hearth_serve_{0} {2}\nhearth_serve_{0} {3}\n",
                        name, help, type, value);
  };
  add("requests_total", "counter", "Requests that were started", counters.num_requests);
  add("finished_requests_total", "counter", "Requests that were answered", counters.num_finished);
  add("cancelled_requests_total", "counter", "Requests that were cancelled because the client left",
      counters.num_cancelled);
  add("prompt_tokens_total", "counter", "Prompt tokens", counters.num_prompt_tokens);
  add("reused_prompt_tokens_total", "counter", "Prompt tokens that were found in a KV cache",
      counters.num_reused_tokens);
  add("generated_tokens_total", "counter", "Generated tokens", counters.num_generated_tokens);
  add("decode_steps_total", "counter", "Decode steps", counters.num_decode_steps);
  add("active_requests", "gauge", "Requests that are being answered", counters.num_active);
  add("waiting_requests", "gauge", "Requests that wait for a slot", counters.num_waiting);
  return text;
}

}  // namespace

void add_common_endpoints(net::HttpServer& server, const std::vector<std::string>& models) {
  const auto health = [](const net::Exchange& exchange) { reply_json(exchange, {{"status", "ok"}}); };
  server.on("GET", "/health", health, net::HttpServer::Access::open);
  Json list = Json::array();
  for (const std::string& name : models)
    list.push_back(
        {{"id", name}, {"object", "model"}, {"created", std::time(nullptr)}, {"owned_by", "hearth"}});
  server.on("GET", "/v1/models", [list](const net::Exchange& exchange) {
    reply_json(exchange, {{"object", "list"}, {"data", list}});
  });
}

void add_text_endpoints(net::HttpServer& server, TextService& service, const ModelNames& names) {
  std::vector<std::string> models = {names.base};
  models.insert(models.end(), names.adapters.begin(), names.adapters.end());
  add_common_endpoints(server, models);
  for (const bool is_chat : {true, false}) {
    server.on("POST", is_chat ? "/v1/chat/completions" : "/v1/completions",
              [&service, names, is_chat](const net::Exchange& exchange) {
                complete(exchange, service, names, is_chat);
              });
  }
  server.on("POST", "/tokenize", [&](const net::Exchange& exchange) { tokenize(exchange, service); });
  server.on("POST", "/detokenize", [&](const net::Exchange& exchange) { detokenize(exchange, service); });
  server.on("POST", "/apply-template",
            [&](const net::Exchange& exchange) { apply_template(exchange, service); });
  server.on("GET", "/props", [&](const net::Exchange& exchange) {
    reply_json(exchange,
               {{"has_chat_template", service.has_chat_template()}, {"n_ctx", service.tokens_per_slot()}});
  });
  server.on("GET", "/metrics", [&](const net::Exchange& exchange) {
    exchange->reply({.type = "text/plain; version=0.0.4", .body = metrics_of(service)});
  });
}

}  // namespace hearth::serve
