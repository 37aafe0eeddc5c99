#include "net/hub_download.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "net/hub_cache.h"
#include "net/sha.h"

namespace hearth::net {
namespace {

constexpr size_t kMaxThreads = 4;
/// Number of bytes that a download leaves free on the disk.
constexpr int64_t kReserveBytes = int64_t{64} << 20;

/// Hash of a file's contents as the hub computes it: SHA-256 for large files, git's SHA-1 of a blob for
/// others.
class ContentHash {
 public:
  explicit ContentHash(const HubFile& file) : is_large_(is_sha256(file.hash)) {
    const std::string head = fmt::format("blob {}", file.num_bytes);
    if (!is_large_) sha1_.update(std::as_bytes(std::span(head.c_str(), head.size() + 1)));
  }
  void update(std::span<const std::byte> bytes) { is_large_ ? sha256_.update(bytes) : sha1_.update(bytes); }
  std::string hex() { return is_large_ ? sha256_.hex() : sha1_.hex(); }

 private:
  bool is_large_;
  Sha1 sha1_;
  Sha256 sha256_;
};

/// Files to download and their progress, shared by the download threads.
struct Work {
  const HubName& name;
  const std::string commit;
  const HubSettings& settings;
  const HubCache& cache;
  std::vector<HubFile> files;  ///< files to download; each hash occurs once

  std::atomic<size_t> next = 0;             ///< index of the next file that no thread has started
  std::atomic<int64_t> done_bytes = 0;      ///< bytes of `files` that are on disk
  std::atomic<int64_t> received_bytes = 0;  ///< bytes that this process has received
  std::atomic<int> num_done = 0;
  std::atomic<bool> is_cancelled = false;
  std::mutex mutex = {};
  std::condition_variable ended = {};  ///< notified when a thread ends
  size_t num_running = 0;
  std::exception_ptr error = nullptr;
};

/// A file that is downloaded piece by piece into blobs/HASH.incomplete.
class PartialFile {
 public:
  PartialFile(Work& work, const HubFile& file)
      : work_(work), file_(file), path_(work.cache.blob(file.hash).string() + ".incomplete"), hash_(file) {
    std::error_code error;
    const auto size = fs::file_size(path_, error);
    if (error || static_cast<int64_t>(size) > file.num_bytes) {
      restart();
      return;
    }
    const MappedFile earlier = size == 0 ? MappedFile() : MappedFile(path_);
    hash_.update(earlier.bytes());
    num_bytes_ = static_cast<int64_t>(earlier.bytes().size());
    work_.done_bytes += num_bytes_;
    writer_ = std::make_unique<FileWriter>(path_, FileWriter::Existing::continued);
  }

  int64_t num_bytes() const { return num_bytes_; }
  bool is_complete() const { return num_bytes_ == file_.num_bytes; }

  void restart() {
    work_.done_bytes -= num_bytes_;
    num_bytes_ = 0;
    hash_ = ContentHash(file_);
    writer_ = std::make_unique<FileWriter>(path_);
  }

  /// Checks at which byte a response starts, before its first piece is added.
  void begin(const HttpResponse& head) {
    if (head.status == 200 && num_bytes_ > 0) return restart();
    if (head.status == 200) return;
    const std::string* const range = find_header(head.headers, "Content-Range");
    if (range == nullptr || !range->starts_with(fmt::format("bytes {}-", num_bytes_)))
      user_error("{}: the server sent another range of {} than requested; try again", work_.name.text(),
                 file_.path);
  }

  void add(std::span<const std::byte> piece) {
    if (std::ssize(piece) > file_.num_bytes - num_bytes_)
      user_error("{}: the server sent more than the {} bytes of {}; check proxies and try again",
                 work_.name.text(), file_.num_bytes, file_.path);
    writer_->write(piece);
    hash_.update(piece);
    num_bytes_ += std::ssize(piece);
    work_.done_bytes += std::ssize(piece);
    work_.received_bytes += std::ssize(piece);
  }

  /// Moves the complete file to its blob. If its hash is wrong, restarts the download and returns false.
  bool finish() {
    writer_->sync_and_close();
    if (hash_.hex() != file_.hash) {
      restart();
      return false;
    }
    rename_durably(path_, work_.cache.blob(file_.hash));
    return true;
  }

 private:
  Work& work_;
  const HubFile& file_;
  fs::path path_;
  ContentHash hash_;
  int64_t num_bytes_ = 0;
  std::unique_ptr<FileWriter> writer_;
};

/// Requests the missing part of a file once. After a temporary failure, waits before it returns.
void fetch_rest(HubClient& client, Work& work, const HubFile& file, PartialFile& partial, int attempt) {
  HttpRequest request{.url = client.file_url(work.name, work.commit, file.path)};
  request.headers.push_back({.name = "Accept-Encoding", .value = "identity"});
  if (partial.num_bytes() > 0)
    request.headers.push_back({.name = "Range", .value = fmt::format("bytes={}-", partial.num_bytes())});
  bool has_begun = false;
  request.on_body = [&](const HttpResponse& head, std::span<const std::byte> piece) {
    if (!std::exchange(has_begun, true)) partial.begin(head);
    partial.add(piece);
  };
  request.on_progress = [&](int64_t, int64_t) { return !work.is_cancelled; };
  const bool is_last = attempt + 1 >= HubClient::kMaxAttempts;
  try {
    const HttpResponse response = client.send_once(std::move(request));
    if (response.is_success()) return;
    if (response.status == 416) {
      partial.restart();
      return;
    }
    if (is_last || !HubClient::is_temporary(response.status)) client.refuse(work.name, response);
    client.wait(attempt, &response);
  } catch (const HttpError& error) {
    if (is_last || !error.is_temporary()) throw;
    client.wait(attempt, nullptr);
  }
}

void fetch_file(HubClient& client, Work& work, const HubFile& file) {
  const HubCache::Lock lock(work.cache, file.hash);
  if (work.cache.has(file, work.commit)) {
    work.done_bytes += file.num_bytes;
    return;
  }
  PartialFile partial(work, file);
  int attempt = 0, num_damaged = 0;
  while (true) {
    while (!partial.is_complete()) {
      if (work.is_cancelled) return;
      const int64_t before = partial.num_bytes();
      fetch_rest(client, work, file, partial, attempt);
      attempt = partial.num_bytes() > before ? 0 : attempt + 1;
      if (attempt == HubClient::kMaxAttempts)
        user_error("{}: the server sent only {} of the {} bytes of {}; check proxies and try again",
                   work.name.text(), partial.num_bytes(), file.num_bytes, file.path);
    }
    if (partial.finish()) return;
    if (++num_damaged == 2)
      user_error(
          "{}: {} was damaged in two downloads: its contents do not have the hash {}; check proxies, and "
          "check the disk with smartctl",
          work.name.text(), file.path, file.hash);
  }
}

void run_thread(Work& work) {
  try {
    HubClient client(work.settings);
    for (size_t i; !work.is_cancelled && (i = work.next++) < work.files.size(); ++work.num_done)
      fetch_file(client, work, work.files[i]);
  } catch (...) {
    const std::lock_guard lock(work.mutex);
    if (!work.error) work.error = std::current_exception();
    work.is_cancelled = true;
  }
  const std::lock_guard lock(work.mutex);
  --work.num_running;
  work.ended.notify_all();
}

/// Measures the rate of a download over the last ten intervals between measurements.
class Meter {
 public:
  HubProgress measure(const Work& work, int64_t total_bytes, bool is_last) {
    HubProgress progress{.done_bytes = work.done_bytes,
                         .total_bytes = total_bytes,
                         .num_done = work.num_done,
                         .num_files = static_cast<int>(work.files.size()),
                         .is_last = is_last};
    samples_.push_back({.time = std::chrono::steady_clock::now(), .received_bytes = work.received_bytes});
    if (samples_.size() > kMaxSamples) samples_.pop_front();
    const double seconds =
        std::chrono::duration<double>(samples_.back().time - samples_.front().time).count();
    const int64_t received = samples_.back().received_bytes - samples_.front().received_bytes;
    if (seconds > 0) progress.bytes_per_second = static_cast<double>(received) / seconds;
    if (received > 0)
      progress.seconds_left =
          static_cast<double>(total_bytes - progress.done_bytes) / progress.bytes_per_second;
    return progress;
  }

 private:
  static constexpr size_t kMaxSamples = 11;
  struct Sample {
    std::chrono::steady_clock::time_point time;
    int64_t received_bytes = 0;
  };
  std::deque<Sample> samples_;
};

void fetch_files(Work& work, int64_t total_bytes, const HubReporter& reporter) {
  std::vector<std::thread> threads;
  work.num_running = std::min(kMaxThreads, work.files.size());
  const size_t num_threads = work.num_running;
  for (size_t i = 0; i < num_threads; ++i) threads.emplace_back([&] { run_thread(work); });
  Meter meter;
  {
    std::unique_lock lock(work.mutex);
    while (work.num_running > 0) {
      reporter.progress(meter.measure(work, total_bytes, false));
      work.ended.wait_for(lock, std::chrono::milliseconds(500), [&] { return work.num_running == 0; });
    }
  }
  for (std::thread& thread : threads) thread.join();
  reporter.progress(meter.measure(work, total_bytes, true));
  if (work.error) std::rethrow_exception(work.error);
}

int64_t free_bytes(const fs::path& folder) {
  struct statvfs found {};
  if (statvfs(folder.c_str(), &found) != 0) return INT64_MAX;
  return static_cast<int64_t>(found.f_bavail) * static_cast<int64_t>(found.f_frsize);
}

/// Returns the number of bytes of a file that an interrupted download has left.
int64_t partial_bytes(const HubCache& cache, const HubFile& file) {
  std::error_code error;
  const auto size = fs::file_size(cache.blob(file.hash).string() + ".incomplete", error);
  return error || static_cast<int64_t>(size) > file.num_bytes ? 0 : static_cast<int64_t>(size);
}

void download(const HubName& name, const std::string& commit, const HubSettings& settings,
              const HubCache& cache, const std::vector<HubFile>& needed, const HubReporter& reporter) {
  std::map<std::string, HubFile> missing;
  int64_t total = 0, missing_bytes = 0, present = 0;
  for (const HubFile& file : needed) {
    total += file.num_bytes;
    if (cache.has(file, commit) || !missing.emplace(file.hash, file).second) continue;
    missing_bytes += file.num_bytes;
    present += partial_bytes(cache, file);
  }
  if (!missing.empty()) {
    make_folder(cache.blob("x").parent_path());
    const int64_t free = free_bytes(settings.cache), rest = missing_bytes - present;
    reporter.note(fmt::format("{} at commit {}: {} file{}, {}; downloading {} to {} ({} free)", name.text(),
                              commit.substr(0, 12), needed.size(), needed.size() == 1 ? "" : "s",
                              human_bytes(total), human_bytes(rest), settings.cache.string(),
                              human_bytes(free)));
    if (rest > free - kReserveBytes)
      user_error(
          "{} needs {} in {}, but only {} are free; delete files there, or set HF_HOME to a folder on a "
          "larger disk",
          name.text(), human_bytes(rest), settings.cache.string(), human_bytes(free));
    Work work{.name = name, .commit = commit, .settings = settings, .cache = cache, .files = {}};
    for (auto& [hash, file] : missing) work.files.push_back(std::move(file));
    // Starts with the largest file, so that it is not the only one that is left at the end.
    std::ranges::sort(work.files, std::greater(), &HubFile::num_bytes);
    fetch_files(work, missing_bytes, reporter);
  }
  for (const HubFile& file : needed) cache.link(file, commit);
  cache.store_commit(name.revision, commit);
}

/// Throws a UserError if a shard that an index of weights lists is not in the snapshot.
void check_shards(const HubName& name, const fs::path& snapshot, const std::vector<HubFile>& needed) {
  for (const HubFile& file : needed) {
    if (!file.path.ends_with(".index.json")) continue;
    const auto index =
        parse_json<nlohmann::json>(read_file(snapshot / file.path), nullptr, Unreadable::discarded);
    if (!index || !index->is_object() || !index->contains("weight_map")) continue;
    for (const auto& [tensor, value] : index->at("weight_map").items()) {
      const std::string shard = value.is_string() ? value.get<std::string>() : "";
      const fs::path folder = (snapshot / file.path).parent_path();
      if (!is_safe_path(shard) || !path_exists(folder / shard))
        user_error(
            "{} is in the cache, but its file {} is missing; connect to the network and run the command "
            "again",
            name.text(), shortened(shard, 200));
    }
  }
}

fs::path path_in(const HubCache& cache, const std::string& commit, const HubName& name) {
  return name.path.empty() ? cache.snapshot(commit) : cache.snapshot(commit) / name.path;
}

/// Returns the path of the name in the cache. Throws a UserError if a file is missing, or if the cache has no
/// commit of the name; that error ends with `advice`.
fs::path cached_path(const HubName& name, const HubCache& cache, const std::string& advice) {
  const std::optional<std::string> commit = cache.commit_of(name.revision);
  if (!commit) user_error("{} is not in the cache; {}", name.text(), advice);
  const std::vector<HubFile> files = cache.files_of(*commit);
  check_shards(name, cache.snapshot(*commit), needed_files(name, files));
  return path_in(cache, *commit, name);
}

}  // namespace

fs::path find_in_hub_cache(const HubName& name, const HubSettings& settings) {
  try {
    return cached_path(name, HubCache(settings.cache, name), "");
  } catch (const UserError&) {
    return {};
  }
}

fs::path download_from_hub(const HubName& name, const HubSettings& settings, const HubReporter& reporter) {
  const HubCache cache(settings.cache, name);
  if (settings.is_offline) return cached_path(name, cache, "unset HF_HUB_OFFLINE to download it");
  HubClient client(settings);
  std::string commit;
  std::vector<HubFile> needed;
  try {
    if (fs::path(name.path).has_extension()) {
      refuse_parquet(name, name.path);
      auto [found, file] = client.find_file(name);
      commit = found;
      needed.push_back(std::move(file));
    } else {
      commit = client.find_commit(name);
      needed = needed_files(name, client.list_files(name, commit));
    }
  } catch (const HttpError& error) {
    const fs::path path = find_in_hub_cache(name, settings);
    if (path.empty()) throw;
    reporter.note(fmt::format("{}; using {} from the cache", error.what(), name.text()));
    return path;
  }
  download(name, commit, settings, cache, needed, reporter);
  return path_in(cache, commit, name);
}

}  // namespace hearth::net
