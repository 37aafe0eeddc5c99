#include "models/denoiser/blocks.h"

namespace hearth::models {
namespace {

using ir::ValueId;
using Scope = nn::Builder::Scope;

class Flux : public FluxBlocks {
 public:
  using FluxBlocks::FluxBlocks;

  ValueId run() {
    const ValueId condition = embed_condition();
    Streams x{.text = linear("context_embedder", text(), config_.width()),
              .image = linear("x_embedder", in_.tokens, config_.width())};
    for (int64_t i = 0; i < config_.num_double; ++i) {
      const Scope scope(builder_, "transformer_blocks." + std::to_string(i));
      x = run_double(x, condition);
    }
    ValueId joined = join(x);
    for (int64_t i = 0; i < config_.num_single; ++i) {
      const Scope scope(builder_, "single_transformer_blocks." + std::to_string(i));
      joined = run_single(joined, condition);
    }
    return last_layers(joined, condition);
  }

 private:
  ValueId of_class(std::string_view table, int64_t size) {
    return builder_.op("embedding", {in_.labels, builder_.table(table, config_.num_classes + 1, size, 0.02)});
  }
  ValueId text() {
    if (config_.num_classes == 0) return in_.text;
    return reshape(of_class("class_tokens", text_tokens_ * config_.text_width), in_.num_rows * text_tokens_,
                   config_.text_width);
  }

  /// Returns the input of every modulation: SiLU of the sum of the embeddings of timestep, guidance scale and
  /// pooled text.
  ValueId embed_condition() {
    const ValueId pooled =
        config_.num_classes == 0 ? in_.pooled : of_class("class_pooled", config_.pooled_width);
    const Scope scope(builder_, "time_text_embed");
    ValueId sum = embed("timestep_embedder", sinusoids(in_.time, 0));
    if (config_.guidance) sum = builder_.add(sum, embed("guidance_embedder", sinusoids(guidance_time(), 0)));
    return silu(builder_.add(sum, embed("text_embedder", pooled)));
  }

  Modulation modulation(std::string_view name, ValueId condition, int64_t count) {
    return chunks(zero_linear(name, condition, count * config_.width()), count);
  }

  /// Returns x + gate * MLP(norm(x)), with the second half of the modulation `by`.
  ValueId feed_forward(std::string_view name, ValueId x, const Modulation& by) {
    const Scope scope(builder_, name);
    const ValueId inner = linear("net.0.proj", modulated_norm(x, by[3], by[4]), config_.mlp);
    return gated_add(x, by[5], linear("net.2", builder_.op("gelu_tanh", {inner}), config_.width()));
  }

  Streams run_double(Streams x, ValueId condition) {
    const Modulation image = modulation("norm1.linear", condition, 6);
    const Modulation text = modulation("norm1_context.linear", condition, 6);
    const Streams branch = attend_both({.text = modulated_norm(x.text, text[0], text[1]),
                                        .image = modulated_norm(x.image, image[0], image[1])});
    x.image = feed_forward("ff", gated_add(x.image, image[2], branch.image), image);
    x.text = feed_forward("ff_context", gated_add(x.text, text[2], branch.text), text);
    return x;
  }

  /// Single-stream block: attention and MLP in parallel.
  ValueId run_single(ValueId x, ValueId condition) {
    const Modulation by = modulation("norm.linear", condition, 3);
    const ValueId normed = modulated_norm(x, by[0], by[1]);
    const ValueId inner = builder_.op("gelu_tanh", {linear("proj_mlp", normed, config_.mlp)});
    const ValueId branch = linear("proj_out", builder_.concat({attend_one(normed), inner}), config_.width());
    return gated_add(x, by[2], branch);
  }

  ValueId attend_one(ValueId x) {
    const Scope scope(builder_, "attn");
    const ValueId q = rotate(norm_heads("norm_q", linear("to_q", x, config_.width())));
    const ValueId k = rotate(norm_heads("norm_k", linear("to_k", x, config_.width())));
    return attend(q, k, linear("to_v", x, config_.width()));
  }
};

}  // namespace

ValueId build_flux(nn::Builder& builder, const DenoiserConfig& config, const DenoiserInputs& in) {
  return Flux(builder, config, in, true).run();
}

}  // namespace hearth::models
