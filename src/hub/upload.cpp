#include "hub/upload.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "io/html.h"
#include "net/sha.h"

namespace hearth::hub {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kSampleBytes = 512;
/// Number of files per request, as in huggingface_hub.
constexpr size_t kBatch = 256;
/// Limit of the files that are part of the commit request itself.
constexpr int64_t kMaxRegularBytes = int64_t{10} << 20;
constexpr const char* kLfsType = "application/vnd.git-lfs+json";

/// A file with the values that the hub's requests need.
struct Item {
  const UploadFile& source;
  int64_t num_bytes = 0;
  std::string sample;  ///< first bytes
  std::string sha256;
  bool is_large = false;    ///< stored in LFS
  bool is_ignored = false;  ///< by the repository's .gitignore

  std::string contents() const { return source.file.empty() ? source.contents : read_file(source.file); }
};

std::vector<Item> inspect(const std::vector<UploadFile>& files) {
  std::vector<Item> items;
  for (const UploadFile& file : files) {
    if (!net::is_safe_path(file.path))
      user_error("'{}' cannot be a file name on the hub; rename it", file.path);
    const MappedFile mapped =
        file.file.empty() || fs::file_size(file.file) == 0 ? MappedFile() : MappedFile(file.file);
    const std::span<const std::byte> bytes =
        file.file.empty() ? std::as_bytes(std::span(file.contents)) : mapped.bytes();
    net::Sha256 hash;
    hash.update(bytes);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    items.push_back({.source = file,
                     .num_bytes = std::ssize(bytes),
                     .sample = std::string(text.substr(0, kSampleBytes)),
                     .sha256 = hash.hex()});
  }
  return items;
}

class Uploader {
 public:
  Uploader(const net::HubName& name, const net::HubSettings& settings, const net::HubReporter& reporter)
      : name_(name), client_(settings), reporter_(reporter) {}

  void create(bool is_private) {
    const std::string& repo = name_.repo;
    const size_t slash = repo.find('/');
    const Json request = {{"name", repo.substr(slash + 1)},
                          {"organization", repo.substr(0, slash)},
                          {"type", name_.is_dataset ? "dataset" : "model"},
                          {"private", is_private},
                          {"visibility", is_private ? "private" : "public"}};
    const net::HttpResponse response =
        client_.send_once({.method = "POST",
                           .url = client_.settings().endpoint + "/api/repos/create",
                           .headers = {{.name = "Content-Type", .value = "application/json"}},
                           .body = request.dump()});
    if (!response.is_success() && response.status != 409) client_.refuse(name_, response);
    if (!is_private) return;
    const Json info = get_json(client_.send(name_, {.url = client_.api_url(name_, "revision/main")}));
    if (!info.contains("private") || info["private"] != true)
      user_error("{} is public on the hub, but a private repository was requested; nothing was uploaded",
                 name_.text());
  }

  /// Requests for each file whether it is stored in LFS.
  void choose_modes(std::vector<Item>& items) {
    for (size_t first = 0; first < items.size(); first += kBatch) {
      const auto batch = std::span(items).subspan(first, std::min(kBatch, items.size() - first));
      Json files = Json::array();
      for (const Item& item : batch)
        files.push_back(
            {{"path", item.source.path}, {"sample", io::base64(item.sample)}, {"size", item.num_bytes}});
      const Json answer = post("preupload", {{"files", std::move(files)}});
      for (const Json& file : list_in(answer, "files")) {
        const auto item =
            std::ranges::find(batch, text_in(file, "path"), [](const Item& one) { return one.source.path; });
        if (item == batch.end()) continue;
        item->is_large = text_in(file, "uploadMode") == "lfs" && item->num_bytes > 0;
        item->is_ignored = file.contains("shouldIgnore") && file["shouldIgnore"] == true;
      }
    }
    for (const Item& item : items)
      if (!item.is_large && item.num_bytes > kMaxRegularBytes)
        user_error(
            "the hub does not store {} ({}) as a large file; add its extension to .gitattributes of {}",
            item.source.path, human_bytes(item.num_bytes), name_.text());
  }

  void send_large_files(const std::vector<Item>& items) {
    std::map<std::string, const Item*> large;
    for (const Item& item : items)
      if (item.is_large && !item.is_ignored) large.emplace(item.sha256, &item);
    for (const auto& [hash, item] : large) total_bytes_ += item->num_bytes;
    std::vector<const Item*> rest;
    for (const auto& [hash, item] : large) rest.push_back(item);
    for (size_t first = 0; first < rest.size(); first += kBatch)
      send_batch(std::span(rest).subspan(first, std::min(kBatch, rest.size() - first)));
    if (!large.empty()) report(0, true);
  }

  /// Commits the files and returns the URL of the commit.
  std::string commit(const std::vector<Item>& items, const std::string& message) {
    std::string lines =
        Json{{"key", "header"}, {"value", {{"summary", message}, {"description", ""}}}}.dump() + "\n";
    for (const Item& item : items) {
      if (item.is_ignored) continue;
      const Json value = item.is_large ? Json{{"path", item.source.path},
                                              {"algo", "sha256"},
                                              {"oid", item.sha256},
                                              {"size", item.num_bytes}}
                                       : Json{{"content", io::base64(item.contents())},
                                              {"path", item.source.path},
                                              {"encoding", "base64"}};
      lines += Json{{"key", item.is_large ? "lfsFile" : "file"}, {"value", value}}.dump() + "\n";
    }
    // Sent once: a commit that the hub has made although the connection failed must not be repeated.
    const net::HttpResponse response =
        client_.send_once({.method = "POST",
                           .url = client_.api_url(name_, "commit/" + net::url_encoded(name_.revision)),
                           .headers = {{.name = "Content-Type", .value = "application/x-ndjson"}},
                           .body = std::move(lines),
                           .stall_timeout_seconds = 120});
    if (!response.is_success()) client_.refuse(name_, response);
    return text_in(get_json(response), "commitUrl");
  }

 private:
  Json get_json(const net::HttpResponse& response) const {
    return parse_json_object<Json>(response.body, client_.settings().endpoint);
  }

  static std::string text_in(const Json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return found != object.end() && found->is_string() ? found->get<std::string>() : "";
  }

  Json list_in(const Json& object, const char* key) const {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_array())
      user_error("{} sent no list '{}' for {}; check HF_ENDPOINT", client_.settings().endpoint, key,
                 name_.text());
    return *found;
  }

  Json post(const std::string& part, const Json& request) {
    return get_json(
        client_.send(name_, {.method = "POST",
                             .url = client_.api_url(name_, part + "/" + net::url_encoded(name_.revision)),
                             .headers = {{.name = "Content-Type", .value = "application/json"}},
                             .body = request.dump()}));
  }

  void send_batch(std::span<const Item* const> items) {
    Json objects = Json::array();
    for (const Item* item : items) objects.push_back({{"oid", item->sha256}, {"size", item->num_bytes}});
    const Json request = {{"operation", "upload"},
                          {"transfers", {"basic", "multipart"}},
                          {"objects", std::move(objects)},
                          {"hash_algo", "sha256"},
                          {"ref", {{"name", name_.revision}}}};
    const std::string prefix = name_.is_dataset ? "/datasets/" : "/";
    const Json answer = get_json(client_.send(
        name_,
        {.method = "POST",
         .url = client_.settings().endpoint + prefix + name_.repo + ".git/info/lfs/objects/batch",
         .headers = {{.name = "Accept", .value = kLfsType}, {.name = "Content-Type", .value = kLfsType}},
         .body = request.dump()}));
    for (const Json& object : list_in(answer, "objects")) {
      const auto item = std::ranges::find(items, text_in(object, "oid"), &Item::sha256);
      if (item == items.end()) continue;
      if (object.contains("error"))
        user_error("the hub does not accept {}: {}", (*item)->source.path,
                   text_in(object["error"], "message"));
      if (object.contains("actions")) send_object(**item, object["actions"]);
      done_bytes_ += (*item)->num_bytes;
    }
  }

  void send_object(const Item& item, const Json& actions) {
    const Json upload = actions.value("upload", Json::object());
    const std::string url = text_in(upload, "href");
    const Json header =
        upload.contains("header") && upload["header"].is_object() ? upload["header"] : Json::object();
    if (header.contains("chunk_size"))
      send_parts(item, url, header);
    else
      put(item, url, 0, item.num_bytes);
    if (!actions.contains("verify")) return;
    client_.send(name_, {.method = "POST",
                         .url = text_in(actions["verify"], "href"),
                         .headers = {{.name = "Content-Type", .value = "application/json"}},
                         .body = Json{{"oid", item.sha256}, {"size", item.num_bytes}}.dump()});
  }

  /// Sends a file in parts of header["chunk_size"] bytes to the URLs in header["1"], header["2"] and so on.
  void send_parts(const Item& item, const std::string& complete_url, const Json& header) {
    const Json& size = header["chunk_size"];
    const int64_t part_bytes = size.is_string()           ? std::atoll(size.get<std::string>().c_str())
                               : size.is_number_integer() ? size.get<int64_t>()
                                                          : 0;
    if (part_bytes < 1)
      user_error("the hub sent an invalid size of parts for {}; try again", item.source.path);
    Json parts = Json::array();
    for (int64_t begin = 0; begin < item.num_bytes; begin += part_bytes) {
      const std::string number = std::to_string(parts.size() + 1);
      const std::string etag =
          put(item, text_in(header, number.c_str()), begin, std::min(part_bytes, item.num_bytes - begin));
      parts.push_back({{"partNumber", parts.size() + 1}, {"etag", etag}});
    }
    client_.send(name_, {.method = "POST",
                         .url = complete_url,
                         .headers = {{.name = "Accept", .value = kLfsType},
                                     {.name = "Content-Type", .value = kLfsType}},
                         .body = Json{{"oid", item.sha256}, {"parts", parts}}.dump()});
  }

  /// Sends a part of a file and returns the ETag of the response.
  std::string put(const Item& item, const std::string& url, int64_t begin, int64_t num_bytes) {
    net::HttpRequest request{.method = "PUT", .url = url, .stall_timeout_seconds = 120};
    if (item.source.file.empty()) {
      request.body = item.source.contents.substr(static_cast<size_t>(begin), static_cast<size_t>(num_bytes));
    } else {
      request.file = item.source.file;
      request.file_offset = begin;
      request.file_bytes = num_bytes;
    }
    request.on_progress = [&](int64_t, int64_t sent) {
      report(begin + sent, false);
      return true;
    };
    const net::HttpResponse response = client_.send(name_, std::move(request));
    const std::string* const etag = net::find_header(response.headers, "ETag");
    return etag == nullptr ? "" : *etag;
  }

  /// Reports `sent` bytes of the current file, at most twice a second.
  void report(int64_t sent, bool is_last) {
    const auto now = std::chrono::steady_clock::now();
    if (!is_last && now - reported_ < std::chrono::milliseconds(500)) return;
    reported_ = now;
    const double seconds = std::chrono::duration<double>(now - started_).count();
    net::HubProgress progress{
        .done_bytes = done_bytes_ + sent, .total_bytes = total_bytes_, .is_last = is_last};
    progress.bytes_per_second = static_cast<double>(progress.done_bytes) / std::max(seconds, 0.001);
    if (progress.done_bytes > 0)
      progress.seconds_left =
          static_cast<double>(progress.total_bytes - progress.done_bytes) / progress.bytes_per_second;
    reporter_.progress(progress);
  }

  const net::HubName& name_;
  net::HubClient client_;
  const net::HubReporter& reporter_;
  int64_t done_bytes_ = 0, total_bytes_ = 0;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now(), reported_ = {};
};

}  // namespace

std::string upload_to_hub(const net::HubName& name, const std::vector<UploadFile>& files,
                          const UploadOptions& options, const net::HubSettings& settings,
                          const net::HubReporter& reporter) {
  if (settings.is_offline) user_error("HF_HUB_OFFLINE is set; unset it to upload {}", name.text());
  if (settings.token.empty())
    user_error(
        "an upload needs a token: create one with the permission to write at {}/settings/tokens and set "
        "HF_TOKEN to it",
        settings.endpoint);
  if (name.repo.find('/') == name.repo.npos || !name.path.empty())
    user_error("expected ORG/NAME, the repository to upload to, got '{}'", name.text());
  std::vector<Item> items = inspect(files);
  int64_t total = 0;
  for (const Item& item : items) total += item.num_bytes;
  reporter.note(fmt::format("uploading {} files, {}, to {}/{}", items.size(), human_bytes(total),
                            settings.endpoint, name.repo));
  Uploader uploader(name, settings, reporter);
  uploader.create(options.is_private);
  uploader.choose_modes(items);
  uploader.send_large_files(items);
  return uploader.commit(items, options.message);
}

}  // namespace hearth::hub
