#pragma once

#include <string>
#include <utility>
#include <vector>

#include "net/http_client.h"
#include "net/hub_listing.h"

namespace hearth::net {

/// Settings of the hub, from the environment variables that huggingface_hub reads.
struct HubSettings {
  std::string endpoint = "https://huggingface.co";  ///< HF_ENDPOINT
  /// HF_TOKEN, or the file HF_TOKEN_PATH or HF_HOME/token that `hf auth login` writes; empty: none.
  std::string token;
  fs::path cache;                 ///< HF_HUB_CACHE, or hub in HF_HOME, or ~/.cache/huggingface/hub
  bool is_offline = false;        ///< HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE
  double first_wait_seconds = 1;  ///< wait before the first retry; doubles with each retry
};
/// Reads the settings from the environment. Throws a UserError if HF_ENDPOINT is invalid or there is no home
/// folder.
HubSettings hub_settings();

/// Sends requests to the hub, and repeats them after temporary failures: connection errors and the statuses
/// 408, 429, 500, 502, 503 and 504. Waits as long as the header Retry-After requests. Not thread-safe.
class HubClient {
 public:
  static constexpr int kMaxAttempts = 5;

  explicit HubClient(HubSettings settings) : settings_(std::move(settings)) {}
  const HubSettings& settings() const { return settings_; }

  /// Sends a request with the token. Returns a response with status 2xx or 416. For any other status throws a
  /// UserError with the reason and `name`.
  HttpResponse send(const HubName& name, HttpRequest request);
  /// Sends a request once, with the token if the URL has the origin of the endpoint.
  HttpResponse send_once(HttpRequest request);
  /// Waits after a failed attempt: as long as the headers Retry-After or RateLimit of the response request,
  /// otherwise first_wait_seconds x 2^attempt, and at most 300 s. `attempt`: 0 for the first one. `response`:
  /// null after a connection error.
  void wait(int attempt, const HttpResponse* response) const;
  /// True if the same request may succeed after a response with this status.
  static bool is_temporary(int status);

  /// Returns the commit of the name's revision.
  std::string find_commit(const HubName& name);
  /// Returns all files of a commit.
  std::vector<HubFile> list_files(const HubName& name, const std::string& commit);
  /// Returns the commit of name.revision, and the file name.path, without listing the repository.
  std::pair<std::string, HubFile> find_file(const HubName& name);

  /// Returns the URL of a file's contents at a commit or revision.
  std::string file_url(const HubName& name, const std::string& revision, const std::string& path) const;
  /// Returns the URL of a REST endpoint of the repository: ENDPOINT/api/models/NAME/PART.
  std::string api_url(const HubName& name, const std::string& part) const;
  /// Throws a UserError that explains the status of a response.
  [[noreturn]] void refuse(const HubName& name, const HttpResponse& response) const;

 private:
  HubSettings settings_;
  HttpClient http_;
};

}  // namespace hearth::net
