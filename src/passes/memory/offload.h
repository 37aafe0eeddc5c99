#pragma once

#include "cost/device.h"
#include "passes/memory/storage.h"

namespace hearth::passes {

/// What is kept in host memory and copied to the device only while a node needs it (ZeRO-Offload, Ren et al.,
/// USENIX ATC 2021).
struct OffloadOptions {
  bool states = false;   ///< moments, sums of gradients, averages
  bool weights = false;  ///< trained and frozen
  /// Saved activations: recompute() decides which, where copying is cheaper than making them again.
  bool activations = false;
  int64_t least_bytes = 1 << 20;  ///< smaller values stay on the device
  bool operator==(const OffloadOptions&) const = default;
};

/// Puts a fetch before every node that reads a weight or state that is offloaded, and a store after
/// every node that writes one.
void offload(ir::Graph& graph, const OffloadOptions& options);

/// Moves fetches ahead of their readers, each at most to the reader of the fetch before it, so that copying
/// and computing overlap; only as far as live bytes stay within `limit_bytes` or the present peak.
void prefetch(ir::Graph& graph, int64_t limit_bytes, const WorkspaceOf& workspace_of,
              const cost::Device& device);

}  // namespace hearth::passes
