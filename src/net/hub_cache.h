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

  /// Returns the commit of a branch, tag or commit; nullopt if the cache has none for it.
  std::optional<std::string> commit_of(const std::string& revision) const;
  void store_commit(const std::string& revision, const std::string& commit) const;

  fs::path snapshot(const std::string& commit) const { return folder_ / "snapshots" / commit; }
  /// Returns the files of a snapshot whose contents exist, without their hashes; empty if there is none.
  std::vector<HubFile> files_of(const std::string& commit) const;
  fs::path blob(const std::string& hash) const { return folder_ / "blobs" / hash; }
  /// True if the file is in the snapshot or its contents are among the blobs, with the size of `file`.
  bool has(const HubFile& file, const std::string& commit) const;
  /// Adds a file whose blob exists to a snapshot. Where the file system has no symbolic links, moves the
  /// blob.
  void link(const HubFile& file, const std::string& commit) const;

  /// Holds the lock of a blob, so that other processes do not download it at the same time.
  class Lock {
   public:
    /// Waits until the lock is free. UserError if it cannot be created.
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
