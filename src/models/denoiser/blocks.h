#pragma once

#include <string_view>
#include <vector>

#include "models/denoiser/denoiser.h"

namespace hearth::models {

/// Layers shared by all families of denoisers. Activations are [rows, channels]; the tokens of a sample are
/// consecutive rows.
class DenoiserBlocks {
 public:
  DenoiserBlocks(nn::Builder& builder, const DenoiserConfig& config, const DenoiserInputs& in)
      : builder_(builder), config_(config), in_(in) {}

 protected:
  /// Adds a linear layer with Xavier initialization.
  ir::ValueId linear(std::string_view name, ir::ValueId x, int64_t size, bool bias = true);
  /// Adds a linear layer initialized to zero, so that the blocks of a new model are the identity.
  ir::ValueId zero_linear(std::string_view name, ir::ValueId x, int64_t size, bool bias = true);
  /// Adds the layers linear_1, SiLU and linear_2 with names below `name`; returns an embedding vector per
  /// sample.
  ir::ValueId embed(std::string_view name, ir::ValueId x, bool bias = true);
  /// Returns the sinusoidal embedding of `time`. `shift`: diffusers' downscale_freq_shift.
  ir::ValueId sinusoids(ir::ValueId time, int64_t shift);
  /// Returns 1000 * guidance scale, f32 [B], which is embedded in the same way as the timestep.
  ir::ValueId guidance_time();

  /// Returns columns [begin, begin + count).
  ir::ValueId columns(ir::ValueId x, int64_t begin, int64_t count);
  /// Splits the columns into `count` equal parts.
  std::vector<ir::ValueId> chunks(ir::ValueId x, int64_t count);
  ir::ValueId reshape(ir::ValueId x, int64_t rows, int64_t size);
  ir::ValueId silu(ir::ValueId x) { return builder_.op("silu", {x}); }
  /// Returns norm(x) * (1 + scale) + shift (adaptive norm); `shift` and `scale` have one row per sample.
  ir::ValueId modulated_norm(ir::ValueId x, ir::ValueId shift, ir::ValueId scale, double eps);
  ir::ValueId modulated_norm(ir::ValueId x, ir::ValueId shift, ir::ValueId scale) {
    return modulated_norm(x, shift, scale, config_.eps);
  }
  /// Returns x + gate * branch; `gate` has one row per sample.
  ir::ValueId gated_add(ir::ValueId x, ir::ValueId gate, ir::ValueId branch);
  /// Computes multi-head attention among the tokens of each sample, without a mask.
  ir::ValueId attend(ir::ValueId q, ir::ValueId k, ir::ValueId v);

  int64_t num_tokens() const { return in_.patches.num_pixels(); }

  nn::Builder& builder_;
  const DenoiserConfig& config_;
  const DenoiserInputs& in_;
};

/// Layers shared by FLUX.1 and FLUX.2: each sample's text tokens precede its image tokens.
class FluxBlocks : public DenoiserBlocks {
 public:
  FluxBlocks(nn::Builder& builder, const DenoiserConfig& config, const DenoiserInputs& in, bool bias);

 protected:
  struct Streams {
    ir::ValueId text, image;
  };
  /// Shift, scale and gate for the attention, then shift, scale and gate for the MLP.
  using Modulation = std::vector<ir::ValueId>;

  /// Concatenates text and image tokens of each sample; split() is the inverse.
  ir::ValueId join(Streams parts);
  Streams split(ir::ValueId joined);
  /// Applies RMS norm to each head of a query or key, then RoPE.
  ir::ValueId norm_heads(std::string_view name, ir::ValueId x);
  ir::ValueId rotate(ir::ValueId x);
  /// Computes joint attention over text and image tokens, with separate projections for each.
  Streams attend_both(Streams x);
  /// Applies norm_out and proj_out to the image tokens.
  ir::ValueId last_layers(ir::ValueId joined, ir::ValueId condition);

  int64_t text_tokens_;
  bool bias_;

 private:
  ir::ValueId rope_;
};

/// Functions that build a denoiser of one family; build_denoiser() calls them.
ir::ValueId build_flux(nn::Builder& builder, const DenoiserConfig& config, const DenoiserInputs& in);
ir::ValueId build_flux2(nn::Builder& builder, const DenoiserConfig& config, const DenoiserInputs& in);
ir::ValueId build_dit(nn::Builder& builder, const DenoiserConfig& config, const DenoiserInputs& in);

}  // namespace hearth::models
