#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hearth::models {

class ConfigReader;

/// Rotary positions: cos and sin of position * inv_freq[i], times `scale`, for the first 2 * inv_freq.size()
/// elements of a head, in the layout of rotated halves (Su et al. 2021, arXiv 2104.09864; transformers'
/// modeling_rope_utils).
struct RopeTable {
  std::vector<double> inv_freq;
  double scale = 1;
  /// In place of inv_freq for every position of a batch that holds one from `original` on; empty: never.
  std::vector<double> long_inv_freq = {};
  int64_t original = 0;
};

/// How inverse frequencies follow from a config: "default", "linear", "llama3", "yarn" (Peng et al. 2023,
/// arXiv 2309.00071) or "longrope".
struct RopeOptions {
  std::string type = "default";
  double theta = 10000;
  double rotary_share = 1;  ///< of the head's elements
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_positions = 0;
  std::vector<double> short_factor, long_factor;
  double beta_fast = 32, beta_slow = 1;  ///< turns within the original context: above, between, below
  bool whole_bounds = true;              ///< yarn's bounds are rounded to whole elements
  double attention_factor = 1;           ///< cos and sin are multiplied by this
};

/// What a family's rotary positions are where its config does not say.
struct RopeDefaults {
  double theta = 10000;
  double local_theta = 0;  ///< of layers that see a window, where they have a base of their own; else 0
  /// Of the context before it was stretched; 0: as many as max_position_embeddings.
  int64_t original_positions = 0;
  bool is_phi = false;  ///< turns parts of heads, and calls longrope "su" and "yarn" in its first files
};

/// The sizes that rotary positions depend on.
struct RopeSizes {
  int64_t head_size = 0;
  int64_t max_positions = 0;
};

/// Reads rope_scaling of version 4 of transformers or rope_parameters of version 5. UserError for a type that
/// is not known, a key that the type needs, and keys that the two versions understand differently.
RopeOptions read_rope(const ConfigReader& reader, const RopeDefaults& defaults, const RopeSizes& sizes);

/// The same for a family whose layers that see a window have a base of their own: rope_parameters of version
/// 5 hold an object per type of layer.
struct RopesByLayer {
  RopeOptions full, local;
};
RopesByLayer read_ropes_by_layer(const ConfigReader& reader, const RopeDefaults& defaults,
                                 const RopeSizes& sizes);

/// The frequencies of heads of that size.
RopeTable rope_table(const RopeOptions& rope, int64_t head_size);

}  // namespace hearth::models
