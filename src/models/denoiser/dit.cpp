#include "base/error.h"
#include "models/denoiser/blocks.h"

namespace hearth::models {
namespace {

using ir::ValueId;
using Scope = nn::Builder::Scope;

class Dit : public DenoiserBlocks {
 public:
  using DenoiserBlocks::DenoiserBlocks;

  ValueId run() {
    ValueId x = builder_.add(embed_patches(), positions());
    ValueId last = ir::kNone;
    for (int64_t i = 0; i < config_.num_single; ++i) {
      const Scope scope(builder_, "transformer_blocks." + std::to_string(i));
      const ValueId condition = embed_condition();
      // Each block has its own embedders; the output layer uses the condition from those of the first block.
      if (i == 0) last = condition;
      x = run_block(x, condition);
    }
    const std::vector<ValueId> by = chunks(zero_linear("proj_out_1", last, 2 * config_.width()), 2);
    return builder_.linear("proj_out_2", modulated_norm(x, by[0], by[1]), config_.out_features(),
                           {.start = nn::Init{}, .out_patch = config_.patch});
  }

 private:
  ValueId embed_patches() {
    const int64_t width = config_.width();
    return builder_.linear("pos_embed.proj", in_.tokens, width,
                           {.start = nn::Builder::xavier(config_.features(), width),
                            .file_shape = {width, config_.channels, config_.patch, config_.patch}});
  }

  /// Returns sinusoidal position embeddings, f32 [B * T, width]: sines and cosines of a token's column, then
  /// of its row.
  ValueId positions() {
    const int64_t axis = config_.width() / 2;
    const ValueId table = builder_.op("axes_rope_table", {},
                                      {{"batch", in_.num_rows},
                                       {"text", int64_t{0}},
                                       {"height", in_.patches.height},
                                       {"width", in_.patches.width},
                                       {"axes", std::vector<int64_t>{axis, axis}},
                                       {"theta", config_.theta}});
    // The parts of the table: cosines of rows, cosines of columns, sines of rows, sines of columns.
    const std::vector<ValueId> parts = chunks(table, 4);
    return builder_.concat({parts[3], parts[1], parts[2], parts[0]});
  }

  ValueId embed_condition() {
    const Scope scope(builder_, "norm1.emb");
    const ValueId table =
        builder_.table("class_embedder.embedding_table", config_.num_classes + 1, config_.width(), 0.02);
    const ValueId time = embed("timestep_embedder", sinusoids(in_.time, 1));
    return silu(builder_.add(time, builder_.op("embedding", {in_.labels, table})));
  }

  ValueId run_block(ValueId x, ValueId condition) {
    const std::vector<ValueId> by = chunks(zero_linear("norm1.linear", condition, 6 * config_.width()), 6);
    x = gated_add(x, by[2], mix(modulated_norm(x, by[0], by[1])));
    const ValueId inner =
        linear("ff.net.0.proj", modulated_norm(x, by[3], by[4], config_.mlp_eps), config_.mlp);
    return gated_add(x, by[5], linear("ff.net.2", builder_.op("gelu_tanh", {inner}), config_.width()));
  }

  ValueId mix(ValueId x) {
    const Scope scope(builder_, "attn1");
    const ValueId q = linear("to_q", x, config_.width(), config_.qkv_bias);
    const ValueId k = linear("to_k", x, config_.width(), config_.qkv_bias);
    const ValueId v = linear("to_v", x, config_.width(), config_.qkv_bias);
    return linear("to_out.0", attend(q, k, v), config_.width());
  }
};

}  // namespace

ValueId build_dit(nn::Builder& builder, const DenoiserConfig& config, const DenoiserInputs& in) {
  if (in.patches != Extent(config.side)) {
    user_error(
        "expected latents of {0} x {0}, the sample_size of this DiT, got {1} x {2}; use images of that size, "
        "or set sample_size in config.json of a new model",
        config.side * config.patch, in.patches.height * config.patch, in.patches.width * config.patch);
  }
  return Dit(builder, config, in).run();
}

}  // namespace hearth::models
