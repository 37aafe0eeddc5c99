#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::hub {

/// A module of FLUX: its original name (Black Forest Labs), and the diffusers modules that it corresponds to.
/// A fused original weight (qkv) consists of the rows of the parts, one after the other.
struct FluxModule {
  std::string original;            ///< original name, such as "double_blocks.3.img_attn.qkv"
  std::vector<std::string> parts;  ///< diffusers' names, such as "transformer_blocks.3.attn.to_q", ...
  /// True if diffusers stores the first and the second half of the rows in exchanged order (scale, shift
  /// instead of shift, scale).
  bool swapped = false;
};

/// Version of FLUX and numbers of its double-stream and single-stream blocks.
struct FluxBlocks {
  bool flux2 = false;
  int64_t num_double = 0, num_single = 0;
};
/// Returns all modules that a model with these blocks may have.
std::vector<FluxModule> flux_modules(const FluxBlocks& blocks);

/// Returns the number of blocks of a kind that tensor names contain: 1 + the max index after `name`, such as
/// "double_blocks" in "double_blocks.3.img_attn.qkv" or "lora_unet_double_blocks_3_img_attn_qkv". At most
/// 1024.
int64_t num_blocks(std::span<const std::string> names, std::string_view name);

}  // namespace hearth::hub
