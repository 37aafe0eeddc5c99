#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hearth::models {

class ConfigReader;

/// Rotary position embedding (RoPE, Su et al. 2021, arXiv 2104.09864): cos and sin of position * inv_freq[i],
/// times `scale`, for the first 2 * inv_freq.size() elements of a head, in the rotate-half layout
/// (transformers' modeling_rope_utils).
struct RopeTable {
  std::vector<double> inv_freq;
  double scale = 1;
  /// LongRoPE: replaces inv_freq in batches that contain a position >= `original`; empty: other RoPE types.
  std::vector<double> long_inv_freq = {};
  int64_t original = 0;
};

/// RoPE settings of a config. Types: "default", "linear", "llama3", "yarn" (Peng et al. 2023, arXiv
/// 2309.00071) and "longrope".
struct RopeOptions {
  std::string type = "default";
  double theta = 10000;
  double rotary_share = 1;  ///< fraction of a head's elements that are rotated
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_positions = 0;
  std::vector<double> short_factor, long_factor;
  /// YaRN: bounds of the interpolation, in rotations within the original context (YarnRamp).
  double beta_fast = 32, beta_slow = 1;
  bool whole_bounds = true;     ///< YaRN: true if the indices at these bounds are rounded to integers
  double attention_factor = 1;  ///< factor by which cos and sin are multiplied
};

/// RoPE settings that a family has if config.json lacks them.
struct RopeDefaults {
  double theta = 10000;
  double local_theta = 0;  ///< theta of layers with a sliding window; 0: all layers use the same RoPE
  /// True if layers with a sliding window must have the theta of the other layers, without its scaling (OLMo
  /// 3). Configs for which versions 4 and 5 of transformers would use different thetas are refused.
  bool needs_equal_thetas = false;
  /// Context length before extension; 0: max_position_embeddings.
  int64_t original_positions = 0;
  /// True for Phi: partial_rotary_factor is supported, and the types "su" and "yarn" are old names of
  /// "longrope".
  bool is_phi = false;
};

/// Sizes of a model on which its RoPE settings depend.
struct RopeSizes {
  int64_t head_size = 0;
  int64_t max_positions = 0;
};

/// Reads rope_scaling of transformers version 4 or rope_parameters of version 5. Throws a UserError for an
/// unknown type, a missing key, and keys that the two versions interpret differently.
RopeOptions read_rope(const ConfigReader& reader, const RopeDefaults& defaults, const RopeSizes& sizes);

/// RoPE settings of a family in which layers with a sliding window have a separate theta. In transformers 5,
/// rope_parameters then has an object per layer type.
struct RopesByLayer {
  RopeOptions full, local;
};
RopesByLayer read_ropes_by_layer(const ConfigReader& reader, const RopeDefaults& defaults,
                                 const RopeSizes& sizes);

/// Computes the frequencies for heads of this size.
RopeTable rope_table(const RopeOptions& rope, int64_t head_size);

}  // namespace hearth::models
