#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::hub {

/// A module of FLUX as its authors' files name it, and the modules of diffusers that its rows become, one
/// after the other.
struct FluxModule {
  std::string original;            ///< "double_blocks.3.img_attn.qkv"
  std::vector<std::string> parts;  ///< "transformer_blocks.3.attn.to_q", ...
  /// The first half of the rows is the second one there: shift before scale.
  bool swapped = false;
};

/// Every module that a model with these blocks may have; FLUX.2 has other ones than FLUX.1.
struct FluxBlocks {
  bool flux2 = false;
  int64_t num_double = 0, num_single = 0;
};
std::vector<FluxModule> flux_modules(const FluxBlocks& blocks);

/// How many blocks the names of tensors speak of: one more than the largest number after `name`, as after
/// "double_blocks" in "double_blocks.3.img_attn.qkv" or "lora_unet_double_blocks_3_img_attn_qkv".
int64_t num_blocks(std::span<const std::string> names, std::string_view name);

}  // namespace hearth::hub
