#pragma once

#include <functional>
#include <string>

#include "net/hub_client.h"

namespace hearth::net {

/// Progress of a download.
struct HubProgress {
  int64_t done_bytes = 0;  ///< of total_bytes, with bytes of an earlier interrupted download
  int64_t total_bytes = 0;
  int num_done = 0;  ///< of num_files
  int num_files = 0;
  double bytes_per_second = 0;  ///< of the last seconds
  double seconds_left = 0;      ///< 0: unknown
  bool is_last = false;
};

struct HubReporter {
  /// Receives a sentence, such as the plan of a download before it starts.
  std::function<void(const std::string&)> note = [](const std::string&) {};
  /// Called twice a second during a download, and once at its end.
  std::function<void(const HubProgress&)> progress = [](const HubProgress&) {};
};

/// Downloads what the name refers to (needed_files()), unless the cache has it, and returns its path in the
/// cache: the snapshot, or the file or folder in it. Continues interrupted downloads, checks all hashes, and
/// fetches several files at once. If the hub cannot be reached or HF_HUB_OFFLINE is set, uses the cache
/// alone. UserError if the disk is too small, before the download starts, and for every failure.
fs::path download_from_hub(const HubName& name, const HubSettings& settings, const HubReporter& reporter);

/// Returns the path of what the name refers to if the cache has it; an empty path otherwise. Sends no
/// request.
fs::path find_in_hub_cache(const HubName& name, const HubSettings& settings);

}  // namespace hearth::net
