#pragma once

#include <string>
#include <vector>

#include "net/http_server.h"
#include "serve/text_service.h"

namespace hearth::serve {

/// Values of the request field `model`: names of the base model and of its adapters.
struct ModelNames {
  std::string base;
  std::vector<std::string> adapters;
};

/// Adds the endpoints of a language model: OpenAI's /v1/models, /v1/chat/completions and /v1/completions;
/// /health, /metrics, /props, /tokenize, /detokenize and /apply-template. `service` must outlive the server.
void add_text_endpoints(net::HttpServer& server, TextService& service, const ModelNames& names);

/// Adds /health and /v1/models.
void add_common_endpoints(net::HttpServer& server, const std::vector<std::string>& models);

}  // namespace hearth::serve
