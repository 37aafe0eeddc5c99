#pragma once

#include <string_view>
#include <vector>

#include "models/denoiser/denoiser.h"

namespace hearth::models {

/// What the families of denoisers share. Rows of a sample are consecutive.
class DenoiserBlocks {
 public:
  DenoiserBlocks(nn::Builder& builder, const DenoiserConfig& config, const DenoiserInputs& in)
      : builder_(builder), config_(config), in_(in) {}

 protected:
  /// Xavier's start.
  ir::ValueId linear(std::string_view name, ir::ValueId x, int64_t size, bool bias = true);
  /// Starts at zero, so that a new model's blocks pass their input through.
  ir::ValueId zero_linear(std::string_view name, ir::ValueId x, int64_t size, bool bias = true);
  /// linear_1, SiLU and linear_2 under `name`: a vector for each sample.
  ir::ValueId embed(std::string_view name, ir::ValueId x, bool bias = true);
  /// `shift` is diffusers' downscale_freq_shift.
  ir::ValueId sinusoids(ir::ValueId time, int64_t shift);
  /// The guidance scale as a time, f32 [B].
  ir::ValueId guidance_time();

  ir::ValueId columns(ir::ValueId x, int64_t begin, int64_t count);
  /// `count` equal parts of the columns.
  std::vector<ir::ValueId> chunks(ir::ValueId x, int64_t count);
  ir::ValueId reshape(ir::ValueId x, int64_t rows, int64_t size);
  ir::ValueId silu(ir::ValueId x) { return builder_.op("silu", {x}); }
  ir::ValueId modulated_norm(ir::ValueId x, ir::ValueId shift, ir::ValueId scale, double eps);
  ir::ValueId modulated_norm(ir::ValueId x, ir::ValueId shift, ir::ValueId scale) {
    return modulated_norm(x, shift, scale, config_.eps);
  }
  ir::ValueId gated_add(ir::ValueId x, ir::ValueId gate, ir::ValueId branch);
  ir::ValueId attend(ir::ValueId q, ir::ValueId k, ir::ValueId v);

  int64_t num_tokens() const { return in_.patches.num_pixels(); }

  nn::Builder& builder_;
  const DenoiserConfig& config_;
  const DenoiserInputs& in_;
};

/// And what FLUX.1 and FLUX.2 share: every sample's text tokens stand before those of its picture.
class FluxBlocks : public DenoiserBlocks {
 public:
  FluxBlocks(nn::Builder& builder, const DenoiserConfig& config, const DenoiserInputs& in, bool bias);

 protected:
  struct Streams {
    ir::ValueId text, picture;
  };
  /// Shift, scale and gate of attention, and those of the MLP.
  using Modulation = std::vector<ir::ValueId>;

  /// A sample's rows of both, one after the other, and apart again.
  ir::ValueId join(Streams parts);
  Streams split(ir::ValueId joined);
  /// RMS norm of each head of a query or key, then rotation.
  ir::ValueId norm_heads(std::string_view name, ir::ValueId x);
  ir::ValueId rotate(ir::ValueId x);
  /// Attention of both streams to both, with weights of their own.
  Streams attend_both(Streams x);
  /// norm_out and proj_out, of pictures' rows.
  ir::ValueId last_layers(ir::ValueId joined, ir::ValueId condition);

  int64_t text_tokens_;
  bool bias_;

 private:
  ir::ValueId rope_;
};

/// The families, for build_denoiser.
ir::ValueId build_flux(nn::Builder& builder, const DenoiserConfig& config, const DenoiserInputs& in);
ir::ValueId build_flux2(nn::Builder& builder, const DenoiserConfig& config, const DenoiserInputs& in);
ir::ValueId build_dit(nn::Builder& builder, const DenoiserConfig& config, const DenoiserInputs& in);

}  // namespace hearth::models
