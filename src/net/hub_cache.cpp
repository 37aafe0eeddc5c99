#include "net/hub_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace hearth::net {
namespace {

constexpr std::string_view kSeparator = "--";

std::string folder_name(const HubName& name) {
  std::string folder = name.type() + "/" + name.repo;
  for (size_t at = 0; (at = folder.find('/', at)) != folder.npos;) folder.replace(at, 1, kSeparator);
  return folder;
}

}  // namespace

HubCache::HubCache(fs::path cache, const HubName& name)
    : cache_(std::move(cache)), folder_(cache_ / folder_name(name)) {}

std::optional<std::string> HubCache::commit_of(const std::string& revision) const {
  std::error_code ignored;
  const fs::path ref = folder_ / "refs" / revision;
  if (fs::is_regular_file(ref, ignored)) {
    const std::string commit(trimmed(read_file(ref, 4096)));
    if (is_git_hash(commit)) return commit;
  }
  if (is_git_hash(revision) && fs::is_directory(snapshot(revision), ignored)) return revision;
  return std::nullopt;
}

void HubCache::store_commit(const std::string& revision, const std::string& commit) const {
  if (revision == commit || commit_of(revision) == commit) return;
  const fs::path ref = folder_ / "refs" / revision;
  make_folder(ref.parent_path());
  write_file_atomically(ref, commit);
}

std::vector<HubFile> HubCache::files_of(const std::string& commit) const {
  std::vector<HubFile> files;
  std::error_code error;
  const fs::path top = snapshot(commit);
  for (fs::recursive_directory_iterator at(top, error), end; !error && at != end; at.increment(error)) {
    std::error_code broken;
    if (!at->is_regular_file(broken)) continue;
    files.push_back({.path = at->path().lexically_relative(top).string(),
                     .num_bytes = static_cast<int64_t>(at->file_size(broken))});
  }
  return files;
}

bool HubCache::has(const HubFile& file, const std::string& commit) const {
  return std::ranges::any_of(std::initializer_list<fs::path>{snapshot(commit) / file.path, blob(file.hash)},
                             [&](const fs::path& path) {
                               std::error_code error;
                               const auto size = fs::file_size(path, error);
                               return !error && static_cast<int64_t>(size) == file.num_bytes;
                             });
}

void HubCache::link(const HubFile& file, const std::string& commit) const {
  const fs::path path = snapshot(commit) / file.path;
  std::error_code code;
  const fs::path target = blob(file.hash).lexically_relative(path.parent_path());
  if (!fs::exists(blob(file.hash), code) || fs::read_symlink(path, code) == target) return;
  make_folder(path.parent_path());
  // The link gets a unique name and is then renamed, because another process may create the same link at the
  // same time.
  const fs::path temporary = path.string() + fmt::format(".{}.link", getpid());
  fs::create_symlink(target, temporary, code);
  fs::rename(code ? blob(file.hash) : temporary, path, code);
  if (code)
    user_error("cannot create {}: {}; set HF_HOME to a folder that you can write to", path.string(),
               code.message());
}

HubCache::Lock::Lock(const HubCache& cache, const std::string& hash) {
  const fs::path path = cache.cache_ / ".locks" / cache.folder_.filename() / (hash + ".lock");
  make_folder(path.parent_path());
  descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0)
    user_error("cannot create {}: {}; set HF_HOME to a folder that you can write to", path.string(),
               std::strerror(errno));
  // On network file systems without locks, two processes may download the same file.
  while (flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) continue;
}

HubCache::Lock::~Lock() { close(descriptor_); }

std::optional<HubName> hub_name_of_snapshot(const fs::path& path) {
  const fs::path normal = fs::absolute(path).lexically_normal();
  for (fs::path at = normal; at.has_relative_path(); at = at.parent_path()) {
    const std::string commit = at.filename().string();
    if (!is_git_hash(commit) || at.parent_path().filename() != "snapshots") continue;
    std::string folder = at.parent_path().parent_path().filename().string();
    HubName name{.is_dataset = folder.starts_with("datasets--"), .repo = "", .revision = commit, .path = ""};
    if (!folder.starts_with(name.type() + "--")) return std::nullopt;
    folder.erase(0, name.type().size() + kSeparator.size());
    if (const size_t end = folder.find(kSeparator); end != folder.npos)
      folder.replace(end, kSeparator.size(), "/");
    name.repo = folder;
    const fs::path rest = normal.lexically_relative(at);
    if (rest != "." && rest.has_filename()) name.path = rest.string();
    return name;
  }
  return std::nullopt;
}

}  // namespace hearth::net
