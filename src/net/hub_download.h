#pragma once

#include <functional>
#include <string>

#include "net/hub_client.h"

namespace hearth::net {

/// Progress of a download.
struct HubProgress {
  int64_t done_bytes = 0;  ///< bytes that are on disk, including those of an earlier, interrupted download
  int64_t total_bytes = 0;
  int num_done = 0;  ///< number of complete files
  int num_files = 0;
  double bytes_per_second = 0;  ///< average over the last seconds
  double seconds_left = 0;      ///< 0: unknown
  bool is_last = false;
};

struct HubReporter {
  /// Receives a message, such as the plan of a download before it starts.
  std::function<void(const std::string&)> note = [](const std::string&) {};
  /// Called twice a second during a download, and once at its end.
  std::function<void(const HubProgress&)> progress = [](const HubProgress&) {};
};

/// Downloads the files that the name refers to (needed_files()), except those in the cache. Returns the path
/// in the cache: that of the snapshot, or of the file or folder in it. Continues interrupted downloads,
/// verifies all hashes, and downloads several files at once. If the hub cannot be reached or HF_HUB_OFFLINE
/// is set, uses only the cache. Throws a UserError for every failure; if the disk is too small, before the
/// download starts.
fs::path download_from_hub(const HubName& name, const HubSettings& settings, const HubReporter& reporter);

/// Returns the path in the cache that download_from_hub() would return, without any request; an empty path if
/// files are missing.
fs::path find_in_hub_cache(const HubName& name, const HubSettings& settings);

}  // namespace hearth::net
