#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/path.h"
#include "net/hub_listing.h"

namespace hearth::net {

/// The folder of one repository in the cache that huggingface_hub and Hearth share:
///
///   models--ORG--NAME/blobs/HASH                    contents of files
///   models--ORG--NAME/refs/main                     commit of a branch or tag
///   models--ORG--NAME/snapshots/COMMIT/config.json  relative symbolic link to a blob
///   .locks/models--ORG--NAME/HASH.lock              locked with flock() while the blob is downloaded
class HubCache {
 public:
  /// `cache`: the folder of all repositories, which need not exist.
  HubCache(fs::path cache, const HubName& name);

  /// Returns the commit of a branch, tag or commit; nullopt if it is not in the cache.
  std::optional<std::string> commit_of(const std::string& revision) const;
  void store_commit(const std::string& revision, const std::string& commit) const;

  fs::path snapshot(const std::string& commit) const { return folder_ / "snapshots" / commit; }
  /// Returns the files of a snapshot, without links to missing blobs; HubFile::hash is not set. Returns an
  /// empty list if the snapshot does not exist.
  std::vector<HubFile> files_of(const std::string& commit) const;
  fs::path blob(const std::string& hash) const { return folder_ / "blobs" / hash; }
  /// True if the snapshot has the file or the cache has its blob, with the size of `file`.
  bool has(const HubFile& file, const std::string& commit) const;
  /// Adds a link to the blob of a file to a snapshot, or moves the blob there if the file system has no
  /// symbolic links. Does nothing if the blob does not exist.
  void link(const HubFile& file, const std::string& commit) const;

  /// Holds the lock of a blob, so that other processes do not download it at the same time.
  class Lock {
   public:
    /// Waits until the lock is free. Throws a UserError if the lock file cannot be created.
    Lock(const HubCache& cache, const std::string& hash);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    int descriptor_;
  };

 private:
  fs::path cache_, folder_;
};

/// Returns the name of the repository and commit whose snapshot contains a path of the cache, such as
/// .../models--ORG--NAME/snapshots/COMMIT/FILE; nullopt for any other path.
std::optional<HubName> hub_name_of_snapshot(const fs::path& path);

}  // namespace hearth::net
