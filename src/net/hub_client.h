#pragma once

#include <string>
#include <utility>
#include <vector>

#include "net/http_client.h"
#include "net/hub_listing.h"

namespace hearth::net {

/// Settings of the hub, from the variables that huggingface_hub reads.
struct HubSettings {
  std::string endpoint = "https://huggingface.co";  ///< HF_ENDPOINT
  /// HF_TOKEN, or the file HF_TOKEN_PATH or HF_HOME/token that `hf auth login` writes; empty: none.
  std::string token;
  fs::path cache;                 ///< HF_HUB_CACHE, or hub in HF_HOME, or ~/.cache/huggingface/hub
  bool is_offline = false;        ///< HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE
  double first_wait_seconds = 1;  ///< wait before the first retry, doubled for each further one
};
/// Reads the settings from the environment. UserError if HF_ENDPOINT is invalid or there is no home folder.
HubSettings hub_settings();

/// Requests to the hub, which are repeated after temporary failures: connection errors and the statuses 408,
/// 429 and 500 to 504, with the wait that Retry-After asks for. Not for use by several threads at once.
class HubClient {
 public:
  static constexpr int kMaxAttempts = 5;

  explicit HubClient(HubSettings settings) : settings_(std::move(settings)) {}
  const HubSettings& settings() const { return settings_; }

  /// Sends a request with the token. Returns a response of status 2xx or 416; UserError, which explains the
  /// reason and names `name`, for any other.
  HttpResponse send(const HubName& name, HttpRequest request);
  /// Sends a request once; adds the token if the URL is that of the endpoint.
  HttpResponse send_once(HttpRequest request);
  /// Waits before attempt `attempt` + 1, as the response asks for; null: after a connection error.
  void wait(int attempt, const HttpResponse* response) const;
  /// Returns true if a response of this status may be followed by success.
  static bool is_temporary(int status);

  /// Returns the commit of the name's revision.
  std::string find_commit(const HubName& name);
  /// Returns all files of a commit.
  std::vector<HubFile> list_files(const HubName& name, const std::string& commit);
  /// Returns the commit and size of one file, without listing the repository.
  std::pair<std::string, HubFile> find_file(const HubName& name);

  /// Returns the URL of a file's contents at a commit or revision.
  std::string file_url(const HubName& name, const std::string& revision, const std::string& path) const;
  /// Returns the URL of an interface of the repository: ENDPOINT/api/models/NAME/PART.
  std::string api_url(const HubName& name, const std::string& part) const;
  /// Throws a UserError that explains the status of a response.
  [[noreturn]] void refuse(const HubName& name, const HttpResponse& response) const;

 private:
  HubSettings settings_;
  HttpClient http_;
};

}  // namespace hearth::net
