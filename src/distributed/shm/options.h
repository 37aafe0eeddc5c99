#pragma once

#include <cstdint>

namespace hearth::distributed {

/// Timeout and chunk size of a ShmGroup.
struct ShmOptions {
  double deadline_seconds = 60;
  /// Size of a chunk in bytes, which is copied as a unit; it should fit the processor's caches.
  int64_t chunk_bytes = int64_t{512} << 10;
};

}  // namespace hearth::distributed
