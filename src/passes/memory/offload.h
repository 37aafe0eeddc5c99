#pragma once

#include "base/choices.h"
#include "cost/device.h"
#include "passes/memory/storage.h"

namespace hearth::passes {

/// Selects the values that are kept in host memory, and copied to the device only while a node needs them
/// (ZeRO-Offload, Ren et al., USENIX ATC 2021), and the precision of saved activations.
struct OffloadOptions {
  bool states = false;   ///< optimizer moments, accumulated gradients, moving averages
  bool weights = false;  ///< trained and frozen weights
  /// Saved activations: recompute() offloads those for which copying takes less time than recomputing.
  bool activations = false;
  /// Precision of saved activations (encode_saved()). The passes treat `automatic` as `full`.
  SavedActivations saved = SavedActivations::full;
  int64_t min_bytes = 1 << 20;           ///< smaller values stay on the device
  int64_t min_encoded_bytes = 16 << 10;  ///< smaller saved activations are not encoded
  bool operator==(const OffloadOptions&) const = default;
  /// True if values may be kept in host memory.
  bool uses_host() const { return states || weights || activations; }
};

/// Inserts a fetch before every node that reads an offloaded weight or state, and a store after every node
/// that writes one.
void offload(ir::Graph& graph, const OffloadOptions& options);

/// Moves fetches earlier, so that copies overlap with computing; each at most to the reader of the previous
/// fetch. Live bytes stay within `limit_bytes` or the current peak, whichever is larger.
void prefetch(ir::Graph& graph, int64_t limit_bytes, const WorkspaceOf& workspace_of,
              const cost::Device& device);

}  // namespace hearth::passes
