#pragma once

#include <string_view>
#include <vector>

#include "models/denoiser/denoiser.h"

namespace hearth::models {

/// Layers shared by all families of denoisers. Tokens of a sample are consecutive rows.
class DenoiserBlocks {
 public:
  DenoiserBlocks(nn::Builder& builder, const DenoiserConfig& config, const DenoiserInputs& in)
      : builder_(builder), config_(config), in_(in) {}

 protected:
  /// Linear layer with Xavier initialization.
  ir::ValueId linear(std::string_view name, ir::ValueId x, int64_t size, bool bias = true);
  /// Linear layer initialized to zero, so that a new model's blocks are the identity.
  ir::ValueId zero_linear(std::string_view name, ir::ValueId x, int64_t size, bool bias = true);
  /// linear_1, SiLU and linear_2 below `name`: an embedding vector per sample.
  ir::ValueId embed(std::string_view name, ir::ValueId x, bool bias = true);
  /// Sinusoidal embedding of `time`; `shift` is diffusers' downscale_freq_shift.
  ir::ValueId sinusoids(ir::ValueId time, int64_t shift);
  /// Returns the guidance scale in the units of time, f32 [B].
  ir::ValueId guidance_time();

  /// Returns columns [begin, begin + count).
  ir::ValueId columns(ir::ValueId x, int64_t begin, int64_t count);
  /// Splits the columns into `count` equal parts.
  std::vector<ir::ValueId> chunks(ir::ValueId x, int64_t count);
  ir::ValueId reshape(ir::ValueId x, int64_t rows, int64_t size);
  ir::ValueId silu(ir::ValueId x) { return builder_.op("silu", {x}); }
  /// Adaptive norm: norm(x) * (1 + scale) + shift, with vectors per sample.
  ir::ValueId modulated_norm(ir::ValueId x, ir::ValueId shift, ir::ValueId scale, double eps);
  ir::ValueId modulated_norm(ir::ValueId x, ir::ValueId shift, ir::ValueId scale) {
    return modulated_norm(x, shift, scale, config_.eps);
  }
  /// Returns x + gate * branch, with a gate vector per sample.
  ir::ValueId gated_add(ir::ValueId x, ir::ValueId gate, ir::ValueId branch);
  /// Multi-head attention within each sample, without a mask.
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
  /// Shift, scale and gate of attention, then of the MLP.
  using Modulation = std::vector<ir::ValueId>;

  /// Concatenates the streams' tokens sample by sample; split() is the inverse.
  ir::ValueId join(Streams parts);
  Streams split(ir::ValueId joined);
  /// Applies RMS norm to each head of a query or key, then RoPE.
  ir::ValueId norm_heads(std::string_view name, ir::ValueId x);
  ir::ValueId rotate(ir::ValueId x);
  /// Joint attention over both streams; each stream has separate projections.
  Streams attend_both(Streams x);
  /// norm_out and proj_out, applied to image tokens.
  ir::ValueId last_layers(ir::ValueId joined, ir::ValueId condition);

  int64_t text_tokens_;
  bool bias_;

 private:
  ir::ValueId rope_;
};

/// Build functions of the families, for build_denoiser.
ir::ValueId build_flux(nn::Builder& builder, const DenoiserConfig& config, const DenoiserInputs& in);
ir::ValueId build_flux2(nn::Builder& builder, const DenoiserConfig& config, const DenoiserInputs& in);
ir::ValueId build_dit(nn::Builder& builder, const DenoiserConfig& config, const DenoiserInputs& in);

}  // namespace hearth::models
