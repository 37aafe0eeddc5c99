#include "models/denoiser/blocks.h"

namespace hearth::models {
namespace {

using ir::ValueId;
using Scope = nn::Builder::Scope;

/// FLUX.2: all blocks share one modulation per stream, and no layer has a bias.
class Flux2 : public FluxBlocks {
 public:
  using FluxBlocks::FluxBlocks;

  ValueId run() {
    const ValueId condition = embed_condition();
    const Modulation image = modulation("double_stream_modulation_img.linear", condition, 6);
    const Modulation text = modulation("double_stream_modulation_txt.linear", condition, 6);
    const Modulation both = modulation("single_stream_modulation.linear", condition, 3);
    Streams x{.text = linear("context_embedder", in_.text, config_.width(), false),
              .image = linear("x_embedder", in_.tokens, config_.width(), false)};
    for (int64_t i = 0; i < config_.num_double; ++i) {
      const Scope scope(builder_, "transformer_blocks." + std::to_string(i));
      x = run_double(x, text, image);
    }
    ValueId joined = join(x);
    for (int64_t i = 0; i < config_.num_single; ++i) {
      const Scope scope(builder_, "single_transformer_blocks." + std::to_string(i));
      joined = run_single(joined, both);
    }
    return last_layers(joined, condition);
  }

 private:
  ValueId embed_condition() {
    const Scope scope(builder_, "time_guidance_embed");
    ValueId sum = embed("timestep_embedder", sinusoids(in_.time, 0), false);
    if (config_.guidance)
      sum = builder_.add(sum, embed("guidance_embedder", sinusoids(guidance_time(), 0), false));
    return silu(sum);
  }

  Modulation modulation(std::string_view name, ValueId condition, int64_t count) {
    return chunks(zero_linear(name, condition, count * config_.width(), false), count);
  }

  /// Applies SwiGLU: silu(first half of the columns) * second half.
  ValueId gated(ValueId x) {
    const std::vector<ValueId> halves = chunks(x, 2);
    return builder_.op("glu", {halves[0], halves[1]}, {{"activation", "silu"}});
  }

  ValueId feed_forward(std::string_view name, ValueId x, const Modulation& by) {
    const Scope scope(builder_, name);
    const ValueId inner = gated(linear("linear_in", modulated_norm(x, by[3], by[4]), 2 * config_.mlp, false));
    return gated_add(x, by[5], linear("linear_out", inner, config_.width(), false));
  }

  Streams run_double(Streams x, const Modulation& text, const Modulation& image) {
    const Streams branch = attend_both({.text = modulated_norm(x.text, text[0], text[1]),
                                        .image = modulated_norm(x.image, image[0], image[1])});
    x.image = feed_forward("ff", gated_add(x.image, image[2], branch.image), image);
    x.text = feed_forward("ff_context", gated_add(x.text, text[2], branch.text), text);
    return x;
  }

  /// Single-stream block with two matrices: the first computes queries, keys, values and both halves of the
  /// MLP input; the second projects the concatenated outputs of attention and MLP.
  ValueId run_single(ValueId x, const Modulation& by) {
    const Scope scope(builder_, "attn");
    const int64_t width = config_.width();
    const ValueId all =
        linear("to_qkv_mlp_proj", modulated_norm(x, by[0], by[1]), 3 * width + 2 * config_.mlp, false);
    const ValueId q = rotate(norm_heads("norm_q", columns(all, 0, width)));
    const ValueId k = rotate(norm_heads("norm_k", columns(all, width, width)));
    const ValueId mixed = attend(q, k, columns(all, 2 * width, width));
    const ValueId inner = gated(columns(all, 3 * width, 2 * config_.mlp));
    return gated_add(x, by[2], linear("to_out", builder_.concat({mixed, inner}), width, false));
  }
};

}  // namespace

ValueId build_flux2(nn::Builder& builder, const DenoiserConfig& config, const DenoiserInputs& in) {
  return Flux2(builder, config, in, false).run();
}

}  // namespace hearth::models
