#include "net/hub_client.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

namespace hearth::net {
namespace {

constexpr double kMaxWaitSeconds = 300;
constexpr size_t kMaxFiles = size_t{1} << 19;

/// Returns the value of the first of these environment variables that is set and not empty.
std::string variable(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* const value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return "";
}

bool is_true(const std::string& value) {
  const std::string text = lowered(value);
  return text == "1" || text == "on" || text == "yes" || text == "true";
}

fs::path with_home(const std::string& path) {
  if (path != "~" && !path.starts_with("~/")) return path;
  return variable({"HOME"}) + path.substr(1);
}

fs::path hub_home() {
  if (const std::string home = variable({"HF_HOME"}); !home.empty()) return with_home(home);
  if (const std::string cache = variable({"XDG_CACHE_HOME"}); !cache.empty())
    return with_home(cache) / "huggingface";
  if (variable({"HOME"}).empty())
    user_error(
        "the folder for models of the hub is unknown, because HOME is not set; set HF_HOME to a folder");
  return with_home("~/.cache/huggingface");
}

std::string find_token(const fs::path& home) {
  if (is_true(variable({"HF_HUB_DISABLE_IMPLICIT_TOKEN"}))) return "";
  if (const std::string token = variable({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}); !token.empty())
    return std::string(trimmed(token));
  const std::string path = variable({"HF_TOKEN_PATH"});
  const fs::path file = path.empty() ? home / "token" : with_home(path);
  std::error_code none;
  return fs::is_regular_file(file, none) ? std::string(trimmed(read_file(file, 1 << 16))) : "";
}

/// Returns the number after `key`, such as "t=", in a header such as `"api";r=0;t=55`; 0 if there is none.
double number_after(const std::string& header, std::string_view key) {
  const size_t at = header.find(key);
  return at == header.npos ? 0 : std::atof(header.c_str() + at + key.size());
}

std::string unquoted(std::string etag) {
  if (etag.starts_with("W/")) etag.erase(0, 2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') etag = etag.substr(1, etag.size() - 2);
  return etag;
}

/// Returns the URL of rel="next" in a Link header; empty if there is none.
std::string next_page(const HttpResponse& response) {
  const std::string* const link = find_header(response.headers, "Link");
  if (link == nullptr || link->find("rel=\"next\"") == link->npos) return "";
  const size_t begin = link->find('<'), end = link->find('>');
  return begin == link->npos || end == link->npos || end < begin ? ""
                                                                 : link->substr(begin + 1, end - begin - 1);
}

std::string web_page(const HubSettings& settings, const HubName& name) {
  return fmt::format("{}/{}{}", settings.endpoint, name.is_dataset ? "datasets/" : "", name.repo);
}

}  // namespace

HubSettings hub_settings() {
  HubSettings settings;
  const fs::path home = hub_home();
  if (const std::string endpoint = variable({"HF_ENDPOINT"}); !endpoint.empty()) settings.endpoint = endpoint;
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  if (!settings.endpoint.starts_with("http://") && !settings.endpoint.starts_with("https://"))
    user_error("HF_ENDPOINT is '{}', which is not a URL; set it to https://HOST", settings.endpoint);
  const std::string cache = variable({"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"});
  settings.cache = fs::absolute(cache.empty() ? home / "hub" : with_home(cache)).lexically_normal();
  settings.token = find_token(home);
  settings.is_offline = is_true(variable({"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}));
  return settings;
}

bool HubClient::is_temporary(int status) {
  return status == 408 || status == 429 || (status >= 500 && status <= 504 && status != 501);
}

void HubClient::wait(int attempt, const HttpResponse* response) const {
  double seconds = settings_.first_wait_seconds * std::exp2(attempt);
  if (response != nullptr) {
    const std::string* const after = find_header(response->headers, "Retry-After");
    const std::string* const limit = find_header(response->headers, "RateLimit");
    if (after != nullptr && std::atof(after->c_str()) > 0)
      seconds = std::atof(after->c_str());
    else if (limit != nullptr && number_after(*limit, "t=") > 0)
      seconds = number_after(*limit, "t=");
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(std::min(seconds, kMaxWaitSeconds)));
}

HttpResponse HubClient::send_once(HttpRequest request) {
  const std::string origin = url_origin(settings_.endpoint);
  if (!settings_.token.empty() && url_origin(request.url) == origin) {
    const bool is_local = origin.starts_with("http://127.0.0.1:") ||
                          origin.starts_with("http://localhost:") || origin.starts_with("http://[::1]:");
    if (!origin.starts_with("https://") && !is_local)
      user_error("HF_ENDPOINT {} is not encrypted, so the token is not sent; use https or unset HF_TOKEN",
                 settings_.endpoint);
    request.headers.push_back({.name = "Authorization", .value = "Bearer " + settings_.token});
  }
  return http_.send(request);
}

HttpResponse HubClient::send(const HubName& name, HttpRequest request) {
  for (int attempt = 0;; ++attempt) {
    const bool is_last = attempt + 1 == kMaxAttempts;
    try {
      HttpResponse response = send_once(request);
      if (response.is_success() || response.status == 416) return response;
      if (is_last || !is_temporary(response.status)) refuse(name, response);
      wait(attempt, &response);
    } catch (const HttpError& error) {
      if (is_last || !error.is_temporary()) throw;
      wait(attempt, nullptr);
    }
  }
}

std::string HubClient::api_url(const HubName& name, const std::string& part) const {
  return fmt::format("{}/api/{}/{}/{}", settings_.endpoint, name.type(), name.repo, part);
}

std::string HubClient::file_url(const HubName& name, const std::string& revision,
                                const std::string& path) const {
  return fmt::format("{}/resolve/{}/{}", web_page(settings_, name), url_encoded(revision),
                     url_encoded(path, true));
}

std::string HubClient::find_commit(const HubName& name) {
  const HttpResponse response = send(name, {.url = api_url(name, "revision/" + url_encoded(name.revision)),
                                            .redirects = Redirects::same_host});
  const auto info = parse_json<nlohmann::json>(response.body, nullptr, Unreadable::discarded);
  const std::string commit = info && info->is_object() && info->contains("sha") && info->at("sha").is_string()
                                 ? info->at("sha").get<std::string>()
                                 : "";
  if (!is_git_hash(commit))
    user_error("{} sent no commit for {}; check HF_ENDPOINT", settings_.endpoint, name.text());
  return commit;
}

std::vector<HubFile> HubClient::list_files(const HubName& name, const std::string& commit) {
  std::vector<HubFile> files;
  std::string url = api_url(name, fmt::format("tree/{}?recursive=true&expand=false", commit));
  while (!url.empty()) {
    const HttpResponse response = send(name, {.url = url, .redirects = Redirects::same_host});
    const std::vector<HubFile> page = parse_hub_listing(response.body, name.text());
    files.insert(files.end(), page.begin(), page.end());
    url = next_page(response);
    if (files.size() > kMaxFiles)
      user_error("{0} has more than {1} files; name a file or a folder in it: {0}/FILE", name.text(),
                 kMaxFiles);
    if (!url.empty() && url_origin(url) != url_origin(settings_.endpoint))
      user_error(
          "{} continues its list of files at another host, {}, which is not allowed; check HF_ENDPOINT",
          name.text(), url_origin(url));
  }
  return files;
}

std::pair<std::string, HubFile> HubClient::find_file(const HubName& name) {
  // For a large file, the hub redirects to another host. The redirect itself has the headers of the file.
  const HttpRequest request = {.method = "HEAD",
                               .url = file_url(name, name.revision, name.path),
                               .headers = {{.name = "Accept-Encoding", .value = "identity"}},
                               .redirects = Redirects::same_host};
  HttpResponse response;
  for (int attempt = 0;; ++attempt) {
    const bool is_last = attempt + 1 == kMaxAttempts;
    try {
      response = send_once(request);
      if (!is_temporary(response.status) || is_last) break;
      wait(attempt, &response);
    } catch (const HttpError& error) {
      if (is_last || !error.is_temporary()) throw;
      wait(attempt, nullptr);
    }
  }
  if (response.status >= 400) refuse(name, response);
  const auto header = [&](std::initializer_list<const char*> names) -> std::string {
    for (const char* one : names)
      if (const std::string* const value = find_header(response.headers, one)) return *value;
    return "";
  };
  const std::string commit = header({"X-Repo-Commit"});
  const bool is_redirect = response.status >= 300;
  const std::string size =
      is_redirect ? header({"X-Linked-Size"}) : header({"X-Linked-Size", "Content-Length"});
  HubFile file{.path = name.path,
               .num_bytes = std::atoll(size.c_str()),
               .hash = unquoted(header({"X-Linked-Etag", "ETag"}))};
  const bool is_valid = is_git_hash(commit) && (is_git_hash(file.hash) || is_sha256(file.hash)) &&
                        !size.empty() && file.num_bytes >= 0;
  if (!is_valid)
    user_error(
        "{} sent no commit, size and hash for {}, so it is not a server of the Hugging Face hub; check "
        "HF_ENDPOINT and proxies",
        settings_.endpoint, name.text());
  return {commit, file};
}

void HubClient::refuse(const HubName& name, const HttpResponse& response) const {
  const auto header = [&](const char* key) {
    const std::string* const value = find_header(response.headers, key);
    return value == nullptr ? std::string() : shortened(*value, 300);
  };
  const std::string code = header("X-Error-Code"), text = header("X-Error-Message");
  const std::string page = web_page(settings_, name);
  const bool has_token = !settings_.token.empty();
  const int status = response.status;
  const char* const advice = has_token ? "use a token of an account that has access"
                                       : "set HF_TOKEN to a token of an account that has access";
  if (code == "GatedRepo" && has_token)
    user_error(
        "{} is gated, and the account of HF_TOKEN has no access yet; open {}, accept the terms with that "
        "account, and wait if the authors review requests",
        name.text(), page);
  if (code == "GatedRepo")
    user_error(
        "{} is gated: open {}, log in, accept the terms, create a token at {}/settings/tokens, and set "
        "HF_TOKEN to it",
        name.text(), page, settings_.endpoint);
  if (status == 401 && text.find("nvalid credentials") != text.npos)
    user_error("{} does not accept the token; create one at {}/settings/tokens and set HF_TOKEN to it",
               settings_.endpoint, settings_.endpoint);
  if (code == "RevisionNotFound")
    user_error("{} has no branch, tag or commit '{}'; check the part after @", name.text(), name.revision);
  if (code == "EntryNotFound")
    user_error("{} has no file '{}'; {} lists its files", name.text(), name.path, page + "/tree/main");
  if (code == "RepoNotFound" || status == 401 || status == 404)
    user_error("{} was not found at {}; check the spelling; if it is private, {}", name.text(), page, advice);
  if (status == 403)
    user_error("{}: access denied{}; {}", name.text(), text.empty() ? "" : ": " + text, advice);
  if (status == 429)
    user_error("{} received too many requests from this address; try again in some minutes{}",
               settings_.endpoint, has_token ? "" : ", or set HF_TOKEN, which raises the limit");
  user_error("{} answered with HTTP status {} for {}{}; try again later", settings_.endpoint, status,
             name.text(), text.empty() ? "" : ": " + text);
}

}  // namespace hearth::net
